"""What weft reads from others, each with an oracle: answers are those of the unchanged input, or refused in our words.

A target is made once, in a folder of its own. `attempt(rng)` makes one input, uses it, and returns what became of it;
an AssertionError, or any exception that is not a `WeftError`, is a find. `python tools/run_fuzz.py` runs them.
"""

import os
import warnings
from pathlib import Path

import numpy as np

from fuzz.from_outside import Bodies, Readers
from fuzz.mutations import changed_array, changed_info, flipped, mutated
from fuzz.target import OTHER, REFUSED, SAME, Target
from storage import crafted
from weft import Document, Index, TokenVectors, WeftError
from weft.alignment import Alignment
from weft.search.lexical import search_lexical
from weft.storage import merger
from weft.storage.arrays import Arrays, write_arrays
from weft.storage.check import check
from weft.storage.filters import parse
from weft.storage.segments import Allowed, Bar, Effort, Plan, open_segment


class Files(Target):
    """Files of arrays: bytes changed under their checksums, and arrays changed with checksums that fit.

    The first give the answers of the unchanged file, or none; the second may give any, but no crash.
    """

    _file: Path
    _bases: list  # of (bytes, arrays, info, answers)

    def _answers(self):
        """Ask all that there is to ask of the file."""
        raise NotImplementedError

    def _take(self):
        """Remember the file as it is now."""
        with Arrays(self._file) as stored:
            arrays = {name: stored[name].copy() for name in stored._places}
            info = dict(stored.info)
        self._bases.append((self._file.read_bytes(), arrays, info, self._answers()))

    def attempt(self, rng):
        data, arrays, info, right = rng.choice(self._bases)
        self._file.unlink(missing_ok=True)
        summed = rng.random() < 0.5
        if summed:
            changed = dict(arrays)
            for _ in range(rng.choice((0, 1, 1, 2, 3))):
                name = rng.choice(sorted(changed))
                changed[name] = changed_array(rng, changed[name])
            write_arrays(self._file, changed, changed_info(rng, info) if rng.random() < 0.2 else info)
        else:
            self._file.write_bytes(flipped(rng, data) if rng.random() < 0.7 else mutated(rng, data))
        with np.errstate(all="ignore"):
            try:
                found = self._answers()
            except WeftError:
                return REFUSED
        assert summed or found == right, "changed bytes gave another answer"
        return SAME if found == right else OTHER


class Segments(Files):
    """Segment files, flat and coded."""

    def __init__(self, folder):
        self._file = folder / "0123456789abcdef.seg"
        self._bases, self._query = [], crafted.query()
        usual = merger.CODED_TOKENS
        for bits, coded in ((8, True), (4, True), (2, True), (8, False)):
            merger.CODED_TOKENS = 1000 if coded else 1 << 40
            path = folder / f"{bits}-{coded}.weft"
            with Index.create(path, crafted.DIM, bits=bits, merge="off") as index:
                index.add([f"d{n}" for n in range(crafted.DOCUMENTS)], crafted.corpus())
            (file,) = (path / "segments").iterdir()
            self._file.unlink(missing_ok=True)
            self._file.write_bytes(file.read_bytes())
            self._take()
        merger.CODED_TOKENS = usual

    def _answers(self):
        segment = open_segment(self._file)
        segment.warm()
        found, allowed, query = [], Allowed.of(np.ones(len(segment), bool)), self._query
        for alignment, effort in (("sum-of-max", Effort(None, None, None)), ("sum-of-max", None), ("top-k:2", None)):
            plan = Plan(5, Alignment.parse(alignment), effort, 1, len(segment))
            got = segment.search(query, plan, allowed, Bar())
            assert ((got.ordinal >= 0) & (got.ordinal < len(segment))).all()
            found.append(sorted(zip(got.ordinal.tolist(), got.score.tolist(), strict=True)))
        found.append(segment.select(np.array([7])).values.tobytes())
        count, *columns = segment.reading(7)
        found.append([count, *(None if column is None else column.tobytes() for column in columns)])
        return found


