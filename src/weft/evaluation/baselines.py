"""Systems to compare: BM25, single vectors, late interaction under any alignment; searching a pool, or re-ranking.

A system is a function from a pool to a run: the same pool, the same depth, the same measures for all of them.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from weft.alignment import Alignment
from weft.encoders import Encoder
from weft.errors import missing_extra
from weft.evaluation.bm25 import BM25
from weft.evaluation.pools import DEPTH, Encoded, Loaded, Pool, encode
from weft.evaluation.runs import Run, ranked
from weft.evaluation.scoring import score_all, to_run
from weft.search import Index
from weft.types import Document, TokenVectors

IN_MEMORY = 20_000
"""Larger pools are searched through an index; of smaller ones every document is scored exactly."""
_AT_ONCE = 1024

Candidates: TypeAlias = Mapping[str, Sequence[str]]
"""The documents of each query to rank; no others are."""


@dataclass(frozen=True)
class System:
    """A row of a table."""

    name: str
    search: Callable[[Pool, int, Candidates | None], Run]
    """(pool, depth, candidates or None for all documents) → run"""


# -- BM25 ----------------------------------------------------------------------------------------------


def bm25(pool: Pool, depth: int = DEPTH, among: Candidates | None = None) -> Run:
    """BM25 of bm25s: k1 0.9, b 0.4, English stemmer and stop words."""
    if among is None and depth <= DEPTH:
        return {query: {d: documents[d] for d in list(documents)[:depth]} for query, documents in pool.bm25.items()}
    needed = depth if among is None else len(pool.documents)
    found = BM25(pool.documents).search(list(pool.queries.values()), needed)
    run: dict[str, dict[str, float]] = {}
    for query, ranking in zip(pool.queries, found, strict=True):
        scores = {result.id: result.score for result in ranking}
        run[query] = scores if among is None else _best({d: scores[d] for d in among[query] if d in scores}, depth)
    return run


BM25_SYSTEM = System("BM25", bm25)


# -- one vector a text ---------------------------------------------------------------------------------


def single_vector(name: str, folder: str, *, length: int | None = None) -> System:
    """Mean-pooled vectors of a sentence-transformers model, or of a plain Hugging Face encoder, compared by cosine."""

    def search(pool: Pool, depth: int, among: Candidates | None = None) -> Run:
        return to_run(pool.queries, list(pool.documents), single_scores(folder, pool, length), depth, among=among)

    return System(f"{name}, one vector", search)


def single_scores(folder: str, pool: Pool, length: int | None = None) -> NDArray[np.float32]:
    """Return the cosines of all queries with all documents, shape (queries, documents); `length` cuts texts."""
    try:
        from sentence_transformers import SentenceTransformer
        from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
    except ImportError:
        raise missing_extra("sentence-transformers", "torch", "a single-vector baseline") from None
    if (Path(folder) / "modules.json").exists():
        model = SentenceTransformer(folder, device="cpu")
    else:
        transformer = Transformer(folder)
        pooling = Pooling(transformer.get_embedding_dimension(), "mean")
        model = SentenceTransformer(modules=[transformer, pooling], device="cpu")
    if length is not None:
        model.max_seq_length = length
    options: dict[str, Any] = {"normalize_embeddings": True, "show_progress_bar": False}
    Q = np.asarray(model.encode(list(pool.queries.values()), **options), dtype=np.float32)
    D = np.asarray(model.encode(list(pool.documents.values()), **options), dtype=np.float32)
    scores: NDArray[np.float32] = Q @ D.T
    return scores


# -- late interaction ----------------------------------------------------------------------------------


def late_interaction(
    pool: Pool,
    encoded: Encoded,
    alignment: Alignment | str,
    depth: int = DEPTH,
    among: Candidates | None = None,
    *,
    threads: int = 1,
) -> Run:
    """Rank the documents of a pool under an alignment, exactly."""
    scores = score_all(encoded, alignment, threads=threads)
    return to_run(pool.queries, list(pool.documents), scores, depth, among=among)


@dataclass(eq=False)
class LateInteraction:
    """A model with a row for each alignment; texts are encoded once for all of them.

    Parameters
    ----------
    name : str
    encoder : Encoder, or a function that loads one
    work : path, optional
        Where encodings, and indexes of large pools, are kept.
    """

    name: str
    encoder: Loaded
    work: Path | None = None
    threads: int = 1
    _held: dict[str, Encoded] = field(default_factory=dict, repr=False)

    def system(self, alignment: Alignment | str) -> System:
        """Return the row of one alignment."""
        alignment = Alignment.parse(alignment)

        def search(pool: Pool, depth: int, among: Candidates | None = None) -> Run:
            if len(pool.documents) > IN_MEMORY:
                return self._through_an_index(pool, alignment, depth, among)
            return late_interaction(pool, self.encoded(pool), alignment, depth, among, threads=self.threads)

        return System(f"{self.name}, {alignment}", search)

    def encoded(self, pool: Pool) -> Encoded:
        """Return the pool's token vectors; those of the last pool are held."""
        key = pool.digest
        if key not in self._held:
            self._held.clear()
            folder = None if self.work is None else self.work / "encodings" / slug(self.name)
            self._held[key] = encode(pool, self.encoder, folder, threads=self.threads)
        return self._held[key]

    def _through_an_index(self, pool: Pool, alignment: Alignment | str, depth: int, among: Candidates | None) -> Run:
        encoder = self.encoder if isinstance(self.encoder, Encoder) else self.encoder()
        tokens = encoder.encode_query(pool.queries.values(), truncation="ignore", threads=self.threads)
        with self._index(pool, encoder) as index:
            options: dict[str, Any] = {"alignment": alignment, "hits": False, "threads": self.threads}
            run = {}
            for i, query in enumerate(pool.queries):
                mine: TokenVectors = tokens[i : i + 1]
                (ranking,) = index.search(mine, depth, among=None if among is None else among[query], **options)
                run[query] = {result.id: result.score for result in ranking}
        return run

    @contextmanager
    def _index(self, pool: Pool, encoder: Encoder) -> Any:
        with tempfile.TemporaryDirectory(prefix="weft-evaluate-") as temporary:
            folder = Path(temporary) if self.work is None else self.work / "indexes" / slug(self.name)
            path = folder / f"{slug(pool.name)}-{pool.digest}.weft"
            own = encoder.fingerprint
            if path.exists():
                made = Index.open(path, encoder_fingerprint=own)
            else:
                made = Index.create(path, encoder.dim, encoder_fingerprint=own, salience_weighs=encoder.salience_weighs)
            with made as index:
                missing = [name for name in pool.documents if name not in index]  # an interrupted build goes on
                for start in range(0, len(missing), _AT_ONCE):
                    part = missing[start : start + _AT_ONCE]
                    texts = [pool.documents[name] for name in part]
                    vectors = encoder.encode_document(
                        texts, truncation="ignore", threads=self.threads, dtype=np.float16
                    )
                    index.add([Document(name) for name in part], vectors, flat=True)
                if missing:
                    index.compact()
                yield index


# -- the re-ranking setting ----------------------------------------------------------------------------


def candidates_with_gold(pool: Pool, depth: int = DEPTH) -> dict[str, list[str]]:
    """Return BM25's best `depth` documents of each query together with its relevant ones (GR as MVDR §6.3).

    All systems rank the same candidates, so what they would find plays no part in the comparison.
    """
    found = {}
    for query in pool.queries:
        lexical = ranked(pool.bm25.get(query, {}), depth)
        gold = [name for name, grade in pool.qrels[query].items() if grade >= 1]
        found[query] = list(dict.fromkeys([*lexical, *gold]))
    return found


def _best(documents: Mapping[str, float], depth: int) -> dict[str, float]:
    return {name: documents[name] for name in ranked(documents, depth)}


def slug(text: str) -> str:
    """Return a name that is valid on any file system.

    Examples
    --------
    >>> slug("beir/nq:test v2")
    'beir-nq-test-v2'
    """
    kept = "".join(c if c.isalnum() or c in "._-" else "-" for c in text)
    return kept.strip("-.") or "model"
