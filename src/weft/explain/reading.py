"""From what an index keeps to `Reading`: token texts, and where they stand.

An index keeps token ids, spans and saliences (`Index.reading`), so no model runs. An old index, or one that was given
no spans, has none; then the stored text is tokenised again. If that gives other tokens than the stored ones (another
text was encoded, or with other lengths), the vocabulary's pieces are shown instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from weft.errors import invalid
from weft.explain.explanation import Explanation, Reading, explain
from weft.types import TokenVectors

if TYPE_CHECKING:
    from weft.encoders import Encoder
    from weft.search import Answer, Searcher


class StoredTokens(Protocol):
    """What is read of a document's tokens: from `Index.reading`, or `TokenVectors` of one text."""

    @property
    def n_tokens(self) -> int: ...

    @property
    def token_ids(self) -> NDArray[np.int32] | None: ...

    @property
    def spans(self) -> NDArray[np.int32] | None: ...

    @property
    def salience(self) -> NDArray[np.float32] | None: ...


def read_query(text: str, tokens: TokenVectors, encoder: Encoder | None = None) -> Reading:
    """Return the query's tokens; `tokens` is what `Encoder.encode_query` made of it, one text."""
    return Reading(text, tokens.n_tokens, tokens.spans, _pieces(tokens.token_ids, encoder), tokens.salience)


def read_document(
    text: str,
    stored: StoredTokens,
    encoder: Encoder | None = None,
    *,
    beta_d: float | None = None,
    keep: float | None = None,
) -> Reading:
    """Return a document's tokens.

    Parameters
    ----------
    text : str
        Its text, as the index keeps it.
    stored : StoredTokens
        Its tokens, as the index keeps them: `Index.reading`, or `TokenVectors` of one text.
    encoder : Encoder, optional
        The one it was encoded with; names tokens, and finds spans that are not stored.
    beta_d : float, optional
        Of the index, if it keeps only the most salient tokens.
    keep : float, optional
        Of the index, if it pools tokens: each vector is read as the token that it stands for.
    """
    spans, salience = stored.spans, stored.salience
    if spans is None and encoder is not None and text:
        spans, again = _found_again(text, stored, encoder, beta_d, keep)
        salience = again if salience is None else salience
    return Reading(text, stored.n_tokens, spans, _pieces(stored.token_ids, encoder), salience)


def _found_again(
    text: str, stored: StoredTokens, encoder: Encoder, beta_d: float | None, keep: float | None
) -> tuple[NDArray[np.int32] | None, NDArray[np.float32] | None]:
    """Read the text again and return its tokens' spans and saliences, None unless the tokens are the stored ones."""
    ids: Any
    spans: NDArray[np.int32] | None
    salience: NDArray[np.float32] | None = None
    if beta_d is None and keep is None:
        from weft.encoders.tokenizing import Reader

        (tokens,) = Reader(encoder.tokenizer, encoder.settings.document).read([text])
        ids, spans = tokens.ids[tokens.scored], tokens.spans[tokens.scored]
    else:  # only the model can tell which tokens were kept
        again: TokenVectors = encoder.encode_document([text], truncation="ignore", threads=1, salience=True)
        again = _kept_again(again, stored, beta_d, keep)
        ids, spans, salience = again.token_ids, again.spans, again.salience
    if not _are(stored, ids):
        return None, None
    return spans, salience


def _kept_again(encoded: TokenVectors, stored: StoredTokens, beta_d: float | None, keep: float | None) -> TokenVectors:
    from weft.storage.pooling import pool
    from weft.storage.pruning import prune

    if beta_d is not None or keep is None:
        return prune(encoded, 1 if beta_d is None else beta_d)
    pooled = pool(encoded, keep)
    if _are(stored, pooled.token_ids) or encoded.token_ids is None or encoded.spans is None:
        return pooled
    # It may have been given without spans, and then without knowing which vectors are of the text as a whole.
    rows = np.arange(encoded.n_tokens, dtype=np.int32)
    bare = pool(TokenVectors.trusted(encoded.values, encoded.offsets, rows, encoded.salience), keep)
    assert bare.token_ids is not None
    chosen = bare.token_ids
    return TokenVectors.trusted(
        bare.values, bare.offsets, encoded.token_ids[chosen], bare.salience, encoded.spans[chosen]
    )


def _are(stored: StoredTokens, ids: Any) -> bool:
    return len(ids) == stored.n_tokens and (stored.token_ids is None or np.array_equal(ids, stored.token_ids))


def _pieces(ids: NDArray[np.int32] | None, encoder: Encoder | None) -> list[str] | None:
    if ids is None or encoder is None:
        return None
    return [encoder.token_label(i) for i in ids]


def explain_result(
    searcher: Searcher,
    encoder: Encoder | None,
    answer: Answer,
    id: str,  # noqa: A002
    rank: int | None = None,
    **options: Any,
) -> Explanation | None:
    """Explain why a document has its score for an answer's query.

    Call it inside the ``with index.view():`` that searched, so that texts and vectors are those that were scored.

    Parameters
    ----------
    searcher : Searcher
    encoder : Encoder, optional
        Names tokens, and finds where they stand.
    answer : Answer
    id : str
        A document of the index, among the answer's results or not.
    rank : int, optional
        The rank to show, from 1.
    **options
        Those of the search (`Index.search`), needed for a document that is not among the results.

    Returns
    -------
    Explanation, or None where the document has no score.
    """
    index = searcher.index
    document, stored = index.get(id), index.reading(id)
    if document is None or stored is None:
        raise invalid("id", "explain_result", "that of a document of the index", id)
    found = searcher.document(id, answer, **options)
    if found is None:
        return None
    ranking, position = found
    return explain(
        ranking,
        position,
        query=read_query(answer.query, answer.tokens, encoder),
        document=read_document(document.text, stored, encoder, beta_d=index.beta_d, keep=index.keep),
        alignment=answer.alignment,
        rank=rank,
    )
