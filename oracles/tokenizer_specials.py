"""What the tokenizers library makes of texts and pairs with special tokens, cut to a length and padded.

Four small tokenizers are made here, put together as those of BERT, Llama, RoBERTa and T5. Writes, for each, into
crates/lathe-text/tests/it/fixtures/specials/NAME:
  tokenizer.json          and, by PreTrainedTokenizerFast of transformers, tokenizer_config.json
  special_tokens_map.json for BERT, in the older form
  cases.json              {"specials": {role: id}, "cases": [{a, b, max_len, ids, segments, texts}],
                           "batch": {texts, ids, mask, segments}}
"""

import collections
import json
import pathlib
import re
import shutil

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "crates/lathe-text/tests/it/fixtures/specials"
ROLES = ["bos", "eos", "pad", "unk", "cls", "sep", "mask"]

TEXT = """The quick brown fox jumps over the lazy dog, and the dog does not mind: it is lazy.
One day a little girl saw a big red ball in the sky. She was happy and ran to her mum. "Look, the sun!" she said.
They played all day in the park, and then they went home. The end of the story is the best part of the story.
"""

TEXTS = [
    "", " ", "the", "The lazy dog.", "  One day,\n\n the fox  ran ", "naïve café 🙂 日本", "she said [MASK] to <s> the </s> dog",
    "The end of the story is the best part of the story, and then they went home to the big red ball.",
]
PAIRS = [(0, 0), (0, 3), (3, 0), (2, 3), (3, 7), (7, 3), (7, 7), (4, 5), (5, 6)]
LENGTHS = [None, 5, 6, 8, 13, 64]


def put_together(model, trainer=None, **parts):
    tokenizer = Tokenizer(model)
    for name, part in parts.items():
        setattr(tokenizer, name, part)
    if trainer:
        tokenizer.train_from_iterator([TEXT] * 4, trainer)
    return tokenizer


def counted(text, least):
    """Words, the most frequent first, and characters: the trainers of WordPiece and Unigram differ from run to run."""
    words = collections.Counter(re.findall(r"\w+|[^\w\s]", text))
    words = sorted((word for word in words if words[word] >= least), key=lambda word: (-words[word], word))
    return words, sorted(set(text) - set(" \n"))


def bert():
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words, characters = counted(TEXT.lower(), 2)
    pieces = words + characters + [f"##{c}" for c in characters if c.isalpha()] + ["##ed", "##ing", "##le", "##ay"]
    vocab = {token: i for i, token in enumerate(dict.fromkeys(specials + pieces))}
    tokenizer = put_together(
        models.WordPiece(vocab, unk_token="[UNK]"),
        normalizer=normalizers.BertNormalizer(),
        pre_tokenizer=pre_tokenizers.BertPreTokenizer(),
        decoder=decoders.WordPiece(),
    )
    tokenizer.add_special_tokens(specials)
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    names = dict(pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]", mask_token="[MASK]")
    return tokenizer, names


def llama():
    specials = ["<unk>", "<s>", "</s>"]
    tokens = specials + [f"<0x{byte:02X}>" for byte in range(256)]
    tokenizer = put_together(
        models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True),
        trainers.BpeTrainer(vocab_size=340, special_tokens=tokens, show_progress=False, max_token_length=8),
        normalizer=normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]),
        pre_tokenizer=pre_tokenizers.Split("▁", "merged_with_next"),
    )
    # Bytes are tokens of the vocabulary, not of the text; and Llama cuts nothing beforehand.
    file = json.loads(tokenizer.to_str())
    file["added_tokens"] = [token for token in file["added_tokens"] if token["content"] in specials]
    file["pre_tokenizer"] = None
    tokenizer = Tokenizer.from_str(json.dumps(file))
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s>:1 $B:1", special_tokens=[("<s>", 1)]
    )
    return tokenizer, dict(bos_token="<s>", eos_token="</s>", unk_token="<unk>")


def roberta():
    specials = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer = put_together(
        models.BPE(),
        trainers.BpeTrainer(vocab_size=300, special_tokens=specials, initial_alphabet=alphabet, show_progress=False),
        pre_tokenizer=pre_tokenizers.ByteLevel(add_prefix_space=False),
        decoder=decoders.ByteLevel(),
    )
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    names = dict(bos_token="<s>", eos_token="</s>", pad_token="<pad>", unk_token="<unk>", cls_token="<s>")
    return tokenizer, names | dict(sep_token="</s>", mask_token=AddedToken("<mask>", lstrip=True, special=True))


def t5():
    specials = ["<pad>", "</s>", "<unk>"]
    words, characters = counted(TEXT, 2)
    pieces = dict.fromkeys(["▁"] + [f"▁{word}" for word in words] + ["ed", "le", "ay", "ing"] + characters)
    vocab = [(token, 0.0) for token in specials] + [(token, -2 - i / 16) for i, token in enumerate(pieces)]
    tokenizer = put_together(
        models.Unigram(vocab, unk_id=2),
        normalizer=normalizers.NFKC(),
        pre_tokenizer=pre_tokenizers.Metaspace(),
        decoder=decoders.Metaspace(),
    )
    tokenizer.add_special_tokens(specials)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 1)]
    )
    return tokenizer, dict(eos_token="</s>", pad_token="<pad>", unk_token="<unk>")


def case(tokenizer, a, b, max_len):
    if max_len is None:
        tokenizer.no_truncation()
    else:
        tokenizer.enable_truncation(max_len, strategy="longest_first")
    tokenizer.no_padding()
    encoding = tokenizer.encode(a, b)
    return {
        "a": a,
        "b": b,
        "max_len": max_len,
        "ids": encoding.ids,
        "segments": encoding.type_ids,
        "texts": encoding.sequence_ids,
    }


def main():
    shutil.rmtree(FOLDER, ignore_errors=True)
    for make in [bert, llama, roberta, t5]:
        tokenizer, names = make()
        folder = FOLDER / make.__name__
        folder.mkdir(parents=True)
        fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names)
        fast.save_pretrained(folder)
        if make is bert:
            (folder / "special_tokens_map.json").write_text(json.dumps(names) + "\n")
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        cases = [case(tokenizer, text, None, length) for text in TEXTS for length in LENGTHS]
        cases += [case(tokenizer, TEXTS[a], TEXTS[b], length) for a, b in PAIRS for length in LENGTHS]
        tokenizer.no_truncation()
        pad = fast.pad_token_id or 0
        tokenizer.enable_padding(pad_id=pad, pad_token=fast.pad_token or "")
        texts = [["the lazy dog", None], ["One day", "she was happy"], ["", None]]
        batch = tokenizer.encode_batch([a if b is None else (a, b) for a, b in texts])
        result = {
            "specials": {role: getattr(fast, f"{role}_token_id") for role in ROLES},
            "cases": cases,
            "batch": {
                "texts": texts,
                "ids": [row.ids for row in batch],
                "mask": [row.attention_mask for row in batch],
                "segments": [row.type_ids for row in batch],
            },
        }
        lines = ",\n".join(json.dumps(one) for one in cases)
        text = json.dumps(result | {"cases": ["CASES"]}).replace('["CASES"]', f"[\n{lines}\n]")
        (folder / "cases.json").write_text(text + "\n")
        for path in folder.iterdir():
            if path.name not in ["tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "cases.json"]:
                path.unlink()
        print(f"{make.__name__}: {tokenizer.get_vocab_size()} tokens, {len(cases)} cases, {result['specials']}")


main()
