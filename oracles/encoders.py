"""BERT and the families after it fine-tuned for tasks, as transformers computes them. See README.md.

Each case is a folder as `save_pretrained` writes it, in crates/lathe-train/tests/it/fixtures/encoders/<name>, with one more file in
it, expected.safetensors:

  ids, mask, segments   int64 [B, T]
  targets               [B] labels or right choices (int64), values (f32); of spans int64 [B, 2], first and last token;
                        of pretraining int64 [B, T], the token to tell at a place, -100 where none is
  pairs                 of pretraining int64 [B], whether the second text does not go on with the first
  logits                what the model gives: [B, N], choices [examples, choices], spans [B, T, 2]; of pretraining those of the pairs,
                        and beside them token_logits [B, T, V]
  loss                  [1], of the batch
  grad.<name>           d loss / d weight
  adamw_losses          [10], the loss before each of ten steps of AdamW as models are fine-tuned: no decay of biases and norms

Good to know:

- BertForSequenceClassification: pooler, dropout, classifier. With one label the loss is the mean squared error.
- RobertaForSequenceClassification has a layer of its own below the classifier, and places are those of bert.py.
- DistilBertForSequenceClassification has relu in the place of tanh.
- BertForMultipleChoice: the same with one number per text, and a softmax over the texts of an example.
- BertForPreTraining, AlbertForPreTraining and MobileBertForPreTraining: the mean over the tokens to tell plus the mean over the
  pairs, whose numbers are made of the pooled vector.
- BertForQuestionAnswering has no pooler; the loss is the mean of those of first and last token. transformers takes its
  softmax over padding, too; here it is over the tokens that are there, so that a loss does not depend on what else is in the
  batch.
"""

import copy
import pathlib
import shutil

import torch
import transformers
from safetensors.torch import save

import bert
import fixture

FOLDER = fixture.FOLDER.parents[3] / "lathe-train/tests/it/fixtures/encoders"
LENGTHS = [9, 6, 9, 4]
LABELS = {"id2label": {0: "low", 1: "middle", 2: "high"}, "label2id": {"low": 0, "middle": 1, "high": 2}}
NUMBER = {"num_labels": 1, "problem_type": "regression"}

# Cases of other families than BERT are called by them: roberta_classify.
TASKS = {
    "classify": ("ForSequenceClassification", LABELS),
    "regress": ("ForSequenceClassification", NUMBER),
    "choose": ("ForMultipleChoice", {}),
    "span": ("ForQuestionAnswering", {}),
    "embed": ("Model", {}),
    "pretraining": ("ForPreTraining", {}),
}
CASES = {
    "bert": ["classify", "regress", "choose", "span", "embed", "pretraining"],
    "roberta": ["classify", "regress", "choose", "span"],
    # No choose: relu gives biases gradients of nothing but rounding there, and the layers are those of regress.
    "distilbert": ["classify", "regress", "span", "embed"],
    "albert": ["classify", "choose", "span", "embed", "pretraining"],
    "mpnet": ["classify", "choose", "span", "embed"],
    "mobilebert": ["classify", "choose", "span", "embed", "pretraining"],
}


def build(family, task):
    kind, extra = TASKS[task]
    more = {"d_embed": 8, "shared": "all"} if family == "albert" else {}
    spec = bert.mobile(head="none") if family == "mobilebert" else bert.spec(2, head="none", backbone=family, **more)
    config = bert.config(spec)
    config.update(extra)
    prefix = type(config).__name__.removesuffix("Config")
    return spec, getattr(transformers, prefix + kind)(config)


def inputs(spec, random, padded):
    shape = (len(LENGTHS), max(LENGTHS))
    places = torch.arange(shape[1]).expand(shape)
    mask = (places < torch.tensor(LENGTHS)[:, None]) | (not padded)
    ids = torch.randint(1, 29, shape, generator=random)
    if spec["backbone"] in bert.UNUSED_ROWS:
        ids = ids.clamp(min=2)
    second = (places >= torch.randint(2, 4, (shape[0], 1), generator=random)) & mask
    out = {"ids": ids * mask, "mask": mask.long()}
    return out | ({"segments": second.long()} if spec.get("segments", 0) > 1 else {})


