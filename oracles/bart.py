"""BartForConditionalGeneration as transformers computes it: a small folder, and what it gives for a batch. See README.md.

Written to examples/tests/fixtures/bart: the folder as `save_pretrained` writes it, and outputs.safetensors with

  source, source_mask    int64 [B, S], what the encoder reads; 1 a token and 0 padding
  ids, targets           int64 [B, T], what the decoder reads and what it is to tell
  logits                 [B, T, V]
  loss                   [1], mean negative log-likelihood of the targets
  grad.<name>            d loss / d weight
"""

import pathlib

import torch
from safetensors.torch import save_file
from transformers import BartConfig, BartForConditionalGeneration

import fixture

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "examples/tests/fixtures/bart"

if __name__ == "__main__":
    random = fixture.generator("bart")
    config = BartConfig(
        vocab_size=23, d_model=8, encoder_layers=2, decoder_layers=1, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=12, decoder_ffn_dim=12, max_position_embeddings=14, dropout=0.0,
        attn_implementation="eager", pad_token_id=1, bos_token_id=0, eos_token_id=2, decoder_start_token_id=2,
    )
    model = BartForConditionalGeneration(config).eval()
    fixture.reinitialise(model, random)
    source = torch.randint(3, 23, (2, 7), generator=random)
    mask = torch.ones((2, 7), dtype=torch.int64)
    mask[1, 5:] = 0
    ids = torch.randint(3, 23, (2, 5), generator=random)
    targets = torch.randint(3, 23, (2, 5), generator=random)
    out = model(input_ids=source, attention_mask=mask, decoder_input_ids=ids, use_cache=False)
    loss = torch.nn.functional.cross_entropy(out.logits.reshape(-1, 23), targets.reshape(-1))
    loss.backward()
    FOLDER.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(FOLDER)
    (FOLDER / "generation_config.json").unlink(missing_ok=True)
    tensors = {"source": source, "source_mask": mask, "ids": ids, "targets": targets,
               "logits": out.logits.detach(), "loss": loss.detach().reshape(1)}
    for name, parameter in model.named_parameters():
        tensors[f"grad.{name}"] = parameter.grad
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, FOLDER / "outputs.safetensors")
    print(f"loss {loss.item():.6f}, parameters {sum(p.numel() for p in model.parameters())}")
