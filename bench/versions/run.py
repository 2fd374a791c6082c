"""Two versions of lathe beside each other: rounds of the three workloads in turn, ratios of times and of peak memory with
95 % intervals, written under bench/runs/.

    python3 bench/versions/run.py --before OLD/lathe --after target/release/lathe --rounds 24
"""
import argparse
import datetime
import json
import pathlib
import statistics
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
GPT2 = "--backbone gpt2 --activation gelu_tanh"
WORKLOADS = {
    "forward": f"{GPT2} --layers (sf)x16 --d-model 512 --heads 8 --inner 2048 --vocab 10000 --max-len 192 --seq 192",
    "train A": f"{GPT2} --layers (sf)x6 --d-model 256 --heads 4 --inner 1024 --vocab 256 --max-len 128 --seq 128 --batch 16 --mode train",
    "train B": f"{GPT2} --layers (sf)x6 --d-model 512 --heads 8 --inner 2048 --vocab 10000 --max-len 192 --seq 192 --batch 8 --mode train",
    "decode": f"{GPT2} --layers (sf)x16 --d-model 512 --heads 8 --inner 2048 --vocab 50257 --max-len 128 --seq 128 --mode decode",
    "transformer_xl train": "--backbone transformer_xl --layers (sf)x6 --d-model 256 --heads 4 --inner 1024 --vocab 256 --mem-len 128 --seq 128 --batch 8 --mode train",
}


def bench(binary, workload, precision, args):
    command = [binary, "bench", *workload.split(), "--precision", precision, "--seconds", str(args.seconds), "--threads", str(args.threads), "--json"]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def interval(values):
    values = sorted(values)
    half = 0.98 * len(values) ** 0.5
    low, high = max(0, int(len(values) / 2 - half)), min(len(values) - 1, int(len(values) / 2 + half + 0.999))
    return values[low], values[high]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--before", required=True)
    parser.add_argument("--after", default=str(ROOT / "target/release/lathe"))
    parser.add_argument("--rounds", type=int, default=24)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--precisions", nargs="*", default=["f32"])
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--name", default=datetime.date.today().isoformat() + "-versions")
    args = parser.parse_args()
    path = ROOT / "bench/runs" / f"{args.name}.json"
    record = json.loads(path.read_text()) if path.exists() else {}
    for precision in args.precisions:
        for name, workload in WORKLOADS.items():
            if args.only and name not in args.only:
                continue
            rounds = []
            for i in range(args.rounds):
                found = {}
                for side in ("before", "after") if i % 2 else ("after", "before"):
                    found[side] = bench(getattr(args, side), workload, precision, args)
                rounds.append({side: [found[side]["latency_ms"]["median"], found[side]["peak_bytes"]] for side in found})
            ratios = [r["after"][0] / r["before"][0] for r in rounds]
            memory = [r["after"][1] / r["before"][1] for r in rounds]
            low, high = interval(ratios)
            record[f"{name}, {precision}"] = {
                "cpu": found["after"]["cpu"], "instructions": found["after"]["instructions"], "time": statistics.median(ratios),
                "low": low, "high": high, "memory": statistics.median(memory), "rounds": rounds}
            print(f"{name}, {precision}: time {statistics.median(ratios):.3f} [{low:.3f}, {high:.3f}], memory {statistics.median(memory):.3f}", flush=True)
            path.write_text(json.dumps(record, indent=1) + "\n")


main()
