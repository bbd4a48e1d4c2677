"""A pruned vocabulary reads texts as the whole one does, in other numbers; what cannot be pruned is refused."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, processors

from encoders.tokenizers_of_tests import byte_level, wordpiece
from weft.encoders.pruning import essential, most_frequent, prune_tokenizer
from weft.errors import WeftError

WORDS = ["moon", "mo", "on", "der", "Mond", "um", "月", "月球", "球", "луна", "лу", "на"]
LETTERS = sorted(set("".join(WORDS)) | set("abcdefghijklmnopqrstuvwxyz,.?"))


def multilingual() -> Tokenizer:
    """In the layout of XLM-R's: special tokens at both ends of the vocabulary, <s> text </s>."""
    pieces = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁", -3.0)]
    pieces += [(piece, -5.0 - 0.01 * i) for i, piece in enumerate(["▁" + word for word in WORDS] + WORDS)]
    pieces += [(letter, -9.0) for letter in LETTERS if letter not in WORDS] + [("<mask>", 0.0)]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=3, byte_fallback=False))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")
    ends = [("<s>", 0), ("</s>", 2)]
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=ends)
    special = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in special])
    return tokenizer


WHOLE = multilingual()
MULTI = [i for i in range(WHOLE.get_vocab_size()) if i not in essential(WHOLE)]
TEXTS = st.lists(st.sampled_from([*WORDS, "月球月", "moonон", "ab", "ß", "?", ","]), max_size=8).map(" ".join)


@given(TEXTS, st.sets(st.sampled_from(MULTI)))
def test_a_text_whose_pieces_all_stay_has_the_same_pieces(text, keep):
    pruned, ids = prune_tokenizer(WHOLE, keep)
    before, after = WHOLE.encode(text), pruned.encode(text)
    if set(before.ids) <= set(ids.tolist()):
        assert [int(ids[i]) for i in after.ids] == before.ids
        assert after.offsets == before.offsets
    assert (3 in before.ids) == (int(np.flatnonzero(ids == 3)[0]) in after.ids)  # nothing becomes unknown
    assert [int(ids[i]) for i in (after.ids[0], after.ids[-1])] == [0, 2]
    # The best segmentation into the pieces that stay: what a tokenizer made of them alone gives.
    vocabulary = json.loads(WHOLE.to_str())["model"]["vocab"]
    again = Tokenizer(models.Unigram([tuple(vocabulary[i]) for i in ids], unk_id=3, byte_fallback=False))
    again.pre_tokenizer = WHOLE.pre_tokenizer
    assert after.tokens[1:-1] == again.encode(text).tokens


def test_the_most_frequent_stay():
    used = {MULTI[5]: 3.0, MULTI[2]: 7.0}
    least = len(essential(WHOLE))
    assert most_frequent(WHOLE, 1) == essential(WHOLE)
    assert most_frequent(WHOLE, least + 1, used) - essential(WHOLE) == {MULTI[2]}
    assert most_frequent(WHOLE, least + 2) - essential(WHOLE) == set(MULTI[:2])  # by its own probabilities
    kept = most_frequent(WHOLE, least + 3, used) - essential(WHOLE)
    assert kept == {MULTI[5], MULTI[2], MULTI[0]}
    assert most_frequent(WHOLE, 10**6) == set(range(WHOLE.get_vocab_size()))


def test_what_cannot_be_pruned_is_told():
    for other in (wordpiece(), byte_level()):
        with pytest.raises(WeftError, match="only unigram"):
            prune_tokenizer(other, [])
    with pytest.raises(WeftError, match="keep"):
        prune_tokenizer(WHOLE, [WHOLE.get_vocab_size()])
    with pytest.raises(WeftError, match="counts"):
        most_frequent(WHOLE, 5, {0: float("nan")})
    more = multilingual()
    more.add_tokens(["[Q]"])
    with pytest.raises(WeftError, match=r"'\[Q\]'"):
        prune_tokenizer(more, [])
    no_unknown = Tokenizer(models.Unigram([("a", -1.0)], unk_id=None))
    with pytest.raises(WeftError, match="unknown token"):
        most_frequent(no_unknown, 1)


@pytest.mark.torch
def test_a_pruned_model_gives_the_same_vectors_from_half_bytes_too(tmp_path):
    """A tiny model in multilingual-e5-small's layout: pruned, then exported with an embedding table of 4 bits."""
    torch = pytest.importorskip("torch", reason="needs the torch extra: pip install 'weft-search[torch]'")
    pytest.importorskip("sentence_transformers", reason="needs the torch extra: pip install 'weft-search[torch]'")
    from transformers import BertConfig, BertModel

    from weft import Encoder
    from weft.encoders.export import export
    from weft.encoders.pruning import prune_checkpoint

    torch.manual_seed(3)
    shape = {"hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    size = WHOLE.get_vocab_size() + 5  # rows that no token has, as e5's
    BertModel(BertConfig(vocab_size=size, pad_token_id=1, **shape)).save_pretrained(tmp_path / "whole")
    WHOLE.save(str(tmp_path / "whole" / "tokenizer.json"))
    named = {"bos": "<s>", "eos": "</s>", "unk": "<unk>", "sep": "</s>", "pad": "<pad>", "cls": "<s>", "mask": "<mask>"}
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 64}
    settings |= {f"{name}_token": token for name, token in named.items()}
    (tmp_path / "whole" / "tokenizer_config.json").write_text(json.dumps(settings))
    ids = prune_checkpoint(tmp_path / "whole", tmp_path / "pruned", MULTI[::2])
    assert len(ids) < WHOLE.get_vocab_size()
    with pytest.raises(WeftError, match="target"):
        prune_checkpoint(tmp_path / "whole", tmp_path / "pruned", MULTI[::2])
    whole, pruned = (Encoder.load(tmp_path / name, device="cpu") for name in ("whole", "pruned"))
    assert pruned.settings.pad_id == 1
    texts = [text for text in ("", "moon", "moon der", "月球", "a b, c?") if set(WHOLE.encode(text).ids) <= set(ids)]
    assert len(texts) >= 3
    before, after = whole.encode_document(texts), pruned.encode_document(texts)
    np.testing.assert_allclose(after.values, before.values, atol=1e-6)
    small = Encoder.load(export(pruned, tmp_path / "light", embedding_bits=4))
    bytes_ = Encoder.load(export(pruned, tmp_path / "light8"))
    found = small.encode_document(texts).values
    eight = bytes_.encode_document(texts).values
    cosine, eight = ((after.values * one).sum(axis=1) for one in (found, eight))
    assert 0.95 < cosine.min() < eight.min()  # near, and really fewer bits
    sizes = [(tmp_path / name / "model.onnx").stat().st_size for name in ("light", "light8")]
    assert sizes[0] != sizes[1]
    with pytest.raises(WeftError, match="embedding_bits"):
        export(pruned, tmp_path / "other", embedding_bits=5)