def targets(task, mask, random):
    if task == "pretraining":
        chosen = (mask > 0) & (torch.rand(mask.shape, generator=random) < 0.35)
        chosen[:, 0] = False  # CLS
        ids = torch.randint(1, 29, mask.shape, generator=random)
        return {"targets": torch.where(chosen, ids, bert.NONE), "pairs": torch.tensor([1, 0, 0, 1])}
    wanted = {
        "classify": torch.tensor([2, 0, 1, 2]),
        "regress": torch.tensor([0.5, 3.0, -1.0, 2.25]),
        "choose": torch.tensor([1, 0]),
        "span": torch.tensor([[3, 5], [0, 0], [8, 8], [2, 3]]),
        "embed": torch.tensor([0.75, 0.125]),
    }
    return {"targets": wanted[task]}


def compute(task, model, given):
    arguments = bert.arguments(model, given)
    wanted = given["targets"]
    if task == "choose":
        arguments = {name: tensor.reshape(2, 2, -1) for name, tensor in arguments.items()}
    if task == "embed":
        # As sentence-transformers has it: the mean over tokens, of length 1; the squared error of cosines.
        hidden, mask = model(**arguments).last_hidden_state, given["mask"][..., None].float()
        vectors = torch.nn.functional.normalize((hidden * mask).sum(1) / mask.sum(1), dim=-1)
        cosines = (vectors[0::2] * vectors[1::2]).sum(-1)
        return (cosines - wanted).square().mean(), {"logits": vectors}
    if task == "pretraining":
        albert = model.config.model_type == "albert"
        arguments["sentence_order_label" if albert else "next_sentence_label"] = given["pairs"]
        out = model(**arguments, labels=wanted)
        pairs = out.sop_logits if albert else out.seq_relationship_logits
        return out.loss, {"logits": pairs, "token_logits": out.prediction_logits}
    if task == "span":
        out = model(**arguments)
        logits = torch.stack([out.start_logits, out.end_logits], -1)
        real = logits.masked_fill(given["mask"][..., None] == 0, float("-inf"))
        loss = torch.nn.functional.cross_entropy
        return 0.5 * (loss(real[..., 0], wanted[:, 0]) + loss(real[..., 1], wanted[:, 1])), {"logits": logits}
    out = model(**arguments, labels=wanted)
    return out.loss, {"logits": out.logits}


def adamw_losses(task, model, given):
    is_plain = lambda name, p: name.endswith("bias") or p.dim() == 1
    plain = [p for name, p in model.named_parameters() if is_plain(name, p)]
    decayed = [p for name, p in model.named_parameters() if not is_plain(name, p)]
    groups = [{"params": decayed, "weight_decay": 0.01}, {"params": plain, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=1e-2, betas=(0.9, 0.999), eps=1e-8)
    losses = []
    for _ in range(fixture.STEPS):
        optimizer.zero_grad()
        loss, _ = compute(task, model, given)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses)


def draw(family, task, case):
    """Weights and inputs whose ten steps are the same in f64: Adam divides by the size of gradients, and where one is nothing but
    rounding its steps are, too."""
    for attempt in range(10):
        random = fixture.generator(f"encoders {case}" + (f" {attempt}" if attempt else ""))
        spec, model = build(family, task)
        model.eval()
        fixture.reinitialise(model, random)
        bert.no_padding_vector(model)
        # The output layer for tokens would move the vector that MobileBERT has beside padding.
        given = inputs(spec, random, (family, task) != ("mobilebert", "pretraining"))
        given |= targets(task, given["mask"], random)
        steps = adamw_losses(task, copy.deepcopy(model), given)
        exact = adamw_losses(task, copy.deepcopy(model).double(), given)
        if ((steps - exact) / exact).abs().max() < 1e-4:
            return model, given, steps
    raise SystemExit(f"{case}: no weights whose steps are sure")


if __name__ == "__main__":
    for family, task in [(family, task) for family, tasks in CASES.items() for task in tasks]:
        case = task if family == "bert" else f"{family}_{task}"
        model, given, steps = draw(family, task, case)
        folder = FOLDER / case
        shutil.rmtree(folder, ignore_errors=True)
        model.save_pretrained(folder)
        loss, outputs = compute(task, model, given)
        loss.backward()
        tensors = {**given, **outputs, "loss": loss.reshape(1), "adamw_losses": steps}
        # The pooler of a model without output layer takes no part in embeddings.
        grads = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
        tensors.update({f"grad.{name}": grad for name, grad in grads.items()})
        tensors = {name: tensor.detach().clone().contiguous() for name, tensor in tensors.items()}
        pathlib.Path(folder / "expected.safetensors").write_bytes(fixture.stable(save(tensors, {"case": case})))
        print(f"{case:20} loss {loss.item():.6f}, {len(grads)} gradients, {steps[-1].item():.6f} after ten steps")
