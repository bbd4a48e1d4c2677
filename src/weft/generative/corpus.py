"""What a retriever learns from: documents, and pairs of a query with its document; some queries held out."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from weft.errors import DataError
from weft.generative.recipes import DataSettings
from weft.sources.beir import BeirDocument, read_corpus, read_qrels, read_queries


@dataclass(frozen=True)
class Pair:
    """A query with the number of a document that answers it."""

    query_id: str
    query: str
    document: int


@dataclass(frozen=True)
class Corpus:
    """Documents by number, pairs to learn from, and pairs held out."""

    documents: list[BeirDocument]
    pairs: list[Pair]
    heldout: list[Pair]


def read_data(sources: Sequence[DataSettings], seed: int = 0) -> Corpus:
    """Read all collections into one corpus. Ids that two collections share are an error, as are empty documents."""
    corpus = Corpus([], [], [])
    owner: dict[str, str] = {}
    for source in sources:
        part = _read(source, seed)
        for document in part.documents:
            if document.id in owner:
                raise DataError(f"the document id {document.id!r} is in {owner[document.id]!r} and {source.path!r}")
            owner[document.id] = source.path
        start = len(corpus.documents)
        corpus.documents.extend(part.documents)
        corpus.pairs.extend(Pair(p.query_id, p.query, p.document + start) for p in part.pairs)
        corpus.heldout.extend(Pair(p.query_id, p.query, p.document + start) for p in part.heldout)
    return corpus


def _read(source: DataSettings, seed: int) -> Corpus:
    folder = Path(source.path)
    if not folder.is_dir():
        raise DataError(f"no such folder: {source.path!r}")
    every = {document.id: document for document in read_corpus(folder)}
    judged: dict[str, dict[str, None]] = {}
    for split in filter(None, (name.strip() for name in source.splits.split(","))):
        for query, document, grade in read_qrels(folder, split):
            if grade > 0 and document in every:
                judged.setdefault(query, {})[document] = None
    names = list(every)
    if source.documents and source.documents < len(names):
        known = list(dict.fromkeys(name for found in judged.values() for name in found))
        rest = sorted(set(names) - set(known))
        chooser = random.Random(seed)
        chooser.shuffle(rest)
        names = (known if len(known) <= source.documents else chooser.sample(known, source.documents)) + rest
        names = names[: source.documents]
    documents = [every[name] for name in names]
    for name in names:
        if not every[name].full_text:
            raise DataError(f"{source.path!r}: the document {name!r} is empty; nothing could identify it")
    number = {name: position for position, name in enumerate(names)}
    queries = dict(read_queries(folder)) if judged else {}
    pairs: list[Pair] = []
    heldout: list[Pair] = []
    for query, found in judged.items():
        side = heldout if _held_out(query, source.heldout) else pairs
        side += [Pair(query, queries[query], number[name]) for name in found if name in number and query in queries]
    return Corpus(documents, pairs, heldout)


def _held_out(query: str, share: float) -> bool:
    # By a hash of the id: the same queries in every run, whatever the seed and the order of the file.
    return int.from_bytes(hashlib.sha256(query.encode()).digest()[:8], "big") < share * 2**64


def write_collection(corpus: Corpus, folder: Path, splits: Mapping[str, Sequence[Pair]] | None = None) -> None:
    """Write the documents with splits of queries in BEIR's layout, for ``weft generative index`` and ``evaluate``.

    Without `splits` the held-out queries are the only one, ``test``.
    """
    splits = {"test": corpus.heldout} if splits is None else splits
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    _write(
        folder / "corpus.jsonl",
        (json.dumps({"_id": d.id, "title": d.title, "text": d.text}, ensure_ascii=False) for d in corpus.documents),
    )
    texts = {pair.query_id: pair.query for pairs in splits.values() for pair in pairs}
    _write(
        folder / "queries.jsonl",
        (json.dumps({"_id": name, "text": text}, ensure_ascii=False) for name, text in texts.items()),
    )
    for split, pairs in splits.items():
        write_qrels(folder, split, [(pair.query_id, corpus.documents[pair.document].id, 1) for pair in pairs])


def write_qrels(folder: Path, split: str, rows: Iterable[tuple[str, str, int]]) -> None:
    """Write the judgements of a split, (query, document, grade), in BEIR's layout."""
    judgements = (f"{query}\t{document}\t{grade}" for query, document, grade in rows)
    _write(folder / "qrels" / f"{split}.tsv", ["query-id\tcorpus-id\tscore", *judgements])


def _write(path: Path, lines: Iterable[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
