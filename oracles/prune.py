"""What decides what is pruned, a second time, in PyTorch from the formulas of the papers. See README.md.

Writes, into crates/lathe-model/tests/it/fixtures/prune, a small GPT-2, a small Llama whose heads share keys and values, and a
small BERT as transformers saves them, each with a file scores.json, all in f64:

- gradient (Michel et al., 2019): for a gate of 1 on each head (or group of heads that share keys and values) and on each inner
  neuron, the mean over samples of |dL(x)/dgate|, by autograd through the gates themselves.
- activations: the sum over a unit's inputs of the matrix it writes by, of mean |h| times the length of the matrix's column.
- influence (Men et al., 2024): the mean over tokens of 1 - cos of the hidden states before and after each block.

Scores of a block's units are divided by their l2 norm.
"""

import json
import pathlib
import warnings

import torch

warnings.filterwarnings("ignore")

from transformers import (  # noqa: E402
    BertConfig, BertForMaskedLM, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM,
)  # fmt: skip

import fixture  # noqa: E402

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "crates/lathe-model/tests/it/fixtures/prune"
SAMPLES, LENGTH, VOCAB = 5, 7, 23


def gpt2():
    return GPT2LMHeadModel(GPT2Config(
        vocab_size=VOCAB, n_positions=LENGTH, n_embd=12, n_layer=2, n_head=3, n_inner=20, resid_pdrop=0.0, embd_pdrop=0.0,
        attn_pdrop=0.0, bos_token_id=0, eos_token_id=0, use_cache=False, attn_implementation="eager",
    ))  # fmt: skip


def llama():
    return LlamaForCausalLM(LlamaConfig(
        vocab_size=VOCAB, hidden_size=12, intermediate_size=20, num_hidden_layers=2, num_attention_heads=6,
        num_key_value_heads=3, head_dim=4, max_position_embeddings=LENGTH, tie_word_embeddings=True, use_cache=False,
        attn_implementation="eager",
    ))  # fmt: skip


def bert():
    return BertForMaskedLM(BertConfig(
        vocab_size=VOCAB, hidden_size=12, intermediate_size=20, num_hidden_layers=2, num_attention_heads=3,
        max_position_embeddings=LENGTH, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
        attn_implementation="eager",
    ))  # fmt: skip


def parts(case, model):
    """For each layer: the layer, what gets the hidden states between its two blocks, and the matrices units write by."""
    if case == "gpt2":
        return [(h, h.ln_2, h.attn.c_proj, h.mlp.c_proj) for h in model.transformer.h]
    if case == "llama":
        return [(h, h.post_attention_layernorm, h.self_attn.o_proj, h.mlp.down_proj) for h in model.model.layers]
    return [(h, h.intermediate, h.attention.output.dense, h.output.dense) for h in model.bert.encoder.layer]


def inputs_of(matrix):
    """[inputs, outputs], however the layer has it."""
    return matrix.weight if type(matrix).__name__ == "Conv1D" else matrix.weight.T


def unit(scores):
    return (scores / scores.norm()).tolist()


def first(x):
    return x[0] if isinstance(x, tuple) else x


for case, build in [("gpt2", gpt2), ("llama", llama), ("bert", bert)]:
    random = fixture.generator("prune_" + case)
    model = build().eval()
    fixture.reinitialise(model, random)
    folder = FOLDER / case
    model.save_pretrained(folder, safe_serialization=True)
    (folder / "generation_config.json").unlink(missing_ok=True)
    (folder / "model.safetensors").chmod(0o644)
    tokens = fixture.tokens(SAMPLES, LENGTH + 1, VOCAB, random)
    ids, targets = tokens[:, :-1], tokens[:, 1:]
    torch.set_default_dtype(torch.float64)
    model.double()

    layers = parts(case, model)
    heads = {"gpt2": 3, "llama": 3, "bert": 3}[case]
    gates, activity, hidden, hooks = [], [], [], []

    def gate(matrix, count):
        gates.append(torch.ones(count, requires_grad=True))
        activity.append([])
        mine, seen = gates[-1], activity[-1]

        def hook(_, args):
            seen.append(args[0].detach().abs().reshape(-1, args[0].shape[-1]).mean(0))
            return (args[0] * mine.repeat_interleave(args[0].shape[-1] // count), *args[1:])

        hooks.append(matrix.register_forward_pre_hook(hook))

    for layer, between, attention, ffn in layers:
        gate(attention, heads)
        gate(ffn, 20)
        hooks.append(layer.register_forward_pre_hook(lambda _, args: hidden.append(args[0].detach())))
        hooks.append(between.register_forward_pre_hook(lambda _, args: hidden.append(args[0].detach())))
    hooks.append(layers[-1][0].register_forward_hook(lambda _, __, out: hidden.append(first(out).detach())))

    importance = [torch.zeros_like(g) for g in gates]
    turns = torch.zeros(2 * len(layers))
    for x, y in zip(ids, targets):
        hidden.clear()
        loss = torch.nn.functional.cross_entropy(model(input_ids=x[None]).logits[0], y)
        for total, g in zip(importance, torch.autograd.grad(loss, gates)):
            total += g.abs() / SAMPLES
        cosines = [torch.cosine_similarity(a, b, dim=-1).mean() for a, b in zip(hidden, hidden[1:])]
        turns += (1 - torch.stack(cosines)) / SAMPLES

    matrices = [m for _, _, attention, ffn in layers for m in (attention, ffn)]
    by_activity = []
    for seen, matrix, g in zip(activity, matrices, gates):
        score = torch.stack(seen).mean(0) * inputs_of(matrix).detach().norm(dim=1)
        by_activity.append(score.reshape(len(g), -1).sum(1))
    document = {
        "ids": ids.tolist(),
        "targets": targets.tolist(),
        "heads": {"gradient": [unit(s) for s in importance[::2]], "activations": [unit(s) for s in by_activity[::2]]},
        "inner": {"gradient": [unit(s) for s in importance[1::2]], "activations": [unit(s) for s in by_activity[1::2]]},
        "influence": turns.tolist(),
    }
    (folder / "scores.json").write_text(json.dumps(document) + "\n")
    print(case, json.dumps(document["heads"]), document["influence"])
    for hook in hooks:
        hook.remove()
