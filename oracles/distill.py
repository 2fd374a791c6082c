"""What a student learns from a teacher, term by term, as PyTorch computes it. See README.md.

A fixture, in crates/lathe-train/tests/it/fixtures/distill, is one safetensors file:
  __metadata__.teacher, .student, .narrow  model files (TOML): the narrow student has another width
  ids, targets                             int64 [B, T]; -100 where nothing is predicted
  teacher.<name>, student.<name>, narrow.<name>  weights
  projection.<i>                           [teacher's width, narrow student's width], of the i-th pair of layers
  <term>.loss, <term>.grad.<name>, <term>.projection.<i>  of the narrow student
  steps.loss                               [5], all terms together, before each of five steps of AdamW; projections too
  local.loss, local.grad.<name>            of the other student, each slot alone

Terms, each a mean over the tokens that count (those of hidden states and maps: over all tokens):
  ce         cross-entropy
  kl         T^2 KL(teacher || student) at T = 2
  mse        the mean over the vocabulary of the squared difference of logits
  top        as kl, of the 4 most probable tokens of the teacher and all others together
  hidden     |x W - t|^2 / (|t|^2 + 1e-6 D) after student layers 1, 2 and teacher layers 2, 4, mean of the two
  hidden_mse the mean over D of (x W - t)^2, likewise
  attention  KL of attention maps in the same layers, mean over heads and layers; of maps that are means over heads where
             teacher and student have different numbers of heads
  all        0.5 kl + 0.3 ce + 0.2 mse + 0.7 hidden + 0.4 attention
"""

import copy
import json
import pathlib

import torch
import transformers
from safetensors.torch import save

import bert
import fixture
import llama

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "crates/lathe-train/tests/it/fixtures/distill"
TEMPERATURE, K = 2.0, 4
PAIRS = [(1, 2), (2, 4)]
ALL = {"kl": 0.5, "ce": 0.3, "mse": 0.2, "hidden": 0.7, "attention": 0.4}
TERMS = ["ce", "kl", "mse", "top", "hidden", "hidden_mse", "attention", "all"]
STEPS = 5

# name: builder, teacher, narrow student, student of the teacher's width
CASES = {
    "llama": (
        lambda spec: llama.build("llama", spec),
        llama.spec(2, 1, layers=4, d_model=16, inner=20, tie_embeddings=True),
        llama.spec(2, 2, layers=2, d_model=12, inner=16, tie_embeddings=True),
        llama.spec(1, 1, layers=4, d_model=16, d_head=8, inner=12, tie_embeddings=True),
    ),
    "bert": (
        bert.build,
        bert.spec(4, layers=4, d_model=16, inner=24),
        bert.spec(2, layers=2, d_model=12, inner=16),
        bert.spec(2, layers=4, d_model=16, inner=12),
    ),
}


def slots(model, ids):
    """The embedding, and a function for each slot that gives its output and its attention map, if it has one."""
    if hasattr(model, "bert"):
        inner = model.bert

        def attention(layer):
            return lambda x: layer.attention(x)

        def ffn(layer):
            return lambda x: (layer.feed_forward_chunk(x), None)

        return inner.embeddings(input_ids=ids), [f(layer) for layer in inner.encoder.layer for f in (attention, ffn)]
    inner, length = model.model, ids.shape[1]
    places = torch.arange(length)[None]
    rotary = inner.rotary_emb(torch.zeros(1, length, 1), position_ids=places)
    hidden = torch.full((length, length), float("-inf")).triu(1)[None, None]

    def attention(layer):
        def run(x):
            y, map = layer.self_attn(layer.input_layernorm(x), position_embeddings=rotary, attention_mask=hidden)
            return x + y, map

        return run

    def ffn(layer):
        return lambda x: (x + layer.mlp(layer.post_attention_layernorm(x)), None)

    return inner.embed_tokens(ids), [f(layer) for layer in inner.layers for f in (attention, ffn)]


def walk(model, ids):
    """Hidden states before each slot and after the last, attention maps of layers, logits."""
    x, each = slots(model, ids)
    states, maps = [x], []
    for slot in each:
        x, map = slot(x)
        states.append(x)
        maps += [] if map is None else [map]
    logits = model.cls(x) if hasattr(model, "bert") else model.lm_head(model.model.norm(x))
    expected = model(input_ids=ids).logits
    torch.testing.assert_close(logits, expected)
    return states, maps, logits


def kl(p_log, q_log):
    return (p_log.exp() * (p_log - q_log)).sum(-1)


