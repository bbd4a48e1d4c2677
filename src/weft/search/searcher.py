"""`Searcher`: questions in, answers out. An index, an encoder, and the two sides of a search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, Unpack

from weft.alignment import XTR, Alignment
from weft.errors import invalid
from weft.search.hybrid import BLEND, FUSIONS, Parts, blend, fuse
from weft.search.index import Index
from weft.search.lexical import most_score, search_exact, search_lexical
from weft.search.options import SEARCH_OPTIONS, EffortOptions, VectorOptions, refuse_unknown
from weft.stopping import check_stop
from weft.storage.filters import Filter
from weft.storage.filters import parse as parse_filter
from weft.types import Ranking, TokenVectors

DEPTH = 100
"""Each side of a hybrid search hands at least this many documents to the fusion."""


class QueryEncoder(Protocol):
    """What a search needs of an encoder (`weft.Encoder` is one)."""

    def encode_query(self, texts: Sequence[str]) -> TokenVectors:
        """Return the token vectors of each query."""
        ...


@dataclass(frozen=True, eq=False)
class Answer:
    """The results for one query, with what their scores are made of."""

    query: str
    tokens: TokenVectors
    """The query as the encoder reads it: one text."""
    ranking: Ranking
    """The results. In a hybrid search these are fused scores, and hits are found through `behind`."""
    alignment: Alignment
    semantic: tuple[Ranking, ...]
    """Rankings by token vectors, with hits."""
    k: int
    """How many documents each of them was asked for."""
    lexical: Ranking | None = None
    parts: Mapping[str, Parts] = field(default_factory=dict)
    """What a blended score is made of, by document."""

    def behind(self, id: str) -> tuple[Ranking, int] | None:  # noqa: A002
        """Return the ranking by token vectors that has a document, and its position there; None if none has."""
        for ranking in self.semantic:
            if id in ranking.ids:
                return ranking, ranking.ids.index(id)
        return None


class Searcher:
    """Search an index by text.

    Parameters
    ----------
    index : Index
    encoder : Encoder, or anything with `encode_query`

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from weft.types import Document
    >>> class Letters:  # a token for each letter of a and b
    ...     def encode_query(self, texts):
    ...         return TokenVectors.from_list([np.eye(2)[["ab".index(c) for c in text]] for text in texts])
    >>> with Index.create(tempfile.mkdtemp(), dim=2) as index:
    ...     index.add([Document("x", "a word"), Document("y", "b word")], Letters().encode_query(["aa", "b"]))
    ...     searcher = Searcher(index, Letters())
    ...     plain, hybrid = searcher.search(["a"])[0], searcher.search(["b"], hybrid="rrf")[0]
    >>> plain.ranking[0], hybrid.ranking.ids
    (Result(id='x', score=1.0), ('y', 'x'))
    """

    def __init__(self, index: Index, encoder: QueryEncoder) -> None:
        self.index = index
        self.encoder = encoder

    def search(
        self,
        queries: Sequence[str],
        k: int = 10,
        *,
        alignment: Alignment | str | None = None,
        filter: Filter | str | None = None,  # noqa: A002
        hybrid: bool | str | None = None,
        weights: tuple[float, float] | None = None,
        **options: Unpack[EffortOptions],
    ) -> list[Answer]:
        """Find the k most relevant documents for each query, all from one committed state.

        Parameters
        ----------
        queries : sequence of str
        k, alignment, filter, **options
            As for `Index.search`.
        hybrid : bool or str, optional
            Fuse with BM25: True or ``"blend"`` (see `weft.search.hybrid.blend`), ``"rrf"`` or ``"scores"`` (see
            `weft.search.hybrid.fuse`). The filter holds on both sides.
        weights : (float, float), optional
            What token vectors and BM25 weigh in the fusion.
        """
        refuse_unknown(options, SEARCH_OPTIONS, "search")
        if isinstance(queries, str):
            raise invalid("queries", "search", "a sequence of texts", queries)
        hybrid = BLEND if hybrid is True else hybrid or None
        if hybrid is not None and hybrid not in FUSIONS:
            raise invalid("hybrid", "search", f"True, False or one of {FUSIONS}", hybrid)
        if alignment is not None:
            alignment = Alignment.parse(alignment)
        wanted = None if filter is None else parse_filter(filter)
        # Saliences prune under β_q and shade explanations, even where they do not weigh.
        shaded = {"salience": True} if getattr(self.encoder, "has_salience", False) else {}
        tokens = self.encoder.encode_query(list(queries), **shaded)
        depth = k if hybrid is None else max(k, DEPTH)
        with self.index.view():
            alignment = Alignment.parse(self.index.alignment if alignment is None else alignment)
            if hybrid is not None:
                options["documents"] = False  # most are not among the k best in the end
            found = self.index.search(tokens, depth, alignment=alignment, filter=wanted, **options)
            answers = []
            for i, (text, ranking) in enumerate(zip(queries, found, strict=True)):
                mine = tokens[i : i + 1]
                check_stop()
                if hybrid is None:
                    answers.append(Answer(text, mine, ranking, alignment, (ranking,), depth))
                    continue
                lexical = search_lexical(self.index, text, depth, filter=wanted)
                exact = search_exact(self.index, text, filter=wanted) if hybrid == BLEND else set[str]()
                fused = None if hybrid == BLEND else fuse([ranking, lexical], k, method=hybrid, weights=weights)
                candidates = dict.fromkeys((*lexical.ids, *exact) if fused is None else fused.ids)
                rest = [id for id in candidates if id not in ranking.ids]  # noqa: A001
                more: list[Ranking] = []
                if rest:
                    among: EffortOptions = {**options, "among": rest}
                    more = self.index.search(mine, max(depth, len(rest)), alignment=alignment, filter=wanted, **among)
                parts: dict[str, Parts] = {}
                if fused is None:
                    others = {result.id: result.score for found_later in more for result in found_later}
                    most = most_score(self.index, text)
                    fused, parts = blend(ranking, lexical, others, exact, k, weights=weights, most=most)
                fused = replace(fused, missing=ranking.missing)
                answers.append(Answer(text, mine, fused, alignment, (ranking, *more), depth, lexical, parts))
            return answers

    def document(self, id: str, answer: Answer, **options: Unpack[VectorOptions]) -> tuple[Ranking, int] | None:  # noqa: A002
        """Return the ranking that scores a document for an answer's query; search for it if the answer has none.

        None where the document has no score: it has no tokens, or under XTR no query token retrieved one of them.
        """
        found = answer.behind(id)
        if found is not None:
            return found
        if not isinstance(answer.alignment, XTR):  # the document was named: score it whatever the filter says
            options["filter"] = None
        options["among"] = [id]
        (ranking,) = self.index.search(answer.tokens, answer.k, alignment=answer.alignment, **options)
        return (ranking, 0) if len(ranking) else None