class Catalogues(Target):
    """The SQLite file of an index, changed: every answer is right, refused, or missing what `check` then finds."""

    COUNT = 24

    def __init__(self, folder):
        self._path = folder / "i.weft"
        rng = np.random.default_rng(0)
        vectors = TokenVectors.from_list([rng.standard_normal((2, 4)).astype(np.float32) for _ in range(self.COUNT)])
        with Index.create(self._path, 4, merge="off") as index:
            index.add([Document(f"d{n}", f"text number {n} " * 9, {"n": n}) for n in range(self.COUNT)], vectors)
            index.delete("d3")
        self._file = self._path / "catalogue.sqlite"
        self._data = self._file.read_bytes()
        self._right = self._answers()

    def _answers(self):
        with Index.open(self._path, merge="off") as index:
            (ranking,) = index.search(np.ones((2, 4), np.float32), 5, exact=True, hits=False)
            documents = [index.get(f"d{n}") for n in range(0, self.COUNT, 5)]
            words = sorted(search_lexical(index, "text", 100).ids)
            chosen = sorted(index.matching("n >= 8"))
            return [len(index), index.alignment, ranking.ids, ranking.scores.tolist()], documents, words, chosen

    def attempt(self, rng):
        for suffix in ("-wal", "-shm", "-journal"):
            Path(f"{self._file}{suffix}").unlink(missing_ok=True)
        self._file.write_bytes(flipped(rng, self._data) if rng.random() < 0.8 else mutated(rng, self._data))
        try:
            found = self._answers()
        except WeftError:
            return REFUSED
        if found == self._right:
            return SAME
        (sure, documents, *listed), (right, all_documents, *all_listed) = found, self._right
        assert sure == right, "another ranking"
        assert all(set(one) <= set(other) for one, other in zip(listed, all_listed, strict=True)), "another id"
        assert all(one in (None, other) for one, other in zip(documents, all_documents, strict=True)), "another text"
        with Index.open(self._path, merge="off") as index:
            assert not check(index).sound, "something is not found, and check says that all is well"
        return "not found, and check says so"


class CorpusIndexes(Files):
    """Corpus indexes of generative retrieval."""

    DOCUMENTS = ([1, 2, 3, 1, 2], [2, 2, 9], [4, 1, 2])

    def __init__(self, folder):
        from weft.generative.corpus_index import FMIndex, TokenTextIndex

        self._file, self._bases = folder / "corpus.tokens", []
        for form in (TokenTextIndex, FMIndex):
            self._file.unlink(missing_ok=True)
            form.build([list(d) for d in self.DOCUMENTS], ["a", "b", "c"], vocabulary=20).save(self._file)
            self._take()

    def _answers(self):
        from weft.generative.corpus_index import NGramIndex

        with NGramIndex.open(self._file) as index:
            index.check()
            located = [part.tolist() for part in index.locate(index.find([[1, 2]]))]
            parts = (*index.continuations(index.find([[1], [2, 2]])), *index.read(range(len(index))))
            return located, [part.tolist() for part in parts]


