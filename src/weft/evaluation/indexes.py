"""Measuring and adapting an index: its own searches, judged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.alignment import XTR, Alignment
from weft.errors import DataError, invalid
from weft.evaluation.adaptation import ALIGNMENTS, Evidence
from weft.evaluation.runs import Qrels, known_only
from weft.search import Index
from weft.search.searcher import QueryEncoder
from weft.sources.beir import lines
from weft.storage.families import PASSAGE_MARK, family, parent_of
from weft.types import TokenVectors

CANDIDATES = 100
"""This many documents of each query are ranked again: as many as a search refines under an alignment."""
_AT_ONCE = 64


class Parents:
    """Whole documents in place of their passages, since judgements are of documents."""

    def __init__(self, index: Index) -> None:
        self.index = index
        self._known: dict[str, str] = {}

    def of(self, id: str) -> str:  # noqa: A002
        """Return the document that a passage is of, or the id itself."""
        if PASSAGE_MARK not in id:
            return id
        if id not in self._known:
            document = self.index.get(id)
            self._known[id] = (None if document is None else parent_of(document)) or id
        return self._known[id]

    def documents(self, ids: Sequence[str], scores: NDArray[np.float32], depth: int | None = None) -> dict[str, float]:
        """Return each document with the score of its best passage, the best `depth` of them."""
        best: dict[str, float] = {}
        for name, score in zip(ids, scores.tolist(), strict=True):  # best first: a document's first is its best
            best.setdefault(self.of(name), score)
        return dict(list(best.items())[:depth])

    def known(self, qrels: Qrels, what: str = "the judgements") -> dict[str, dict[str, int]]:
        """Leave out judgements of documents that the index has neither whole nor in passages, with a warning."""
        asked = {document for grades in qrels.values() for document in grades}
        there = {name for name in asked if name in self.index or family(self.index, name)}
        kept = known_only(qrels, there, what=what)
        if not kept:
            raise DataError(
                f"{what}: none of the {len(asked):,} documents judged is in the index at {self.index.folder}"
            )
        return kept


def search_index(
    index: Index,
    encoder: QueryEncoder,
    queries: Mapping[str, str],
    alignment: Alignment | str | None = None,
    *,
    depth: int = 100,
    **options: Any,
) -> dict[str, dict[str, float]]:
    """Search for every query and return a run of documents: passages count for the document they were split from.

    Parameters
    ----------
    index, encoder
    queries : {id: text}
    alignment : Alignment or str, optional
        By default the index's own.
    depth : int
        Documents of each query.
    **options
        As for `Index.search`.
    """
    parents = Parents(index)
    # Several passages may be of one document: ask for more of them than documents.
    wanted = depth if not _has_passages(index) else 3 * depth
    run = {}
    names = list(queries)
    with index.view():
        for start in range(0, len(names), _AT_ONCE):
            part = names[start : start + _AT_ONCE]
            tokens = encoder.encode_query([queries[name] for name in part])
            found = index.search(tokens, wanted, alignment=alignment, hits=False, **options)
            for name, ranking in zip(part, found, strict=True):
                run[name] = parents.documents(ranking.ids, ranking.scores, depth)
    return run


def _has_passages(index: Index) -> bool:
    condition = "instr(id, ?) > 0 AND json_extract(metadata, '$.parent') IS NOT NULL"
    with index.reading_catalogue() as catalogue:
        return len(catalogue.select(condition, (PASSAGE_MARK,))) > 0


# -- adaptation ----------------------------------------------------------------------------------------


def read_examples(path: str | Path) -> tuple[dict[str, str], dict[str, dict[str, int]]]:
    r"""Read judged queries: a query, a document's id, and a grade (1 if it is left out), with tabs between them.

    Lines with the same query are one example. Returns the queries, {id: text}, and their judgements.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile("w", suffix=".tsv") as file:
    ...     _ = file.write("who wove it?\td1\nwho wove it?\td2\t2\nwhen?\td7\n")
    ...     file.flush()
    ...     read_examples(file.name)
    ({'1': 'who wove it?', '2': 'when?'}, {'1': {'d1': 1, 'd2': 2}, '2': {'d7': 1}})
    """
    path = Path(path)
    ids: dict[str, str] = {}
    qrels: dict[str, dict[str, int]] = {}
    for number, line in enumerate(lines(path), 1):
        cells = [cell.strip() for cell in line.split("\t")]
        if number == 1 and cells[0].lower() in ("query", "question"):
            continue  # a header
        try:
            query, document, *rest = cells
            if not query or not document or len(rest) > 1:
                raise ValueError
            grade = int(float(rest[0])) if rest else 1
        except (ValueError, OverflowError):
            wanted = "a query, a document's id and perhaps a grade, with tabs between them"
            raise DataError(f"{str(path)!r}, line {number}: expected {wanted}, got {line[:80]!r}") from None
        name = ids.setdefault(query, str(len(ids) + 1))
        if qrels.setdefault(name, {}).setdefault(document, grade) != grade:
            raise DataError(f"{str(path)!r}, line {number}: document {document!r} has two grades for {query!r}")
    if not ids:
        raise DataError(f"{str(path)!r} has no examples")
    return {name: text for text, name in ids.items()}, qrels


def score_examples(
    index: Index,
    queries: TokenVectors,
    names: Sequence[str],
    qrels: Qrels,
    alignments: Iterable[Alignment | str] = ALIGNMENTS,
    *,
    candidates: int = CANDIDATES,
    threads: int = 1,
) -> Evidence:
    """Measure judged queries under each alignment, on candidates that are retrieved once (ALIGNER §3.1).

    The candidates are the best documents under the index's own alignment; the others rank them anew from the stored
    vectors. No document is encoded.

    Parameters
    ----------
    index : Index
    queries : TokenVectors
    names : sequence of str
        The id of each query in the judgements.
    qrels : {query: {document: grade}}
    alignments : alignments to compare
    candidates : int
        How many documents of each query are ranked anew.
    threads : int

    Returns
    -------
    Evidence
        The index's own alignment first, whether or not it is among those given.
    """
    if len(names) != len(queries):
        raise invalid("names", "score_examples", f"{len(queries)}, one for each query", len(names))
    used = str(Alignment.parse(index.alignment))
    wanted = list(dict.fromkeys([used, *(str(Alignment.parse(a)) for a in alignments)]))
    runs: dict[str, dict[str, dict[str, float]]] = {name: {} for name in wanted}
    parents = Parents(index)
    options: dict[str, Any] = {"hits": False, "threads": threads}
    with index.view():
        for i, query in enumerate(names):
            mine = queries[i : i + 1]
            (retrieved,) = index.search(mine, candidates, alignment=used, **options)
            runs[used][query] = parents.documents(retrieved.ids, retrieved.scores)
            for name in wanted[1:]:
                exact = not isinstance(Alignment.parse(name), XTR)  # all candidates, and nothing but them
                (anew,) = index.search(mine, candidates, alignment=name, among=retrieved.ids, exact=exact, **options)
                runs[name][query] = parents.documents(anew.ids, anew.scores)
    return Evidence.of(runs, {query: qrels[query] for query in names})
