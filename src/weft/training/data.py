"""Training data: rows of (query, positive, negatives…, scores) from common layouts.

A `Source` names one collection; `load` reads it into columns. Formats:

- ``beir``: a folder with corpus.jsonl[.gz], queries.jsonl[.gz] and qrels/<split>.tsv;
- ``jsonl``: objects with ``query``, ``positive`` and optionally ``negatives`` (list) and ``scores`` (list);
- ``tsv``: query, positive and any number of negatives, separated by tabs;
- ``msmarco``: a folder with collection.tsv, queries.train.tsv and either qrels.train.tsv or RocketQA-style rows
  (``query id  passage id  label`` or ``query id  positive id  negative id…``) in `negatives_file`;
- ``hub``: a Hugging Face dataset with the columns of ``jsonl``.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from weft.errors import DataError, invalid, missing_extra
from weft.sources.beir import Collection, lines, objects

FORMATS = ("beir", "jsonl", "tsv", "msmarco", "hub")
MINERS = ("none", "bm25", "index", "given")


@dataclass(frozen=True)
class Source:
    """One collection to train on, as a recipe's ``[[data]]`` table names it.

    `limit` takes that many rows (chosen by the seed), `repeat` shows each of them that often in an epoch; `documents`
    is a regular expression that ids of positives must match. `negatives` hard negatives a row come from
    `negatives_from`: ``"bm25"``, ``"index"`` (weft's own index, with the model being trained), or ``"given"`` in the
    data.
    """

    path: str
    format: str = "beir"
    name: str = ""
    split: str = "train"
    limit: int = 0
    repeat: int = 1
    documents: str = ""
    negatives: int = 0
    negatives_from: str = "none"
    negatives_file: str = ""
    skip_top: int = 0
    """How many of the best mined passages to leave out, as they may answer the query too."""
    mine_among: int = 0
    """Mine among this many documents, the positives and a random rest (0: the whole corpus). Encoding a large corpus
    only to mine from it can take longer than the training."""

    def __post_init__(self) -> None:
        if self.format not in FORMATS:
            raise invalid("format", "data", f"one of {', '.join(FORMATS)}", self.format)
        if self.negatives_from not in MINERS:
            raise invalid("negatives_from", "data", f"one of {', '.join(MINERS)}", self.negatives_from)
        if (self.negatives > 0) != (self.negatives_from != "none"):
            raise invalid("negatives", "data", "given together with negatives_from", self.negatives)
        for key in ("limit", "negatives", "skip_top", "mine_among"):
            if getattr(self, key) < 0:
                raise invalid(key, "data", "at least 0", getattr(self, key))
        if self.repeat < 1:
            raise invalid("repeat", "data", "at least 1", self.repeat)
        try:
            re.compile(self.documents)
        except re.error as error:
            raise invalid("documents", "data", f"a regular expression ({error})", self.documents) from None

    @property
    def label(self) -> str:
        """A short name for logs."""
        return self.name or Path(self.path).name


@dataclass
class Row:
    """One training example."""

    query: str
    positive: str
    negatives: list[str] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    positive_id: str = ""
    known: frozenset[str] = frozenset()
    """Ids of all documents known to be relevant: never negatives."""


def read(source: Source, seed: int = 0) -> tuple[list[Row], dict[str, str]]:
    """Return a source's rows, and its corpus {id: text} where it has one (for mining)."""
    rows, corpus = _READERS[source.format](source)
    if source.documents:
        wanted = re.compile(source.documents)
        rows = [row for row in rows if wanted.search(row.positive_id)]
    rows = [row for row in rows if row.query.strip() and row.positive.strip()]
    if not rows:
        raise DataError(f"{source.label}: no training rows in {source.path!r} (split {source.split!r})")
    if source.limit and len(rows) > source.limit:
        rows = random.Random(seed).sample(rows, source.limit)
    return rows, corpus


def mining_corpus(source: Source, rows: Sequence[Row], corpus: Mapping[str, str], seed: int = 0) -> dict[str, str]:
    """Return the documents that negatives are mined among: every positive and a random rest, `mine_among` in all."""
    if not source.mine_among or len(corpus) <= source.mine_among:
        return dict(corpus)
    kept = dict.fromkeys(row.positive_id for row in rows if row.positive_id in corpus)
    rest = [name for name in corpus if name not in kept]
    room = max(0, source.mine_among - len(kept))
    return {name: corpus[name] for name in (*kept, *random.Random(seed).sample(rest, min(room, len(rest))))}


# -- formats -------------------------------------------------------------------------------------------


def _beir(source: Source) -> tuple[list[Row], dict[str, str]]:
    collection = Collection.read(source.path, source.split)
    corpus = {document.id: document.full_text for document in collection.documents}
    rows = [
        Row(collection.queries[query], corpus[document], positive_id=document, known=frozenset(grades))
        for query, grades in collection.relevant().items()
        for document in grades
    ]
    return rows, corpus


def _jsonl(source: Source) -> tuple[list[Row], dict[str, str]]:
    return [_row(value, source.path) for value in objects(Path(source.path))], {}


def _row(value: Mapping[str, Any], where: str) -> Row:
    for key in ("query", "positive"):
        if key not in value:
            raise DataError(f"{where!r}: a row without {key!r}; it has {', '.join(map(repr, value))}")
        if not isinstance(value[key], str):
            raise DataError(f"{where!r}: {key!r} is a text; got {value[key]!r}")
    query, positive = value["query"], value["positive"]
    negatives = value.get("negatives") or ([value["negative"]] if value.get("negative") else [])
    if isinstance(negatives, str) or not all(isinstance(text, str) for text in negatives):
        raise DataError(f"{where!r}: 'negatives' is a list of texts; got {negatives!r}")
    try:
        scores = [float(score) for score in value.get("scores") or []]
    except (TypeError, ValueError):
        raise DataError(f"{where!r}: scores are numbers, one for each document; got {value['scores']!r}") from None
    return Row(query, positive, list(negatives), scores)


def _tsv(source: Source) -> tuple[list[Row], dict[str, str]]:
    rows = []
    for number, line in enumerate(lines(Path(source.path)), 1):
        cells = line.split("\t")
        if len(cells) < 2:
            raise DataError(f"{source.path!r}, line {number}: expected query, positive and negatives separated by tabs")
        rows.append(Row(cells[0], cells[1], cells[2:]))
    return rows, {}


def _msmarco(source: Source) -> tuple[list[Row], dict[str, str]]:
    folder = Path(source.path)
    corpus = dict(_cells(folder / "collection.tsv", 2))
    queries = dict(_cells(folder / f"queries.{source.split}.tsv", 2))
    positives: dict[str, list[str]] = {}
    negatives: dict[str, list[str]] = {}
    if source.negatives_file:  # RocketQA: query id, positive id, negative ids; or one (query, passage, label) a line
        for query, *rest in _cells(folder / source.negatives_file, 2, most=0):
            if len(rest) == 2 and rest[1] in ("0", "1"):
                (positives if rest[1] == "1" else negatives).setdefault(query, []).append(rest[0])
            else:
                positives.setdefault(query, []).append(rest[0])
                negatives.setdefault(query, []).extend(rest[1:])
    else:
        path = folder / f"qrels.{source.split}.tsv"
        for number, line in enumerate(lines(path), 1):
            try:
                query, _, document, grade = line.split()
                judged = float(grade)
            except ValueError:
                raise DataError(f"{str(path)!r}, line {number}: expected query, 0, passage and grade") from None
            if judged > 0:
                positives.setdefault(query, []).append(document)
    rows = []
    for query, documents in positives.items():
        wrong = [corpus[i] for i in negatives.get(query, ()) if i in corpus]
        rows += [
            Row(queries[query], corpus[document], wrong, positive_id=document, known=frozenset(documents))
            for document in documents
            if query in queries and document in corpus
        ]
    return rows, corpus


def _cells(path: Path, least: int, most: int = 2) -> Iterator[list[str]]:
    """Yield the cells of each line, separated by tabs: `least` of them or more, cut into `most` (0: as many as are)."""
    for number, line in enumerate(lines(path), 1):
        cells = line.split("\t", most - 1 if most else -1)
        if len(cells) < least:
            raise DataError(f"{str(path)!r}, line {number}: expected {least} cells or more, separated by tabs")
        yield cells


def _hub(source: Source) -> tuple[list[Row], dict[str, str]]:
    try:
        from datasets import load_dataset, load_from_disk
    except ImportError:
        raise missing_extra("datasets", "train", "a Hugging Face dataset") from None
    try:
        on_disk = Path(source.path).exists()
        data = load_from_disk(source.path) if on_disk else load_dataset(source.path, split=source.split)
        if isinstance(data, dict):  # a folder of splits
            data = data[source.split]
    except Exception as error:
        raise DataError(f"the dataset {source.path!r} cannot be loaded: {error}") from None
    return [_row(value, source.path) for value in data], {}


_READERS = {"beir": _beir, "jsonl": _jsonl, "tsv": _tsv, "msmarco": _msmarco, "hub": _hub}
