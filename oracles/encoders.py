"""BERT fine-tuned for tasks, as transformers computes it. See README.md.

Each case is a folder as `save_pretrained` writes it, in crates/lathe-train/tests/it/fixtures/encoders/<name>, with one more file in
it, expected.safetensors:

  ids, mask, segments   int64 [B, T]
  targets               [B] labels or right choices (int64), values (f32); of spans int64 [B, 2], first and last token
  logits                what the model gives: [B, N], choices [examples, choices], spans [B, T, 2]
  loss                  [1], of the batch
  grad.<name>           d loss / d weight
  adamw_losses          [10], the loss before each of ten steps of AdamW as models are fine-tuned: no decay of biases and norms

Good to know:

- BertForSequenceClassification: pooler, dropout, classifier. With one label the loss is the mean squared error.
- BertForMultipleChoice: the same with one number per text, and a softmax over the texts of an example.
- BertForQuestionAnswering has no pooler; the loss is the mean of those of first and last token. transformers takes its
  softmax over padding, too; here it is over the tokens that are there, so that a loss does not depend on what else is in the
  batch.
"""

import pathlib
import shutil

import torch
from safetensors.torch import save
from transformers import (
    BertConfig,
    BertForMultipleChoice,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertModel,
)

import fixture

FOLDER = fixture.FOLDER.parents[3] / "lathe-train/tests/it/fixtures/encoders"
LENGTHS = [9, 6, 9, 4]
LABELS = {"id2label": {0: "low", 1: "middle", 2: "high"}, "label2id": {"low": 0, "middle": 1, "high": 2}}

CASES = {
    "classify": (BertForSequenceClassification, LABELS),
    "regress": (BertForSequenceClassification, {"num_labels": 1, "problem_type": "regression"}),
    "choose": (BertForMultipleChoice, {}),
    "span": (BertForQuestionAnswering, {}),
    "embed": (BertModel, {}),
}


def build(kind, extra):
    config = BertConfig(
        vocab_size=29,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=24,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        max_position_embeddings=16,
        attn_implementation="eager",
        **extra,
    )
    return kind(config)


def inputs(random):
    shape = (len(LENGTHS), max(LENGTHS))
    places = torch.arange(shape[1]).expand(shape)
    mask = places < torch.tensor(LENGTHS)[:, None]
    ids = torch.randint(1, 29, shape, generator=random) * mask
    second = (places >= torch.randint(2, 4, (shape[0], 1), generator=random)) & mask
    return {"ids": ids, "mask": mask.long(), "segments": second.long()}


def targets(case):
    return {
        "classify": torch.tensor([2, 0, 1, 2]),
        "regress": torch.tensor([0.5, 3.0, -1.0, 2.25]),
        "choose": torch.tensor([1, 0]),
        "span": torch.tensor([[3, 5], [0, 0], [8, 8], [2, 3]]),
        "embed": torch.tensor([0.75, 0.125]),
    }[case]


def compute(case, model, given):
    arguments = {"input_ids": given["ids"], "attention_mask": given["mask"], "token_type_ids": given["segments"]}
    wanted = given["targets"]
    if case == "choose":
        arguments = {name: tensor.reshape(2, 2, -1) for name, tensor in arguments.items()}
    if case == "embed":
        # As sentence-transformers has it: the mean over tokens, of length 1; the squared error of cosines.
        hidden, mask = model(**arguments).last_hidden_state, given["mask"][..., None].float()
        vectors = torch.nn.functional.normalize((hidden * mask).sum(1) / mask.sum(1), dim=-1)
        cosines = (vectors[0::2] * vectors[1::2]).sum(-1)
        return (cosines - wanted).square().mean(), {"logits": vectors}
    if case == "span":
        out = model(**arguments)
        logits = torch.stack([out.start_logits, out.end_logits], -1)
        real = logits.masked_fill(given["mask"][..., None] == 0, float("-inf"))
        loss = torch.nn.functional.cross_entropy
        return 0.5 * (loss(real[..., 0], wanted[:, 0]) + loss(real[..., 1], wanted[:, 1])), {"logits": logits}
    out = model(**arguments, labels=wanted)
    return out.loss, {"logits": out.logits}


def adamw_losses(case, model, given):
    plain = [p for name, p in model.named_parameters() if name.endswith("bias") or "LayerNorm" in name]
    decayed = [p for name, p in model.named_parameters() if not (name.endswith("bias") or "LayerNorm" in name)]
    groups = [{"params": decayed, "weight_decay": 0.01}, {"params": plain, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=1e-2, betas=(0.9, 0.999), eps=1e-8)
    losses = []
    for _ in range(fixture.STEPS):
        optimizer.zero_grad()
        loss, _ = compute(case, model, given)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses)


if __name__ == "__main__":
    for case, (kind, extra) in CASES.items():
        random = fixture.generator(f"encoders {case}")
        model = build(kind, extra).eval()
        fixture.reinitialise(model, random)
        folder = FOLDER / case
        shutil.rmtree(folder, ignore_errors=True)
        model.save_pretrained(folder)
        given = {**inputs(random), "targets": targets(case)}
        loss, outputs = compute(case, model, given)
        loss.backward()
        tensors = {**given, **outputs, "loss": loss.reshape(1)}
        # The pooler of BertModel takes no part in embeddings.
        grads = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
        tensors.update({f"grad.{name}": grad for name, grad in grads.items()})
        model.zero_grad(set_to_none=True)
        tensors["adamw_losses"] = adamw_losses(case, model, given)
        tensors = {name: tensor.detach().clone().contiguous() for name, tensor in tensors.items()}
        pathlib.Path(folder / "expected.safetensors").write_bytes(fixture.stable(save(tensors, {"case": case})))
        print(f"{case:10} loss {loss.item():.6f}, {len(grads)} gradients, {tensors['adamw_losses'][-1].item():.6f} after ten steps")
