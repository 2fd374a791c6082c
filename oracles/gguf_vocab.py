"""Two small vocabularies for GGUF files, trained here: pieces with scores as Llama's, and merges of bytes as GPT-2's."""

import io
import json

import sentencepiece
from tokenizers import ByteLevelBPETokenizer

TEXT = """The quick brown fox jumps over the lazy dog, and the dog doesn't mind: it's lazy. They've 1234 foxes in 1999.
Once upon a time there was a little girl who lived in the forest with her mother and her grandmother.
Lorem ipsum dolor sit amet, consectetur adipiscing elit, sed do eiusmod tempor incididunt ut labore et dolore magna.
  def token(self, index):\n      return self.tokens[index] if index < len(self.tokens) else None\n
Größe, naïve café, señor; Ångström; Привет, мир, это проверка; γειά σου κόσμε; 你好，世界。 今日は世界 안녕하세요 🙂🙂👍🏽.
One two three four five six seven eight nine ten, and then the other one, with another thing there and that.
I'll say THE END; HE'S gone, we'd think 12,345.67 is more than 89 - isn't it? if x >= 10 && y != 20 { return x+y; }
"""

# What patterns and borders of pieces stumble over.
PARTS = [
    "a", "the", " the", "The", "THE", "dog's", "don't", "I'll", "WE'VE", "I'm", "they're", "he'd", "'S", "''", "'", "\"",
    " ", "  ", "   ", "     ", "\n", "\n\n", " \n ", "\t", "\t\t", "\r\n", "\u00a0", "\u2003", "\u3000", "\u200b", "\x7f", "\x85",
    "0", "12", "1999", "123456", "½", "²", "Ⅷ", "٣", "५", "3.14", "x²", "a1b2", "1,000",
    "é", "e\u0301", "ß", "Å", "привет", "κόσμε", "你好", "世界。", "한국어", "日本語", "ไทย", "नमस्ते", "עברית",
    "🙂", "👍🏽", "👨‍👩‍👧", "\ufeff", "\ufffd", "𝔘𝔫𝔦", "ﬁ", "ª", "ʰ",
    "...", "?!", "--", "—", "://", "@x.y", "#1", "$5", "%", "_", "__init__", "{}", "x+y", "<=>", "a|b", "`c`", "^~",
]  # fmt: skip

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6


def pieces(size):
    """A SentencePiece model of BPE with scores, and bytes for what it does not have."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXT.split("\n") * 8), model_writer=model, model_type="bpe", vocab_size=size,
        byte_fallback=True, character_coverage=0.98, normalization_rule_name="identity", remove_extra_whitespaces=False,
        split_digits=True, allow_whitespace_only_pieces=True, num_threads=1, minloglevel=2,
    )  # fmt: skip
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


def add_pieces(writer, model):
    """As llama.cpp's converter writes it."""
    count = model.vocab_size()

    def kind(i):
        tests = [(model.is_unknown, UNKNOWN), (model.is_control, CONTROL), (model.is_unused, UNUSED), (model.is_byte, BYTE)]
        return next((kind for test, kind in tests if test(i)), NORMAL)

    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([model.id_to_piece(i) for i in range(count)])
    writer.add_token_scores([model.get_score(i) for i in range(count)])
    writer.add_token_types([kind(i) for i in range(count)])
    writer.add_bos_token_id(model.bos_id())
    writer.add_eos_token_id(model.eos_id())
    writer.add_unk_token_id(model.unk_id())
    writer.add_add_bos_token(True)
    writer.add_add_eos_token(False)


def merges(size):
    """Tokens in their order, merges in theirs; special tokens come after them."""
    trained = ByteLevelBPETokenizer()
    trained.train_from_iterator([TEXT] * 4, vocab_size=size, min_frequency=2, special_tokens=[], show_progress=False)
    tokens = [token for token, _ in sorted(trained.get_vocab().items(), key=lambda item: item[1])]
    found = json.loads(trained.to_str())["model"]["merges"]
    return tokens, [" ".join(pair) if isinstance(pair, list) else pair for pair in found]


def add_merges(writer, tokens, merges, specials, pre):
    """Special tokens: `<|endoftext|>` ends and begins, the others are control tokens."""
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list([*tokens, *specials])
    writer.add_token_types([NORMAL] * len(tokens) + [CONTROL] * len(specials))
    writer.add_token_merges(merges)
    end = len(tokens) + specials.index("<|endoftext|>")
    writer.add_bos_token_id(end)
    writer.add_eos_token_id(end)