def terms(student, teacher, projections, ids, targets):
    """Every term of a student."""
    counted = targets != -100
    with torch.no_grad():
        t_states, t_maps, t = walk(teacher, ids)
    s_states, s_maps, z = walk(student, ids)
    t, z = t[counted], z[counted]
    soft_t, soft_z = (t / TEMPERATURE).log_softmax(-1), (z / TEMPERATURE).log_softmax(-1)
    out = {
        "ce": torch.nn.functional.cross_entropy(z, targets[counted]),
        "kl": TEMPERATURE**2 * kl(soft_t, soft_z).mean(),
        "mse": torch.nn.functional.mse_loss(z, t),
    }
    top = soft_t.topk(K, -1).indices
    rest = torch.ones_like(soft_t).scatter(1, top, 0.0)

    def outcomes(soft):
        return torch.cat([soft.gather(1, top), (soft.exp() * rest).sum(-1, keepdim=True).log()], -1)

    out["top"] = TEMPERATURE**2 * kl(outcomes(soft_t), outcomes(soft_z)).mean()
    relative, mean, of_maps = [], [], []
    for (s, t), projection in zip(PAIRS, projections, strict=True):
        x, wanted = s_states[2 * s] @ projection.T, t_states[2 * t]
        square = (x - wanted).square().mean(-1)
        relative.append((square / (wanted.square().mean(-1) + 1e-6)).mean())
        mean.append(square.mean())
        q, p = s_maps[s - 1], t_maps[t - 1]
        if q.shape != p.shape:
            q, p = q.mean(1, keepdim=True), p.mean(1, keepdim=True)
        seen = p > 0
        of_maps.append(torch.where(seen, p * (p / q.where(seen, 1.0)).where(seen, 1.0).log(), 0.0).sum(-1).mean())
    out |= {"hidden": torch.stack(relative).mean(), "hidden_mse": torch.stack(mean).mean()}
    out["attention"] = torch.stack(of_maps).mean()
    out["all"] = sum(weight * out[term] for term, weight in ALL.items())
    return out


def local(student, teacher, ids):
    """The loss of each slot alone, given the teacher's input."""
    with torch.no_grad():
        states, _, _ = walk(teacher, ids)
    _, each = slots(student, ids)
    losses = []
    for slot, x, wanted in zip(each, states[:-1], states[1:], strict=True):
        square = (slot(x)[0] - wanted).square().mean(-1)
        losses.append((square / (wanted.square().mean(-1) + 1e-6)).mean())
    return torch.stack(losses)


def random_model(build, spec, random):
    model = build(spec)
    fixture.reinitialise(model, random)
    return model.eval()


def gradients(loss, named):
    found = torch.autograd.grad(loss, list(named.values()), retain_graph=True, allow_unused=True)
    return {name: torch.zeros_like(p) if g is None else g for (name, p), g in zip(named.items(), found)}


def toml(spec):
    return "".join(f"{key} = {json.dumps(value)}\n" for key, value in spec.items())


def write(case):
    build, of_teacher, of_narrow, of_student = CASES[case]
    random = fixture.generator(f"distill {case}")
    teacher, narrow, student = (random_model(build, spec, random) for spec in (of_teacher, of_narrow, of_student))
    batch, length, vocab = 2, 11, of_teacher["vocab"]
    ids = torch.randint(1, vocab, (batch, length), generator=random)
    if case == "bert":
        told = torch.rand((batch, length), generator=random) < 0.4
        targets = torch.where(told, torch.randint(1, vocab, (batch, length), generator=random), -100)
    else:
        targets = torch.cat([ids[:, 1:], torch.full((batch, 1), -100)], 1)
    widths = of_teacher["d_model"], of_narrow["d_model"]
    projections = [(torch.randn(widths, generator=random) / widths[1] ** 0.5).requires_grad_() for _ in PAIRS]

    tensors = {"ids": ids, "targets": targets}
    for who, model in [("teacher", teacher), ("narrow", narrow), ("student", student)]:
        tensors |= {f"{who}.{name}": parameter for name, parameter in model.named_parameters()}
    tensors |= {f"projection.{i}": projection for i, projection in enumerate(projections)}
    found = terms(narrow, teacher, projections, ids, targets)
    named = dict(narrow.named_parameters()) | {f"projection.{i}": p for i, p in enumerate(projections)}
    for term in TERMS:
        tensors[f"{term}.loss"] = found[term].reshape(1)
        for name, gradient in gradients(found[term], named).items():
            place = f"{term}.{name}" if name.startswith("projection.") else f"{term}.grad.{name}"
            tensors[place] = gradient
        print(f"{case:6} {term:10} {found[term].item():.6f}")

    stepped, moving = copy.deepcopy(narrow), [p.detach().clone().requires_grad_() for p in projections]
    # As lathe has it: no weight decay of vectors.
    every = [*stepped.parameters(), *moving]
    groups = [
        {"params": [p for p in every if p.dim() > 1], "weight_decay": 0.1},
        {"params": [p for p in every if p.dim() == 1], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=1e-2, betas=(0.9, 0.95), eps=1e-8)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = terms(stepped, teacher, moving, ids, targets)["all"]
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    tensors["steps.loss"] = torch.stack(losses)

    each = local(student, teacher, ids)
    tensors["local.loss"] = each
    of_student = dict(student.named_parameters())
    for name, gradient in gradients(each.sum(), of_student).items():
        tensors[f"local.grad.{name}"] = gradient
    print(f"{case:6} local      {each.tolist()}")

    tensors = {name: tensor.detach().clone().contiguous() for name, tensor in tensors.items()}
    assert all(t.isfinite().all() for t in tensors.values() if t.is_floating_point())
    source = f"transformers {transformers.__version__}, torch {torch.__version__.split('+')[0]}"
    specs = dict(zip(("teacher", "narrow", "student"), map(toml, CASES[case][1:])))
    FOLDER.mkdir(parents=True, exist_ok=True)
    file = FOLDER / f"{case}.safetensors"
    file.write_bytes(fixture.stable(save(tensors, {"source": source, **specs})))
    print(f"{case:6} {file.stat().st_size} bytes")


if __name__ == "__main__":
    for case in CASES:
        write(case)
