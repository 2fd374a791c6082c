"""What GPT2TokenizerFast of transformers makes of odd strings, with a small vocabulary that is trained here.

Writes into crates/lathe-text/tests/it/fixtures/tokenizer:
  vocab.json, merges.txt  at most 600 tokens and <|endoftext|>, in GPT-2's two files
  cases.json              [[text, [id, ...]], ...]
"""

import json
import pathlib
import random

from tokenizers import ByteLevelBPETokenizer
from transformers import GPT2TokenizerFast

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "crates/lathe-text/tests/it/fixtures/tokenizer"
END = "<|endoftext|>"

TEXT = """The quick brown fox jumps over the lazy dog, and the dog doesn't mind: it's lazy. They've 1234 foxes in 1999.
Lorem ipsum dolor sit amet, consectetur adipiscing elit, sed do eiusmod tempor incididunt ut labore et dolore magna.
  def token(self, index):\n      return self.tokens[index] if index < len(self.tokens) else None\n
Größe, naïve café, señor; Ångström; Привет, мир, это проверка; γειά σου κόσμε; 你好，世界。 今日は世界 안녕하세요 🙂🙂👍🏽.
One two three four five six seven eight nine ten, and then the other one, with another thing there and that.
"""

# What patterns and borders of pieces stumble over.
PARTS = [
    "a", "the", " the", "The", "dog's", "don't", "I'll", "we've", "I'm", "they're", "he'd", "'S", "''", "'", "\"",
    " ", "  ", "   ", "\n", "\n\n", " \n ", "\t", "\t\t", "\r\n", "\u00a0", "\u2003", "\u3000", "\u200b", "\u200d", "\x00", "\x7f", "\x85",
    "0", "12", "1999", "½", "²", "Ⅷ", "٣", "५", "3.14", "x²", "a1b2",
    "é", "e\u0301", "ß", "Å", "привет", "κόσμε", "你好", "世界。", "한국어", "日本語", "ไทย", "नमस्ते", "עברית", "\u202eabc",
    "🙂", "👍🏽", "👨‍👩‍👧", "🏳️‍🌈", "\ufeff", "\ufffd", "\ufffe", "𝔘𝔫𝔦", "\U0010ffff", "ﬁ", "ª", "ʰ", "\u0345", "\u24d0", "\u16ee",
    "...", "?!", "--", "—", "://", "@x.y", "#1", "$5", "%", "_", "__init__", "{}", "<unk>", "<|endoftext|>", "<|endoftext", "|>",
]


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    trained = ByteLevelBPETokenizer()
    trained.train_from_iterator([TEXT] * 4, vocab_size=600, min_frequency=2, special_tokens=[], show_progress=False)
    vocab = trained.get_vocab()
    vocab[END] = len(vocab)
    (FOLDER / "vocab.json").write_text(json.dumps(dict(sorted(vocab.items(), key=lambda item: item[1]))) + "\n")
    trained.save_model(str(FOLDER), "tmp")
    (FOLDER / "tmp-vocab.json").unlink()
    (FOLDER / "tmp-merges.txt").rename(FOLDER / "merges.txt")

    lines = (FOLDER / "merges.txt").read_text().split("\n")[1:]
    tokenizer = GPT2TokenizerFast(vocab=vocab, merges=[tuple(line.split(" ")) for line in lines if line])
    random.seed(0)
    texts = ["", *PARTS, TEXT]
    texts += ["".join(random.choices(PARTS, k=random.randint(2, 12))) for _ in range(300)]
    cases = [[text, tokenizer(text)["input_ids"]] for text in texts]
    assert all(tokenizer.decode(ids, clean_up_tokenization_spaces=False) == text for text, ids in cases)
    lines = ",\n".join(json.dumps(case) for case in cases)
    (FOLDER / "cases.json").write_text(f"[\n{lines}\n]\n")
    print(f"{len(cases)} texts, {len(vocab)} tokens")


main()
