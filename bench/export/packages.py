"""What other packages make of exports.

    python bench/export/packages.py types F32.gguf TYPED.gguf     bytes of TYPED against those that the package gguf rounds
                                                                  the tensors of F32 to, and its values of them
    python bench/export/packages.py hf LATHE MODEL FOLDER         logits of transformers in FOLDER against ours of MODEL
"""
import json, pathlib, subprocess, sys, tempfile
import numpy as np


def types(plain, typed):
    import gguf
    plain, typed = ({t.name: t for t in gguf.GGUFReader(path).tensors} for path in (plain, typed))
    counts, different = {}, 0
    for name, tensor in typed.items():
        kind = tensor.tensor_type
        values = np.asarray(plain[name].data).astype(np.float32)
        expected = gguf.quants.quantize(values, kind)
        same = np.array_equal(np.asarray(expected).view(np.uint8).ravel(), np.asarray(tensor.data).view(np.uint8).ravel())
        counts[kind.name] = counts.get(kind.name, 0) + 1
        different += not same
    print(json.dumps({"tensors": counts, "different": different}))


def hf(lathe, model, folder):
    import torch
    from safetensors.numpy import load_file, save_file
    from transformers import AutoModel, AutoModelForCausalLM, AutoModelForMaskedLM, AutoTokenizer
    config = json.loads((pathlib.Path(folder) / "config.json").read_text())
    masked = "MaskedLM" in config["architectures"][0]
    network = (AutoModelForMaskedLM if masked else AutoModelForCausalLM).from_pretrained(folder, dtype=torch.float32)
    ids = np.random.default_rng(0).integers(0, config["vocab_size"], (1, 32))
    with tempfile.TemporaryDirectory() as place:
        place = pathlib.Path(place)
        save_file({"ids": ids.astype(np.int64)}, place / "ids.safetensors")
        command = [lathe, "forward", model, "--tokens", place / "ids.safetensors", "--out", place / "out.safetensors"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        ours = load_file(place / "out.safetensors")["logits"]
    with torch.no_grad():
        theirs = network(torch.tensor(ids)).logits.numpy()
    words = AutoTokenizer.from_pretrained(folder)("Once upon a time")["input_ids"]
    print(json.dumps({"class": type(network).__name__, "max_abs": float(np.abs(ours - theirs).max()), "tokens": words}))


{"types": types, "hf": hf}[sys.argv[1]](*sys.argv[2:])
