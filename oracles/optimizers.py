"""Twenty steps of AdamW (torch.optim) and of three LAMBs (written out in f64 from their papers and NVIDIA's code).

Writes crates/lathe-ops/tests/it/fixtures/optimizers.safetensors: `w.<tensor>` (where all begin),
`g.<tensor>` [20, ...] and `<rule>.<tensor>` [20, ...], the weights after each step.
"""

import pathlib

import torch
from safetensors.torch import save_file

STEPS, LR, BETA1, BETA2, EPS, DECAY = 20, 0.02, 0.9, 0.98, 1e-6, 0.05
SHAPES = {"matrix": (7, 5), "vector": (11,)}

torch.manual_seed(0)
start = {name: torch.randn(shape) for name, shape in SHAPES.items()}
# Gradients of very different lengths from step to step.
grads = {name: torch.randn(STEPS, *shape) * torch.logspace(-3, 1, STEPS).view(-1, *[1] * len(shape)) for name, shape in SHAPES.items()}


def adamw():
    weights = {name: torch.nn.Parameter(w.double()) for name, w in start.items()}
    optimizer = torch.optim.AdamW(weights.values(), lr=LR, betas=(BETA1, BETA2), eps=EPS, weight_decay=DECAY)
    for step in range(STEPS):
        for name, w in weights.items():
            w.grad = grads[name][step].double()
        optimizer.step()
        yield weights


def lamb(correct, jit, normalise):
    weights = {name: w.double() for name, w in start.items()}
    m = {name: torch.zeros_like(w) for name, w in weights.items()}
    v = {name: torch.zeros_like(w) for name, w in weights.items()}
    for step in range(1, STEPS + 1):
        g = {name: grads[name][step - 1].double() for name in weights}
        if normalise:
            length = torch.sqrt(sum((x**2).sum() for x in g.values()))
            g = {name: x / length for name, x in g.items()}
        for name, w in weights.items():
            m[name] = BETA1 * m[name] + (1 - BETA1) * g[name]
            v[name] = BETA2 * v[name] + (1 - BETA2) * g[name] ** 2
            first, second = m[name], v[name]
            if correct:
                first, second = first / (1 - BETA1**step), second / (1 - BETA2**step)
            update = first / (second.sqrt() + EPS) + DECAY * w
            w_norm, u_norm = w.norm(), update.norm()
            if jit:
                w_norm, u_norm = w_norm.clamp(0, 10), u_norm + EPS
            weights[name] = w - LR * (w_norm / u_norm) * update
        yield weights


rules = {
    "adamw": adamw(),
    "lamb": lamb(correct=True, jit=False, normalise=False),
    "jitlamb": lamb(correct=False, jit=True, normalise=False),
    "nvlamb": lamb(correct=True, jit=False, normalise=True),
}
tensors = {f"w.{name}": w for name, w in start.items()} | {f"g.{name}": g for name, g in grads.items()}
for rule, steps in rules.items():
    after = [{name: w.detach().clone() for name, w in weights.items()} for weights in steps]
    for name in SHAPES:
        tensors[f"{rule}.{name}"] = torch.stack([weights[name] for weights in after]).float()

path = pathlib.Path(__file__).parents[1] / "crates/lathe-ops/tests/it/fixtures/optimizers.safetensors"
path.parent.mkdir(exist_ok=True)
save_file(tensors, path)
print(path.stat().st_size, "bytes")
