"""lathe on this machine: the flags of run.py, one call, and models beside each other."""

import argparse
import json
import os
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).parents[2]


def flags(description, groups):
    parser = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter, description=description)
    parser.add_argument("--lathe", default=ROOT / "target/release/lathe", type=pathlib.Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--enwik8", type=pathlib.Path, help="enwik8 or enwik8.gz")
    parser.add_argument("--tables", type=pathlib.Path, help="the models that LTS's authors trained, as CSV")
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / "target/papers", help="folders that killed runs go on in")
    parser.add_argument("--only", nargs="*", metavar="GROUP", choices=groups, help=", ".join(groups))
    parser.add_argument("--quick", action="store_true", help="tiny settings, recorded under --work: does it run at all?")
    parser.add_argument("--table", action="store_true", help="write the tables of docs/papers.md from the records, and run nothing")
    return parser.parse_args()


class Machine:
    """What every group runs on."""

    def __init__(self, args):
        self.args, self.quick = args, args.quick
        self.work = args.work / "quick" if args.quick else args.work
        self.work.mkdir(parents=True, exist_ok=True)

    def lathe(self, *flags, threads=None):
        env = {**os.environ, "LATHE_CACHE": str(self.work / "cache")}
        command = [self.args.lathe, *flags, "--threads", threads or self.args.threads, "--json"]
        return json.loads(subprocess.run(list(map(str, command)), check=True, stdout=subprocess.PIPE, text=True, env=env).stdout)

    def file(self, name, text):
        path = self.work / name
        path.write_text(text)
        return path

    def model(self, name, **keys):
        """A shipped model with other keys, as a file."""
        text = (ROOT / f"crates/lathe-model/shipped/models/{name}.toml").read_text()
        for key, value in keys.items():
            text = re.sub(rf"(?m)^{key} *=.*\n", "", text)
            text += f"{key} = {json.dumps(value)}\n"
        return self.file(f"{name}.toml", text)

    def compared(self, models, *flags):
        """The first of some models beside each of the others, one pass of each in turn: how many times as fast these are."""
        before, (first, *others) = load(), models.items()
        found = {}
        for name, model in others:
            one = self.lathe("compare", first[1], model, *flags, "--seconds", 0.1 if self.quick else 8)
            found[name] = {key: one[key] for key in ("speedup", "speedup_interval", "latency_ms", "peak_bytes", "passes")}
        return {"beside": first[0], "models": found, "load": [before, load()], "threads": self.args.threads}


def load():
    """How many tasks want to run: above 0 before a measurement, others were at work."""
    return round(os.getloadavg()[0], 2)
