"""Test collections in BEIR's layout: a corpus, queries, and judgements by split.

corpus.jsonl[.gz]    {"_id", "title", "text", "metadata"?}
queries.jsonl[.gz]   {"_id", "text"}
qrels/<split>.tsv    query-id, corpus-id, score (with a header line)
"""

from __future__ import annotations

import gzip
import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from weft.errors import DataError
from weft.sources.records import LONGEST

logger = logging.getLogger(__name__)

DEMO = Path(__file__).parent / "demo"
"""The collection that comes with weft."""


@dataclass(frozen=True)
class BeirDocument:
    """One line of corpus.jsonl."""

    id: str
    title: str
    text: str
    metadata: dict[str, Any] = field(default_factory=dict)

    @property
    def full_text(self) -> str:
        """BEIR's text of a document: title + " " + text."""
        return f"{self.title} {self.text}".strip()


@dataclass(frozen=True)
class Collection:
    """A corpus with the queries and judgements of one split.

    `queries` holds the judged queries only, in the file's order; `qrels` maps a query to {document: grade}.
    """

    name: str
    split: str
    documents: list[BeirDocument]
    queries: dict[str, str]
    qrels: dict[str, dict[str, int]]

    @classmethod
    def read(cls, folder: str | Path, split: str = "test") -> Collection:
        """Read a folder. Judgements of unknown queries or documents are left out, with a warning."""
        folder = Path(folder)
        if not folder.is_dir():
            raise DataError(f"no such folder: {str(folder)!r}")
        documents = list(read_corpus(folder))
        queries = dict(read_queries(folder))
        known = {document.id for document in documents}
        qrels: dict[str, dict[str, int]] = {}
        unknown = 0
        for query, document, grade in read_qrels(folder, split):
            if query in queries and document in known:
                qrels.setdefault(query, {})[document] = grade
            else:
                unknown += 1
        if unknown:
            logger.warning("%s: %d judgements name unknown queries or documents and are left out", folder.name, unknown)
        return cls(folder.name, split, documents, {q: text for q, text in queries.items() if q in qrels}, qrels)

    def relevant(self, grade: int = 1) -> dict[str, dict[str, int]]:
        """Return the judgements of at least this grade, by query; queries without any are left out."""
        found = {q: {d: g for d, g in grades.items() if g >= grade} for q, grades in self.qrels.items()}
        return {q: grades for q, grades in found.items() if grades}


def read_corpus(folder: Path) -> Iterator[BeirDocument]:
    """Read corpus.jsonl[.gz]."""
    seen: set[str] = set()
    for row in objects(folder / "corpus.jsonl"):
        name = _field(row, "_id", folder / "corpus.jsonl")
        if name in seen:
            raise DataError(f"{str(folder / 'corpus.jsonl')!r}: the document id {name!r} occurs twice")
        seen.add(name)
        metadata = row.get("metadata")
        yield BeirDocument(
            name,
            str(row.get("title") or ""),
            str(row.get("text") or ""),
            metadata if isinstance(metadata, dict) else {},
        )


def read_queries(folder: Path) -> Iterator[tuple[str, str]]:
    """Read queries.jsonl[.gz] as (id, text)."""
    for row in objects(folder / "queries.jsonl"):
        yield _field(row, "_id", folder / "queries.jsonl"), _field(row, "text", folder / "queries.jsonl")


def read_qrels(folder: Path, split: str) -> Iterator[tuple[str, str, int]]:
    """Read qrels/<split>.tsv as (query, document, grade)."""
    path = folder / "qrels" / f"{split}.tsv"
    if not path.exists():
        splits = ", ".join(sorted(found.stem for found in (folder / "qrels").glob("*.tsv"))) or "none"
        raise DataError(f"{str(folder)!r} has no split {split!r}; it has {splits}")
    for number, line in enumerate(lines(path), 1):
        cells = line.split("\t")
        if number == 1 and not cells[-1].strip().lstrip("-").isdigit():
            continue  # the header
        try:
            query, document, grade = cells[0], cells[1], int(float(cells[2]))
        except (IndexError, ValueError):
            raise DataError(f"{str(path)!r}, line {number}: expected query, document and grade, got {line!r}") from None
        yield query, document, grade


def lines(path: Path) -> Iterator[str]:
    """Read a text file, gzipped or not, line by line; blank lines are left out."""
    if not path.exists():
        path = path.with_name(path.name + ".gz")
    if not path.exists():
        raise DataError(f"no such file: {str(path).removesuffix('.gz')!r} (or .gz)")
    try:
        with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else open(path, encoding="utf-8") as file:
            while line := file.readline(LONGEST + 1):
                if len(line) > LONGEST:
                    raise DataError(f"{str(path)!r}: a line is longer than {LONGEST // 2**20} MB")
                if line.strip():
                    yield line.rstrip("\r\n")
    except (UnicodeDecodeError, EOFError, gzip.BadGzipFile) as error:
        raise DataError(f"{str(path)!r} cannot be read: {error}") from None


def objects(path: Path) -> Iterator[dict[str, Any]]:
    """Read JSON lines, gzipped or not."""
    for number, line in enumerate(lines(path), 1):
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{str(path)!r}, line {number}: not JSON ({getattr(error, 'msg', error)})") from None
        if not isinstance(value, dict):
            raise DataError(f"{str(path)!r}, line {number}: expected an object, got {type(value).__name__}")
        yield value


def _field(row: dict[str, Any], key: str, path: Path) -> str:
    if key not in row:
        raise DataError(f"{str(path)!r}: a row without {key!r}; it has {', '.join(map(repr, row))}")
    return str(row[key])
