"""The corpus index on disk: what goes in comes out, and no damaged byte is answered from."""

import json
import struct
import zlib

import numpy as np
import pytest

pytest.importorskip("pydivsufsort", reason="needs the generative extra: pip install 'weft-search[generative]'")

from weft.errors import CorruptIndexError, IndexExistsError, IndexFormatError, NotAnIndexError, StorageError
from weft.generative.corpus_index import FMIndex, NGramIndex, TokenTextIndex
from weft.storage.arrays import write_arrays

FORMS = [TokenTextIndex, FMIndex]
DOCUMENTS = [[1, 2, 3, 1, 2], [], [2, 2, 9], [400]]


def build(form):
    options = {"vocabulary": 500, "tokenizer": "abc", "breaks": [9], "allow_empty": True, "heads": 2}
    return form.build(DOCUMENTS, ["a", "б", "c", "d e"], **options)


@pytest.fixture(params=FORMS)
def saved(request, tmp_path):
    build(request.param).save(tmp_path / "corpus.tokens")
    return request.param, tmp_path / "corpus.tokens"


def answers(index):
    grams = [[1], [2], [1, 2], [2, 3], [2, 9], [400]]
    states = index.find(grams)
    return [
        *(array.tolist() for array in index.continuations(states)),
        *(array.tolist() for array in index.continuations(index.start(1))),
        *(array.tolist() for array in index.locate(states)),
        *(array.tolist() for array in index.read(range(4))),
        states.counts.tolist(),
    ]


def test_round_trip(saved):
    form, path = saved
    made = build(form)
    with NGramIndex.open(path) as index:
        assert type(index) is form
        assert (index.ids, len(index), index.n_tokens) == (("a", "б", "c", "d e"), 4, 8)
        assert (index.vocabulary, index.tokenizer, index.breaks) == (500, "abc", (9,))
        assert answers(index) == answers(made)
        assert index.nbytes == made.nbytes
        index.check()
        index.save(path.with_name("copy"))
    assert path.with_name("copy").read_bytes() == path.read_bytes()
    assert not list(path.parent.glob("*.part"))


def test_an_empty_corpus(tmp_path):
    for form in FORMS:
        form.build([], [], vocabulary=3, allow_empty=True).save(tmp_path / form.kind)
        with NGramIndex.open(tmp_path / form.kind) as index:
            index.check()
            assert (len(index), index.count([1]), index.count([])) == (0, 0, 0)
            assert not len(index.continuations(index.start(2)).tokens)


def test_never_overwrites(saved):
    form, path = saved
    before = path.read_bytes()
    with pytest.raises(IndexExistsError, match=r"corpus\.tokens"):
        build(form).save(path)
    assert path.read_bytes() == before


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(StorageError, match="No such file or directory"):
        build(FMIndex).save(tmp_path / "nowhere" / "x")


def test_another_tokenizer_vocabulary_or_form(saved):
    form, path = saved
    form.open(path, tokenizer="abc", vocabulary=500).close()
    with pytest.raises(IndexFormatError, match="tokenizer 'abc', not 'xyz'"):
        NGramIndex.open(path, tokenizer="xyz")
    with pytest.raises(IndexFormatError, match="vocabulary 500, not 32100"):
        NGramIndex.open(path, vocabulary=32100)
    other = FORMS[1 - FORMS.index(form)]
    with pytest.raises(IndexFormatError, match=form.kind):
        other.open(path)


def test_not_an_index(tmp_path):
    with pytest.raises(NotAnIndexError, match="nothing"):
        NGramIndex.open(tmp_path / "nothing")
    with pytest.raises(NotAnIndexError):
        NGramIndex.open(tmp_path)
    (tmp_path / "text").write_text("a text of a few bytes, which is no index of anything")
    with pytest.raises(CorruptIndexError, match="does not begin"):
        NGramIndex.open(tmp_path / "text")
    write_arrays(tmp_path / "segment", {"x": np.arange(3)}, {"kind": "flat"})
    with pytest.raises(IndexFormatError, match="is not a corpus index"):
        NGramIndex.open(tmp_path / "segment")
    write_arrays(tmp_path / "newer", {"x": np.arange(3)}, {"format": "token-text", "version": 2})
    with pytest.raises(IndexFormatError, match="of format 2; this weft reads format 1"):
        NGramIndex.open(tmp_path / "newer")
    write_arrays(tmp_path / "less", {"x": np.arange(3)}, {"format": "token-text", "version": 1, "kind": "fm-index"})
    with pytest.raises(CorruptIndexError, match="header of a corpus index"):
        NGramIndex.open(tmp_path / "less")


def test_truncated_anywhere(saved):
    _, path = saved
    whole = path.read_bytes()
    for size in [0, 10, 27, 200, len(whole) // 2, len(whole) - 4, len(whole) - 1]:
        path.write_bytes(whole[:size])
        with pytest.raises(CorruptIndexError, match=r"corpus\.tokens"):
            NGramIndex.open(path)


def test_a_flipped_bit_anywhere(saved):
    _, path = saved
    whole = path.read_bytes()
    for at in range(0, len(whole), 41):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 16]) + whole[at + 1 :])
        with pytest.raises((CorruptIndexError, IndexFormatError)), NGramIndex.open(path) as index:
            index.count([1])


def test_arrays_that_do_not_fit_each_other(saved):
    """Right checksums over wrong arrays, as a faulty writer would leave: an error, and nothing read out of bounds."""
    form, _ = saved
    made = build(form)
    names = ["starts", "alphabet", "first", "head_first", "head_lows", "head_offsets", "head_symbols", "head_stops"]
    for name in [*names, *form._extra]:
        for change in (lambda x: x[:-1], lambda x: x + np.asarray(10**6).astype(x.dtype)):
            arrays = dict(made._arrays)
            arrays[name] = change(arrays[name])
            index = form(made._info, arrays)
            try:
                answers(index)
            except (CorruptIndexError, ValueError):
                continue


def test_header_of_another_kind(saved):
    """A whole file whose header says something else, its checksum made right."""
    _, path = saved
    raw = path.read_bytes()
    length = struct.unpack_from("<Q", raw, 8)[0]
    header = json.loads(raw[20 : 20 + length])
    header["info"]["kind"] = "trie"
    text = json.dumps(header).encode()
    assert len(text) <= length
    text = text.ljust(length)
    path.write_bytes(raw[:16] + struct.pack("<I", zlib.crc32(text)) + text + raw[20 + length :])
    with pytest.raises(IndexFormatError, match="kind 'trie'"):
        NGramIndex.open(path)


def test_opening_reads_no_array(saved, monkeypatch):
    _, path = saved
    monkeypatch.setattr("weft.generative.corpus_index.storage.TokenTextFile.verify", lambda self: pytest.fail("read"))
    NGramIndex.open(path).close()


def test_missing_extra(monkeypatch):
    from weft.errors import MissingExtraError

    monkeypatch.setitem(__import__("sys").modules, "pydivsufsort", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'weft-search\[generative\]'"):
        build(TokenTextIndex)
