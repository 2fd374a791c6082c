"""What llama.cpp makes of odd strings, with small vocabularies that are trained here. See README.md.

Writes into crates/lathe-text/tests/it/fixtures/gguf:
  pieces.gguf  pieces with scores, as Llama's; no tensors
  bytes.gguf   merges of bytes, as GPT-2's
  cases.json   {"pieces": [[text, [id, ...]], ...], "bytes": {pre: the same, ...}}: of bytes.gguf with that pre-tokenizer

Ids are without what stands before and after a text. Those of pieces are SentencePiece's too, which it asserts.
"""

import json
import pathlib
import random
import shutil
import tempfile

import gguf
import gguf_vocab
from llama_cpp import Llama

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "crates/lathe-text/tests/it/fixtures/gguf"
PRES = ["default", "falcon", "gpt-2", "smollm", "llama-bpe", "dbrx", "qwen2"]
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def write(path, add):
    writer = gguf.GGUFWriter(path, "llama")
    # What llama.cpp needs to load a vocabulary alone.
    writer.add_context_length(64)
    writer.add_embedding_length(32)
    writer.add_block_count(1)
    writer.add_feed_forward_length(32)
    writer.add_head_count(1)
    writer.add_layer_norm_rms_eps(1e-5)
    add(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


def texts():
    rng = random.Random(0)
    made = ["".join(rng.choices(gguf_vocab.PARTS, k=rng.randint(2, 12))) for _ in range(150)]
    return [*gguf_vocab.PARTS, gguf_vocab.TEXT, *made]


def tokens(path, texts, special=False):
    model = Llama(str(path), vocab_only=True, verbose=False)
    return [model.tokenize(text.encode(), add_bos=False, special=special) for text in texts]


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    cases = {"bytes": {}}
    model = gguf_vocab.pieces(520)
    path = FOLDER / "pieces.gguf"
    write(path, lambda writer: gguf_vocab.add_pieces(writer, model))
    found = tokens(path, texts())
    assert found == [model.encode(text) for text in texts()]
    cases["pieces"] = list(zip(texts(), found, strict=True))

    vocab, merges = gguf_vocab.merges(600)

    def add(writer, pre):
        gguf_vocab.add_merges(writer, vocab, merges, SPECIALS, pre)
        end = len(vocab) + SPECIALS.index("<|im_end|>")
        writer.add_eot_token_id(end)
        writer.add_chat_template("{{ messages }}")

    with tempfile.TemporaryDirectory() as aside:
        for pre in PRES:
            path = pathlib.Path(aside) / f"{pre}.gguf"
            write(path, lambda writer: add(writer, pre))
            special = [f"{a}The dog{b} 12" for a in SPECIALS for b in SPECIALS]
            found = list(zip(texts(), tokens(path, texts()), strict=True))
            cases["bytes"][pre] = found + list(zip(special, tokens(path, special, special=True), strict=True))
        shutil.copy(pathlib.Path(aside) / "gpt-2.gguf", FOLDER / "bytes.gguf")
    # Cases that all have in common are kept once.
    first = dict(cases["bytes"]["gpt-2"])
    for pre in PRES:
        if pre != "gpt-2":
            cases["bytes"][pre] = [[text, ids] for text, ids in cases["bytes"][pre] if ids != first[text]]
        print(pre, len(cases["bytes"][pre]))
    (FOLDER / "cases.json").write_text(json.dumps(cases, separators=(",", ":")) + "\n")


main()
