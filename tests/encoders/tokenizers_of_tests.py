"""Small tokenizers of three kinds, as ``tokenizer.json`` has them. No torch."""

from __future__ import annotations

import string

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

TEXT = "the a of red planet mars is known as which sky blue why does rain fall quick brown fox jumps over lazy dog"
WORDS = TEXT.split()
LETTERS = list(string.ascii_lowercase + string.digits)


def wordpiece(*extra: str) -> Tokenizer:
    """BERT's: lower case, [CLS] … [SEP]; `extra` are further words of the vocabulary."""
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[unused0]", "[unused1]"]
    words = [*specials, *WORDS, *LETTERS, *("##" + x for x in LETTERS), *string.punctuation, *extra]
    vocabulary = {word: i for i, word in enumerate(dict.fromkeys(words))}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", vocabulary["[CLS]"]), ("[SEP]", vocabulary["[SEP]"])],
    )
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in specials[:5]])
    return tokenizer


def unigram() -> Tokenizer:
    """T5's: SentencePiece pieces that carry the space before a word, and </s> at the end."""
    pieces = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁", -2.0)]
    pieces += [("▁" + word, -3.0) for word in WORDS]
    pieces += [(letter, -8.0) for letter in [*LETTERS, *string.ascii_uppercase, *string.punctuation]]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=2, byte_fallback=False))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")
    tokenizer.decoder = decoders.Metaspace(replacement="▁", prepend_scheme="always")
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in ("<pad>", "</s>", "<unk>")])
    return tokenizer


def byte_level() -> Tokenizer:
    """ModernBERT's: bytes, [CLS] … [SEP]."""
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: i for i, token in enumerate([*specials, *alphabet])}
    tokenizer = Tokenizer(models.BPE(vocabulary, [], unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=True)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in specials])
    return tokenizer
