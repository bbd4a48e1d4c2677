"""Test collections by reference: a folder in BEIR's layout, or an id of `ir_datasets`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from weft.errors import DataError, missing_extra
from weft.evaluation.answers import read_answers
from weft.evaluation.runs import known_only
from weft.sources.beir import BeirDocument, Collection, read_corpus, read_queries

VARIABLE = "WEFT_DATA"
"""The environment's name for the folder of collections."""
_OTHER_SPLITS = ("train", "dev", "valid", "validation")


@dataclass(frozen=True)
class Task:
    """A collection, with everything else that is needed to measure on it."""

    collection: Collection
    answers: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """For open-domain questions: the accepted answers of each query, by which passages are then judged."""
    groups: Mapping[str, str] = field(default_factory=dict)
    """Groups of queries whose means are averaged, as the relations of EntityQuestions; {}: all queries count alike."""
    drop_own: bool = False
    """Whether queries are documents of the corpus themselves, and never their own answer (ArguAna, Quora)."""

    @property
    def name(self) -> str:
        """The collection's name, with its split if that is not ``test``."""
        split = self.collection.split
        return self.collection.name if split == "test" else f"{self.collection.name}:{split}"


@dataclass(frozen=True)
class Dataset:
    """A collection by name, and where to find it.

    It is looked for as a folder in BEIR's layout under the folder of collections, and then under its `ir_datasets` id.
    """

    name: str
    folder: str = ""
    """Below the folder of collections, or a whole path."""
    split: str = "test"
    ir_id: str = ""
    """Of `ir_datasets`; empty where it has none."""
    drop_own: bool = False
    """See `Task`."""
    n_queries: int = 0
    """How many queries it must have, since a different number is a different set; 0 for any."""

    def load(self, data: Path | None = None) -> Task:
        """Read it."""
        folder = Path(self.folder) if data is None else data / self.folder
        if self.folder and folder.is_dir():
            task = read_folder(folder, self.split)
        elif self.ir_id:
            task = from_ir_datasets(self.ir_id)
        else:
            where = f"no folder {str(folder)!r}" if data is not None else f"no folder of collections ({hint()})"
            raise DataError(
                f"{self.name} is not in ir_datasets, and there is {where}: put it there in BEIR's layout "
                f"(corpus.jsonl, queries.jsonl, qrels/{self.split}.tsv)"
            )
        found = len(task.collection.queries)
        if self.n_queries and found != self.n_queries:
            raise DataError(
                f"{str(folder)!r} has {found:,} queries; {self.name} of the papers has {self.n_queries:,}: "
                "its test set, not its dev set"
            )
        name = self.name.partition(":")[0]
        return replace(task, collection=replace(task.collection, name=name), drop_own=self.drop_own)


def hint() -> str:
    """Say how the folder of collections is given."""
    return f"give --data FOLDER or set {VARIABLE}"


def data_folder(given: str | Path | None = None) -> Path | None:
    """Return the folder of collections: the one given, else that of ``WEFT_DATA``, else None."""
    text = str(given) if given is not None else os.environ.get(VARIABLE, "")
    if not text:
        return None
    folder = Path(text).expanduser()
    if not folder.is_dir():
        of = "" if given is not None else f" ({VARIABLE})"
        raise DataError(f"no such folder of collections: {text!r}{of}")
    return folder


def folders(data: Path) -> list[Dataset]:
    """List the collections of a folder, each with its splits for testing: those that are not for training.

    A split named otherwise than ``test`` becomes part of the name: ``xquad:test-en``.
    """
    found = []
    for folder in sorted(path for path in data.iterdir() if (path / "qrels").is_dir()):
        if not any((folder / name).exists() for name in ("corpus.jsonl", "corpus.jsonl.gz")):
            continue
        splits = sorted(path.stem for path in (folder / "qrels").glob("*.tsv"))
        for split in splits:
            whole = split == "all" and len(splits) > 1  # has the queries for training as well
            if split not in _OTHER_SPLITS and not whole:
                name = folder.name if split == "test" else f"{folder.name}:{split}"
                found.append(Dataset(name, folder.name, split))
    return found


def find(reference: str, split: str = "test", data: Path | None = None) -> Dataset:
    """Resolve a reference: a folder in BEIR's layout, or an `ir_datasets` id.

    ``folder:split`` names a split; a name may also be that of a collection below the folder of collections.
    """
    name, _, named = reference.partition(":")
    for folder in [Path(name).expanduser(), *([data / name] if data is not None else [])]:
        if (folder / "qrels").is_dir():
            return Dataset(folder.resolve().name, str(folder.resolve()), named or split)
    return Dataset(reference, ir_id=reference)


def read_folder(folder: Path, split: str = "test") -> Task:
    """Read a folder in BEIR's layout; rows of queries.jsonl may have ``answers`` and a ``group`` (or ``relation``)."""
    answers, groups = read_answers(folder)
    if answers and not (folder / "qrels" / f"{split}.tsv").exists():
        queries = {query: text for query, text in read_queries(folder) if query in answers}
        collection = Collection(folder.name, split, list(read_corpus(folder)), queries, {q: {} for q in queries})
    else:
        collection = Collection.read(folder, split)
    mine = collection.queries
    return Task(
        collection,
        {query: accepted for query, accepted in answers.items() if query in mine},
        {query: group for query, group in groups.items() if query in mine},
    )


def from_ir_datasets(name: str) -> Task:
    """Read a dataset of `ir_datasets`, which downloads it if necessary.

    Documents are the text that `ir_datasets` says is a document's own (title and body), judgements those of its qrels.
    """
    dataset = open_ir_dataset(name)
    for kind in ("docs", "queries", "qrels"):
        if not dataset.has(kind):
            raise DataError(f"the ir_datasets dataset {name!r} has no {kind}; a part of it may, such as {name}/test")
    try:
        documents = [BeirDocument(str(row.doc_id), "", row.default_text()) for row in dataset.docs_iter()]
        asked = list(dataset.queries_iter())
        judged = [(str(row.query_id), str(row.doc_id), int(row.relevance)) for row in dataset.qrels_iter()]
    except (OSError, RuntimeError) as error:
        raise DataError(f"ir_datasets cannot read {name!r}: {error}") from None
    queries = {str(row.query_id): row.default_text() for row in asked}
    answers = {str(row.query_id): list(row.answers) for row in asked if getattr(row, "answers", None)}
    qrels: dict[str, dict[str, int]] = {}
    for query, document, grade in judged:
        qrels.setdefault(query, {})[document] = grade
    qrels = known_only(qrels, {document.id for document in documents}, queries, what=name)
    collection = Collection(name, "test", documents, {q: t for q, t in queries.items() if q in qrels}, qrels)
    return Task(collection, {query: answers[query] for query in qrels if query in answers})


def open_ir_dataset(name: str) -> Any:
    """Return the `ir_datasets` dataset of a name."""
    try:
        import ir_datasets
    except ImportError:
        raise missing_extra("ir_datasets", "datasets", f"{name!r}, which is not a folder in BEIR's layout,") from None
    try:
        return ir_datasets.load(name)
    except KeyError:
        raise DataError(f"{name!r} is not a suite, not a folder in BEIR's layout, and unknown to ir_datasets") from None
