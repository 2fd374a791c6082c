"""One measurement of PyTorch: python worker.py WORKLOAD SECONDS THREADS [bf16]. Prints JSON."""
import json
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

WORKLOADS = {
    # name: (layers, d_model, heads, inner, vocab, batch, tokens)
    "forward": (16, 512, 8, 2048, 10000, 1, 192),
    "train_a": (6, 256, 4, 1024, 256, 16, 128),
    "train_b": (6, 512, 8, 2048, 10000, 8, 192),
    "train_xl": (6, 512, 8, 2048, 10000, 8, 192),
    "decode": (16, 512, 8, 2048, 10000, 1, 128),
}


class Block(nn.Module):
    """A GPT-2 layer, pre-norm, as one writes it by hand."""

    def __init__(self, d, heads, inner):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.up, self.down = nn.Linear(d, inner), nn.Linear(inner, d)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.ln_1(x)).split(d, dim=2)
        q, k, v = (z.view(b, t, self.heads, d // self.heads).transpose(1, 2) for z in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.gelu(self.up(self.ln_2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    def __init__(self, layers, d, heads, inner, vocab, positions):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, d), nn.Embedding(positions, d)
        self.blocks = nn.ModuleList(Block(d, heads, inner) for _ in range(layers))
        self.ln_f = nn.LayerNorm(d)
        for p in self.parameters():
            if p.dim() == 2:
                nn.init.normal_(p, std=0.02)

    def forward(self, ids):
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.ln_f(x) @ self.wte.weight.t()


def optimiser(model):
    return torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)


def make(workload):
    layers, d, heads, inner, vocab, batch, tokens = WORKLOADS[workload]
    ids, targets = torch.randint(vocab, (batch, tokens)), torch.randint(vocab, (batch, tokens))
    if workload == "forward":
        model = Gpt2(layers, d, heads, inner, vocab, 1024).eval()

        def work():
            with torch.inference_mode():
                model(ids)

        return work
    if workload == "decode":
        from transformers import GPT2Config, GPT2LMHeadModel

        config = GPT2Config(
            n_layer=layers, n_embd=d, n_head=heads, n_inner=inner, vocab_size=vocab, n_positions=1024,
            bos_token_id=0, eos_token_id=None, pad_token_id=0,
        )
        model = GPT2LMHeadModel(config).eval()

        def work():
            with torch.inference_mode():
                model.generate(ids[:, :1], max_new_tokens=tokens, min_new_tokens=tokens, do_sample=False, use_cache=True)

        return work
    if workload == "train_xl":
        from transformers import TransfoXLConfig, TransfoXLLMHeadModel

        config = TransfoXLConfig(
            vocab_size=vocab, cutoffs=[], d_model=d, d_embed=d, n_head=heads, d_head=d // heads, d_inner=inner,
            div_val=1, n_layer=layers, mem_len=tokens, clamp_len=-1, dropout=0.0, dropatt=0.0,
        )
        model = TransfoXLLMHeadModel(config).train()
        opt, state = optimiser(model), [None]

        def work():
            opt.zero_grad(set_to_none=True)
            out = model(input_ids=ids, labels=targets, mems=state[0])
            state[0] = out.mems
            out.losses.mean().backward() if out.loss is None else out.loss.backward()
            opt.step()

        return work
    model = Gpt2(layers, d, heads, inner, vocab, 1024)
    opt = optimiser(model)

    def work():
        opt.zero_grad(set_to_none=True)
        F.cross_entropy(model(ids).view(-1, vocab), targets.view(-1)).backward()
        opt.step()

    return work


def peak_bytes():
    for line in open("/proc/self/status"):
        if line.startswith("VmHWM:"):
            return 1024 * int(line.split()[1])


def main():
    workload, seconds, threads = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    work = make(workload)
    if sys.argv[4:] == ["bf16"]:
        in_f32 = work

        def work():
            with torch.autocast("cpu", dtype=torch.bfloat16):
                in_f32()

    for _ in range(2):
        work()
    times, begin = [], time.perf_counter()
    while len(times) < 5 or time.perf_counter() - begin < seconds:
        start = time.perf_counter()
        work()
        times.append(1000 * (time.perf_counter() - start))
    times.sort()
    print(json.dumps({"median": times[len(times) // 2], "raw_ms": times, "peak_bytes": peak_bytes(), "torch": torch.__version__}))


main()
