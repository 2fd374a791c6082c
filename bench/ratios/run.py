"""Runs pairs of lathe's own benchmarks in turn and writes their ratios with intervals under bench/runs/."""
import argparse
import datetime
import json
import pathlib
import statistics
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
WIDE = "--backbone gpt2 --d-model 512 --heads 8 --inner 2048 --vocab 256 --max-len 2048 --activation relu"
XL = "--backbone transformer_xl --layers (sf)x16 --d-model 512 --heads 8 --inner 2048 --vocab 256 --mem-len 640 --seq 64"
# The first divided by the second.
PAIRS = {
    "m8k1 / f, 64 tokens": (f"{WIDE} --layers (m8k1)x8 --seq 64", f"{WIDE} --layers (f)x8 --seq 64"),
    "m8k1 / f, 512 tokens": (f"{WIDE} --layers (m8k1)x8 --seq 512", f"{WIDE} --layers (f)x8 --seq 512"),
    "m8k1 / f, 2048 tokens": (f"{WIDE} --layers (m8k1)x8 --seq 2048", f"{WIDE} --layers (f)x8 --seq 2048"),
    "transformer_xl 64/640, reprojected / cached": (f"{XL} --memory reproject", f"{XL} --memory cached"),
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lathe", default=str(ROOT / "target/release/lathe"))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=1.5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--name", default=datetime.date.today().isoformat() + "-ratios")
    args = parser.parse_args()
    record = {}
    for name, pair in PAIRS.items():
        rounds = []
        for i in range(args.rounds):
            times = {}
            for side in (0, 1) if i % 2 else (1, 0):
                command = [args.lathe, "bench", *pair[side].split(), "--seconds", str(args.seconds), "--threads", str(args.threads), "--json"]
                times[side] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["latency_ms"]["median"]
            rounds.append([times[0], times[1]])
        ratios = sorted(a / b for a, b in rounds)
        half = 0.98 * len(ratios) ** 0.5
        low, high = ratios[max(0, int(len(ratios) / 2 - half))], ratios[min(len(ratios) - 1, int(len(ratios) / 2 + half + 0.999))]
        record[name] = {"ratio": statistics.median(ratios), "low": low, "high": high, "rounds_ms": rounds}
        print(f"{name}: {statistics.median(ratios):.2f} [{low:.2f}, {high:.2f}]", flush=True)
    (ROOT / "bench/runs" / f"{args.name}.json").write_text(json.dumps(record, indent=1) + "\n")


main()
