"""Small random models as GGUF files, and what transformers computes from their weights. See README.md.

Writes into crates/lathe-model/tests/it/fixtures/gguf:
  <case>.gguf, <case>.safetensors  a model; ids [1, T] and logits [1, T, V] in f32
  types.gguf, types.safetensors    one tensor of each type; its values in f32, by the gguf package

Tensors are permuted and transposed as llama.cpp's converter does it; names, rows and values come back by transformers' own
reader of GGUF files, but for the stretched rotary positions, which it leaves out. Weights of the types named `_K`, which
the gguf package reads and does not write, are random bits.
"""

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType as T
from safetensors.torch import save
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM
from transformers import Qwen3Config, Qwen3ForCausalLM
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

import fixture
import gguf_vocab

FOLDER = fixture.FOLDER / "gguf"
K_TYPES = {T.Q4_K: [0, 2], T.Q5_K: [0, 2], T.Q6_K: [208]}  # where blocks have their scales


def quantised(values, kind, random):
    """The bytes of values in a type, or of random ones."""
    if kind not in K_TYPES:
        return gguf.quants.quantize(values, kind)
    values_of, bytes_of = gguf.constants.GGML_QUANT_SIZES[kind]
    blocks = random.integers(0, 256, (values.shape[0], values.shape[1] // values_of, bytes_of), dtype=np.uint8)
    for place in K_TYPES[kind]:
        scale = (random.random(blocks.shape[:2]) * 4e-4 + 1e-4).astype(np.float16)[..., None]
        blocks[..., place : place + 2] = scale.view(np.uint8)
    return blocks.reshape(values.shape[0], -1)


class Model:
    """A model to be written: keys, then tensors of random values."""

    def __init__(self, case, architecture):
        self.random = np.random.default_rng(sum(case.encode()))
        self.path = FOLDER / f"{case}.gguf"
        self.writer = gguf.GGUFWriter(self.path, architecture)

    def frame(self, d, heads, inner, layers, max_len):
        writer = self.writer
        writer.add_embedding_length(d)
        writer.add_head_count(heads)
        writer.add_feed_forward_length(inner)
        writer.add_block_count(layers)
        writer.add_context_length(max_len)

    def tensor(self, name, shape, kind=T.F32, mean=0.0, deviation=0.08):
        values = (mean + deviation * self.random.standard_normal(shape)).astype(np.float32)
        self.writer.add_tensor(name, quantised(values, kind, self.random), raw_dtype=kind)

    def norm(self, name, d, bias=False):
        self.tensor(f"{name}.weight", [d], mean=1.0, deviation=0.1)
        if bias:
            self.tensor(f"{name}.bias", [d], deviation=0.1)

    def write(self):
        self.writer.write_header_to_file()
        self.writer.write_kv_data_to_file()
        self.writer.write_tensors_to_file()
        self.writer.close()


def llama(case, architecture, vocab, heads, kv_heads, width, types, tied, inner=256, d=32, bias=False, norms=False,
          max_len=64, eps=1e-5, theta=10000.0, factors=None):  # fmt: skip
    """`types`: a list of names for each layer, in the order of the tensors below. A vocabulary is a size or a model."""
    model = Model(case, architecture)
    model.frame(d, heads, inner, len(types), max_len)
    model.writer.add_head_count_kv(kv_heads)
    model.writer.add_layer_norm_rms_eps(eps)
    model.writer.add_rope_freq_base(theta)
    model.writer.add_key_length(width)
    model.writer.add_value_length(width)
    model.writer.add_rope_dimension_count(width)
    size = vocab if isinstance(vocab, int) else vocab.vocab_size()
    model.writer.add_vocab_size(size)
    if size != vocab:
        gguf_vocab.add_pieces(model.writer, vocab)
    model.tensor("token_embd.weight", [size, d], T.Q8_0)
    if factors is not None:
        model.writer.add_tensor("rope_freqs.weight", np.array(factors, dtype=np.float32))
    a, c = heads * width, kv_heads * width
    for i, kinds in enumerate(types):
        shapes = {
            "attn_q": [a, d], "attn_k": [c, d], "attn_v": [c, d], "attn_output": [d, a],
            "ffn_gate": [inner, d], "ffn_up": [inner, d], "ffn_down": [d, inner],
        }  # fmt: skip
        for (name, shape), kind in zip(shapes.items(), kinds.split(), strict=True):
            model.tensor(f"blk.{i}.{name}.weight", shape, T[kind], deviation=0.2)
        if bias:
            names = ["attn_q", "attn_k", "attn_v"] + ["attn_output"] * (architecture == "llama")
            [model.tensor(f"blk.{i}.{name}.bias", shapes[name][:1]) for name in names]
        if norms:
            [model.norm(f"blk.{i}.{name}", width) for name in ("attn_q_norm", "attn_k_norm")]
        model.norm(f"blk.{i}.attn_norm", d)
        model.norm(f"blk.{i}.ffn_norm", d)
    model.norm("output_norm", d)
    if not tied:
        model.tensor("output.weight", [size, d], T.Q4_1)
    model.write()

    configs = {
        "llama": (LlamaConfig, LlamaForCausalLM),
        "qwen2": (Qwen2Config, Qwen2ForCausalLM),
        "qwen3": (Qwen3Config, Qwen3ForCausalLM),
    }
    config_of, model_of = configs[architecture]
    extra = {} if architecture == "qwen2" else {"attention_bias": bias}
    config = config_of(
        vocab_size=size, hidden_size=d, intermediate_size=inner, num_hidden_layers=len(types), num_attention_heads=heads,
        num_key_value_heads=kv_heads, head_dim=width, max_position_embeddings=max_len, rms_norm_eps=eps,
        rope_parameters={"rope_type": "default", "rope_theta": theta}, tie_word_embeddings=tied, use_cache=False,
        attn_implementation="eager", **extra,
    )  # fmt: skip
    reference = model_of(config)
    if factors is not None:
        reference.model.rotary_emb.inv_freq /= torch.tensor(factors)
    expect(case, reference, config)


def gpt2(case, vocab, heads, types, d=32, max_len=48):
    model = Model(case, "gpt2")
    inner = 4 * d
    model.frame(d, heads, inner, len(types), max_len)
    model.writer.add_layer_norm_eps(1e-5)
    tokens, merges = vocab
    specials = ["<|endoftext|>"]
    gguf_vocab.add_merges(model.writer, tokens, merges, specials, "gpt-2")
    size = len(tokens) + len(specials)
    model.tensor("token_embd.weight", [size, d], T.Q5_1)
    model.tensor("position_embd.weight", [max_len, d])
    for i, kinds in enumerate(types):
        shapes = {"attn_qkv": [3 * d, d], "attn_output": [d, d], "ffn_up": [inner, d], "ffn_down": [d, inner]}
        for (name, shape), kind in zip(shapes.items(), kinds.split(), strict=True):
            model.tensor(f"blk.{i}.{name}.weight", shape, T[kind], deviation=0.2)
            model.tensor(f"blk.{i}.{name}.bias", shape[:1])
        model.norm(f"blk.{i}.attn_norm", d, bias=True)
        model.norm(f"blk.{i}.ffn_norm", d, bias=True)
    model.norm("output_norm", d, bias=True)
    model.write()
    config = GPT2Config(
        vocab_size=size, n_embd=d, n_layer=len(types), n_head=heads, n_positions=max_len, bos_token_id=size - 1,
        eos_token_id=size - 1, use_cache=False, attn_implementation="eager",
    )  # fmt: skip
    expect(case, GPT2LMHeadModel(config), config)


def expect(case, model, config):
    """Gives a model the weights of its file, as transformers reads them, and keeps its logits."""
    path = FOLDER / f"{case}.gguf"
    found = load_gguf_checkpoint(str(path), return_tensors=True, model_to_load=model)["tensors"]
    found.pop("rope_freqs.weight", None)
    missing = model.load_state_dict({name: torch.as_tensor(value) for name, value in found.items()}, strict=False)
    assert not missing.unexpected_keys, missing
    assert set(missing.missing_keys) <= {"lm_head.weight"}, missing
    model.tie_weights()
    model.eval()
    ids = torch.randint(0, config.vocab_size, (1, 11), generator=torch.Generator().manual_seed(len(case)))
    with torch.no_grad():
        logits = model(input_ids=ids).logits
    keep(case, {"ids": ids, "logits": logits})
    print(f"{case:14} {path.stat().st_size:6} bytes, logits to {logits.abs().max():.2f}")


def keep(case, tensors):
    tensors = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
    (FOLDER / f"{case}.safetensors").write_bytes(fixture.stable(save(tensors, {"source": f"gguf {VERSION}"})))


def types():
    model = Model("types", "none")
    kinds = [T.F32, T.F16, T.BF16, T.Q8_0, T.Q4_0, T.Q4_1, T.Q5_0, T.Q5_1, T.Q4_K, T.Q5_K, T.Q6_K]
    for kind in kinds:
        values = model.random.standard_normal((3, 256)).astype(np.float32)
        values[1] *= 1e-4  # whose scales are subnormal
        values[2] *= 100.0
        model.writer.add_tensor(kind.name, quantised(values, kind, model.random), raw_dtype=kind)
    model.write()
    found = gguf.GGUFReader(model.path).tensors
    keep("types", {t.name: torch.tensor(gguf.quants.dequantize(t.data, t.tensor_type).reshape(3, 256)) for t in found})
    print(f"types          {model.path.stat().st_size:6} bytes")


def llama3_factors(width, theta, factor, low, high, length):
    """As llama.cpp's converter computes them."""
    found = []
    for i in range(width // 2):
        wave = 2 * np.pi * theta ** (2 * i / width)
        if wave < length / high:
            found.append(1.0)
        elif wave > length / low:
            found.append(factor)
        else:
            smooth = (length / wave - low) / (high - low)
            found.append(1 / ((1 - smooth) / factor + smooth))
    return found


if __name__ == "__main__":
    from importlib.metadata import version

    VERSION = f"{version('gguf')}, transformers {version('transformers')}, torch {torch.__version__.split('+')[0]}"
    FOLDER.mkdir(parents=True, exist_ok=True)
    types()
    # queries, keys, values, output; gate, up, down
    llama("llama", "llama", gguf_vocab.pieces(400), 4, 2, 8, tied=True, types=[
        "Q4_0 Q4_1 Q5_0 Q5_1 Q5_0 Q4_0 Q4_K",
        "Q8_0 Q5_0 Q4_0 F32 Q4_1 Q5_1 Q5_K",
        "Q5_1 F16 BF16 Q8_0 Q8_0 Q4_0 Q6_K",
    ])  # fmt: skip
    llama("llama_untied", "llama", 96, 2, 1, 16, tied=False, inner=64, theta=50.0, bias=True,
          factors=llama3_factors(16, 50.0, 8.0, 1.0, 4.0, 48), types=["Q4_0 Q8_0 F32 F32 Q8_0 Q4_0 Q4_0"])  # fmt: skip
    llama("qwen2", "qwen2", 96, 4, 2, 8, tied=True, inner=64, bias=True, eps=1e-6, theta=1e6,
          types=["Q8_0 Q4_0 F16 BF16 Q5_0 Q5_1 Q4_1"])  # fmt: skip
    llama("qwen3", "qwen3", 96, 2, 1, 12, tied=False, inner=64, norms=True, eps=1e-6, theta=1e6,
          types=["Q8_0 Q4_0 F16 BF16 Q5_0 Q5_1 Q4_1"])  # fmt: skip
    gpt2("gpt2", gguf_vocab.merges(320), 4, types=["Q4_0 Q5_0 F16 Q8_0", "Q4_1 BF16 Q5_1 F32"])