class Filters(Target):
    """Texts of filters: SQLite and Python agree about what they let through, and `str` says the same again."""

    WORDS = (
        *("n", "tags", "a.b", "@id", '"x y"', "and", "or", "not", "in", "contains", "exists", "startswith", "null"),
        *("==", "!=", "<", "<=", ">", ">=", "(", ")", "[", "]", ",", "true", "false", "1", "-2.5", "1e400", '"d1"'),
        *("'", '"', "\\", "\\u0000", "\ud800", "\0", "~", "#", "9" * 30),
    )
    METADATA = ({}, {"n": 1}, {"n": -2.5, "tags": ["a", 1, None]}, {"a": {"b": "d1"}, "n": True}, {"x y": 2**40})

    def __init__(self, folder):
        vectors = TokenVectors.from_list([np.ones((1, 4), np.float32)] * len(self.METADATA))
        self._documents = [Document(f"d{i}", "", metadata) for i, metadata in enumerate(self.METADATA)]
        self._index = Index.create(folder / "i.weft", 4, merge="off")
        self._index.add(self._documents, vectors)

    def close(self):
        self._index.close()

    def attempt(self, rng):
        words = rng.choices(self.WORDS, k=rng.randrange(1, 12))
        text = rng.choice(("", " ", " ")).join(words)
        if rng.random() < 0.5:  # more often one that can be read
            name, operator = rng.choice(("n", "tags", "a.b", "@id", '"x y"')), rng.choice(("==", "!=", "<", ">=", "in"))
            value = rng.choice(('"d1"', "1", "-2.5", "true", "null", "[1, null]", '["d1", "d2"]'))
            text = f"{rng.choice(('', 'not ', '('))}{name} {operator} {value}{rng.choice(('', ')', ' or ' + text))}"
        try:
            where = parse(text)
            found = self._index.matching(text)
        except WeftError as error:
            assert "\n" not in str(error)  # noqa: PT017
            return REFUSED
        assert parse(str(where)) == where
        right = {d.id for d in self._documents if where.matches(dict(d.metadata), d.id)}
        assert set(found) == right, (text, found, right)
        return SAME


class Queries(Target):
    """Arrays as queries, and options of a search: brute force, or refused."""

    DTYPES = (np.float16, np.float32, np.float64, np.int32, np.uint8, np.int64, np.complex64, np.bool_, "U3", object)

    def __init__(self, folder):
        rng = np.random.default_rng(1)
        self._texts = [rng.integers(-3, 4, (3, 4)).astype(np.float32) for _ in range(6)]
        self._index = Index.create(folder / "i.weft", 4, merge="off")
        self._index.add([f"d{n}" for n in range(6)], TokenVectors.from_list(self._texts))

    def close(self):
        self._index.close()

    def attempt(self, rng):
        shape = tuple(rng.choice((0, 1, 2, 4, 4, 4, 5)) for _ in range(rng.choice((0, 1, 2, 2, 2, 2, 3))))
        numbers = np.random.default_rng(rng.getrandbits(32))
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            query = numbers.integers(-3, 4, shape).astype(rng.choice(self.DTYPES))
            if query.size and query.dtype.kind == "f" and rng.random() < 0.3:
                at = rng.randrange(query.size)
                query.reshape(-1)[at] = rng.choice((np.nan, np.inf, -np.inf, 6e4, 1e38))
            k = rng.choice((1, 3, 10, 10, 2**31 - 1, 0, -1, 2**63, 1.5, None))
            alignment = rng.choice(("sum-of-max", "sum-of-max", "top-k:2", "xtr:5", "xtr", "no such", f"top-k:{2**63}"))
            try:
                (ranking,) = self._index.search(query, k, alignment=alignment, exact=rng.random() < 0.7)
            except WeftError as error:
                assert "\n" not in str(error)  # noqa: PT017
                return REFUSED
        assert query.ndim == 2, query.shape
        assert query.shape[1] == 4, query.shape
        if alignment != "sum-of-max" or not (np.abs(query.astype(np.float64)) < 100).all():
            return OTHER
        right = sorted((float((query.astype(np.float32) @ t.T).max(axis=1).sum()) for t in self._texts), reverse=True)
        right = right[:k] if len(query) else [0.0] * min(k, len(right))
        assert ranking.scores.tolist() == right, (query, k, ranking.scores, right)
        return SAME


TARGETS = {
    "segments": Segments,
    "catalogues": Catalogues,
    "corpus-indexes": CorpusIndexes,
    "filters": Filters,
    "queries": Queries,
    "readers": Readers,
    "bodies": Bodies,
}
"""Name → target."""


def prepare():
    """No fsync: what is read here need not survive anything."""
    os.fsync = lambda handle: None
