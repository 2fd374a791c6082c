"""lathe on this machine: the flags of run.py, one call, and latencies taken in turns."""

import argparse
import json
import os
import pathlib
import statistics
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

    def in_turns(self, models, *further, rounds=7):
        """Milliseconds of each model, measured round by round so that the machine's moods hit all alike; its memory; the load."""
        rounds, seconds = (2, 0.1) if self.quick else (rounds, 1)
        before, times, peaks = load(), {name: [] for name in models}, {}
        for _ in range(rounds):
            for name, model in models.items():
                found = self.lathe("bench", *model, *further, "--seconds", seconds)
                times[name].append(found["latency_ms"]["median"])
                peaks[name] = max(found["peak_bytes"], peaks.get(name, 0))
        return {"ms": times, "peak_bytes": peaks, "load": [before, load()], "threads": self.args.threads, "cpu": found["cpu"]}


def load():
    """How many tasks want to run: above 0 before a measurement, others were at work."""
    return round(os.getloadavg()[0], 2)


def ratio(ms, of, to):
    """Median of the ratios of all rounds, and the least and the greatest: of six rounds and more a 95 % interval."""
    ratios = [a / b for a, b in zip(ms[of], ms[to])]
    return statistics.median(ratios), min(ratios), max(ratios)
