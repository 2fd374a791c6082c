"""Runs lathe and PyTorch in turn on identical models and writes ratios with intervals under bench/runs/."""
import argparse
import datetime
import json
import os
import pathlib
import statistics
import subprocess

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
GPT2 = "--backbone gpt2 --activation gelu_tanh --max-len 1024"
SMALL = "--layers (sf)x6 --d-model 256 --heads 4 --inner 1024 --vocab 256 --seq 128 --batch 16"
LARGE = "--layers (sf)x6 --d-model 512 --heads 8 --inner 2048 --vocab 10000 --seq 192 --batch 8"
DEEP = "--layers (sf)x16 --d-model 512 --heads 8 --inner 2048 --vocab 10000"
LATHE = {
    "forward": f"{GPT2} {DEEP} --seq 192 --mode infer",
    "train_a": f"{GPT2} {SMALL} --mode train",
    "train_b": f"{GPT2} {LARGE} --mode train",
    "train_xl": f"--backbone transformer_xl {LARGE} --mem-len 192 --mode train",
    "decode": f"{GPT2} {DEEP} --seq 128 --mode decode",
}


# oneDNN's AMX dies of an illegal instruction where a hypervisor hides the CPUID leaves of tiles.
NO_AMX = {**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16"}


def measure(command, env=None):
    out = subprocess.run(command, check=True, capture_output=True, text=True, env=env).stdout
    return json.loads(out[out.index("{"):])


def measure_if_it_runs(command, env):
    try:
        return measure(command, env)
    except subprocess.CalledProcessError:
        return {"median": None}


def interval(values):
    """Median, and the 95 % interval of it by order statistics."""
    values = sorted(values)
    n = len(values)
    half = 0.98 * n**0.5
    return statistics.median(values), values[max(0, int(n / 2 - half))], values[min(n - 1, int(n / 2 + half + 0.999))]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--python", required=True, help="a Python with torch")
    parser.add_argument("--python-xl", help="a Python with torch and transformers 4.35.2")
    parser.add_argument("--lathe", default=str(ROOT / "target/release/lathe"))
    parser.add_argument("--workloads", default="forward,train_a,train_b,train_xl,decode")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--precision", default="f32", help="lathe's; with bf16, PyTorch's bf16 is measured beside its f32")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--name", default=datetime.date.today().isoformat() + "-vs-torch")
    args = parser.parse_args()

    record = {"threads": args.threads, "precision": args.precision, "rounds": {}}
    for name in args.workloads.split(","):
        python = args.python_xl if name == "train_xl" else args.python
        if not python:
            continue
        rounds = record["rounds"][name] = []
        for i in range(args.rounds):
            lathe = [args.lathe, "bench", *LATHE[name].split(), "--seconds", str(args.seconds), "--threads", str(args.threads), "--precision", args.precision, "--json"]
            torch = [python, str(HERE / "worker.py"), name, str(args.seconds), str(args.threads)]
            order = [("lathe", lathe), ("torch", torch)]
            result = {side: measure(command) for side, command in (order if i % 2 else order[::-1])}
            record["cpu"], record["instructions"] = result["lathe"]["cpu"], result["lathe"]["instructions"]
            both = {"torch_bf16_ms": measure_if_it_runs([*torch, "bf16"], NO_AMX)["median"]} if args.precision == "bf16" else {}
            rounds.append({
                "lathe_ms": result["lathe"]["latency_ms"]["median"], "torch_ms": result["torch"]["median"],
                "lathe_peak_bytes": result["lathe"]["peak_bytes"], "torch_peak_bytes": result["torch"]["peak_bytes"],
                **both,
            })
            record["torch"] = result["torch"]["torch"]
        ratio = interval([r["lathe_ms"] / r["torch_ms"] for r in rounds])
        memory = statistics.median(r["lathe_peak_bytes"] / r["torch_peak_bytes"] for r in rounds)
        lathe_ms, torch_ms = (statistics.median(r[k] for r in rounds) for k in ("lathe_ms", "torch_ms"))
        record.setdefault("summary", {})[name] = {"ratio": ratio[0], "low": ratio[1], "high": ratio[2], "memory": memory, "lathe_ms": lathe_ms, "torch_ms": torch_ms}
        print(f"{name:9} lathe {lathe_ms:8.1f} ms  torch {torch_ms:8.1f} ms  ratio {ratio[0]:.2f} [{ratio[1]:.2f}, {ratio[2]:.2f}]  memory {memory:.2f}", flush=True)
        own = [r["torch_bf16_ms"] for r in rounds if r.get("torch_bf16_ms")]
        if own:
            record["summary"][name]["torch_bf16_ms"] = statistics.median(own)
            print(f"          torch bf16 {statistics.median(own):8.1f} ms", flush=True)
        (ROOT / "bench/runs").mkdir(parents=True, exist_ok=True)
        (ROOT / "bench/runs" / f"{args.name}.json").write_text(json.dumps(record, indent=1) + "\n")


main()
