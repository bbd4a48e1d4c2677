"""Pools: collections cut to what a small machine can encode. The cut is the same for every system and encoded once.

A pool has the judged documents of a sample of the queries, BM25's best for each of them (the hard ones), and a random
rest. Figures on pools compare systems with each other, never with published ones.
"""

from __future__ import annotations

import hashlib
import logging
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from weft.encoders import Encoder
from weft.errors import DataError
from weft.evaluation.bm25 import BM25
from weft.evaluation.runs import Qrels, Run
from weft.sources.beir import Collection
from weft.types import TokenVectors

DEPTH = 100
"""This many of BM25's documents are kept for each query."""
HARD = 20
"""How many of BM25's best documents for a query may enter a pool."""
MOST_RELEVANT = 10
"""Relevant documents of a query that a pool keeps, the best judged first (some TREC queries have hundreds)."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Pool:
    """A collection as it is measured."""

    name: str
    documents: dict[str, str]
    """Texts, BEIR's title + " " + text, by id."""
    queries: dict[str, str]
    qrels: Qrels
    """Of these queries and documents alone."""
    whole: bool
    """Whether these are all documents and all queries of the collection."""
    bm25: Run
    """BM25's best for each query, with their scores."""

    @property
    def digest(self) -> str:
        """Names these queries and documents, in this order: a hash of ids and texts."""
        return _digest(self.queries | {f"d {name}": text for name, text in self.documents.items()})


class Encoded(NamedTuple):
    """A pool's token vectors, in the order of its queries and documents."""

    queries: TokenVectors
    documents: TokenVectors
    salience_weighs: bool = True
    """Whether their saliences weigh scores, or only tell which tokens may be left out."""


Loaded: TypeAlias = Encoder | Callable[[], Encoder]
"""An encoder, or a function that loads it if it is needed at all."""


def make_pool(
    folder: str | Path,
    split: str = "test",
    documents: int = 1000,
    queries: int = 100,
    whole: bool = False,
    seed: int = 5,
) -> Pool:
    """Read a collection in BEIR's layout and cut it to a pool; `whole` keeps all of it."""
    return pool_of(Collection.read(folder, split), documents, queries, whole, seed)


def pool_of(
    collection: Collection, documents: int = 1000, queries: int = 100, whole: bool = False, seed: int = 5
) -> Pool:
    """Cut a collection to a pool of about that many documents and queries.

    Queries without a relevant document are left out. Where the (`MOST_RELEVANT` best) relevant documents alone are more
    than `documents`, they are all kept.
    """
    texts = {document.id: document.full_text for document in collection.documents}
    relevant = collection.relevant()
    if not relevant:
        raise DataError(f"{collection.name}: no query of the split {collection.split!r} has a relevant document")
    chosen = list(relevant)
    if not whole and len(chosen) > queries:
        chosen = sorted(random.Random(seed).sample(chosen, queries))
    asked = [collection.queries[query] for query in chosen]
    keep: dict[str, None] = {}
    if whole or len(texts) <= documents:
        keep = dict.fromkeys(texts)
    else:
        for query in chosen:
            best = sorted(relevant[query], key=lambda d: -relevant[query][d])
            keep.update(dict.fromkeys(best[:MOST_RELEVANT]))
        found = BM25(texts).search(asked, DEPTH)
        for rank in range(HARD):  # the hardest first, as far as there is room
            for ranking in found:
                if len(keep) < documents and rank < len(ranking):
                    keep[ranking.ids[rank]] = None
        rest = [name for name in texts if name not in keep]
        random.Random(seed).shuffle(rest)
        keep.update(dict.fromkeys(rest[: max(0, documents - len(keep))]))
    kept = {name: texts[name] for name in keep}
    qrels = {q: {d: g for d, g in collection.qrels[q].items() if d in kept} for q in chosen}
    lexical = BM25(kept).search(asked, DEPTH)
    bm25 = {q: {r.id: r.score for r in ranking} for q, ranking in zip(chosen, lexical, strict=True)}
    name = collection.name if collection.split == "test" else f"{collection.name}:{collection.split}"
    every = len(kept) == len(texts) and len(chosen) == len(relevant)
    return Pool(name, kept, {q: collection.queries[q] for q in chosen}, qrels, every, bm25)


# -- encodings, kept on disk ---------------------------------------------------------------------------


def encode(pool: Pool, encoder: Loaded, folder: str | Path | None = None, *, threads: int | None = None) -> Encoded:
    """Return the token vectors of a pool in half precision, from `folder` or else computed and kept there.

    Parameters
    ----------
    pool : Pool
    encoder : Encoder, or a function that loads one
        The function is called only if something is to be computed.
    folder : path, optional
        One folder for each encoder: the file's name is the pool's. A file remembers its texts and its encoder, and is
        computed again for others. None keeps nothing.
    threads : int, optional
        Processors to use; by default all.
    """
    path = None if folder is None else Path(folder) / f"{pool.name.replace(':', '-')}-{len(pool.documents)}.npz"
    if path is not None and path.exists():
        held = _read(path, pool, encoder)
        if held is not None:
            return held
    loaded = encoder if isinstance(encoder, Encoder) else encoder()
    options: dict[str, Any] = {"truncation": "ignore", "dtype": np.float16, "threads": threads, "salience": True}
    encoded = Encoded(
        loaded.encode_query(pool.queries.values(), **options),
        loaded.encode_document(pool.documents.values(), **options),
        loaded.salience_weighs,
    )
    if path is not None:
        _write(path, encoded, {"pool": pool.digest, "encoder": loaded.fingerprint})
    return encoded


_FIELDS = ("values", "offsets", "token_ids", "salience", "spans")


def _write(path: Path, encoded: Encoded, marks: dict[str, str]) -> None:
    arrays: dict[str, Any] = {f"mark.{name}": np.array(mark) for name, mark in marks.items()}
    arrays["weights"] = np.array(encoded.salience_weighs)
    for side, texts in (("q", encoded.queries), ("d", encoded.documents)):
        given = {f"{side}.{name}": getattr(texts, name) for name in _FIELDS}
        arrays |= {name: array for name, array in given.items() if array is not None}
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")  # readers see a complete file or none
    with open(part, "wb") as file:
        np.savez(file, **arrays)
    part.rename(path)


def _read(path: Path, pool: Pool, encoder: Loaded) -> Encoded | None:
    with np.load(path, allow_pickle=False) as file:
        held = dict(file)
    marks = {"pool": pool.digest} | ({"encoder": encoder.fingerprint} if isinstance(encoder, Encoder) else {})
    for name, mark in marks.items():  # a file without marks is from before they were written
        if f"mark.{name}" in held and str(held[f"mark.{name}"]) != mark:
            logger.warning("%s is of another %s and is computed anew", path, name)
            return None
    sides = [TokenVectors(**{name: held.get(f"{side}.{name}") for name in _FIELDS}) for side in "qd"]  # type: ignore[arg-type]
    if [len(side) for side in sides] != [len(pool.queries), len(pool.documents)]:
        logger.warning("%s is of another pool and is computed anew", path)
        return None
    return Encoded(sides[0], sides[1], bool(held.get("weights", False)))


def _digest(texts: dict[str, str]) -> str:
    found = hashlib.sha256()
    for name, text in texts.items():
        for part in (name, text):
            data = part.encode("utf-8", "surrogatepass")
            found.update(len(data).to_bytes(8, "little") + data)
    return found.hexdigest()[:16]
