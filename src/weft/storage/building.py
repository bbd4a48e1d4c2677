"""Building an index from a stream: bounded memory, visible progress, searchable early, resumable.

Documents are committed in batches that double in size, so the first are searchable within seconds and the last lie in
few segments. Each batch is one transaction: an interruption loses at most the batch under way, and building again from
the same stream skips what is already there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from numpy.typing import ArrayLike

from weft.checks import check_count
from weft.storage.store import Store
from weft.types import Document, TokenVectors

FIRST_TOKENS = 20_000
MOST_TOKENS = 250_000


def build(
    store: Store,
    stream: Iterable[tuple[Document | str, ArrayLike]],
    *,
    total: int | None = None,
    most_tokens: int = MOST_TOKENS,
    progress: bool | None = None,
) -> int:
    """Add documents from a stream, skipping those whose id is already there.

    Parameters
    ----------
    store : Store
        The index to build.
    stream : iterable of (Document or id, array (tokens, dim))
        Read once, a batch at a time.
    total : int, optional
        Number of documents to come, to estimate the time left.
    most_tokens : int
        Tokens of the largest batch: memory is about this many vectors.
    progress : bool, optional
        Show a progress bar on stderr; by default in a terminal.

    Returns
    -------
    int
        How many documents were added.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> with Store.create(tempfile.mkdtemp(), dim=2) as store:
    ...     texts = [(f"d{i}", np.ones((3, 2))) for i in range(5)]
    ...     build(store, texts), build(store, texts), len(store)
    (5, 0, 5)
    """
    check_count(most_tokens, "most_tokens", "build")
    added = 0
    hidden = None if progress is None else not progress  # None: tqdm asks whether stderr is a terminal
    from tqdm import tqdm  # slow to import

    with tqdm(total=total, unit=" documents", disable=hidden, smoothing=0.1) as bar:
        for documents, vectors in _batches(stream, store.dim, most_tokens):
            new = [i for i, document in enumerate(documents) if _id(document) not in store]
            if new:
                chosen = vectors if len(new) == len(documents) else vectors.select(new)
                store.add([documents[i] for i in new], chosen, flat=True)  # coded once, by the compaction at the end
            added += len(new)
            bar.update(len(documents))
    return added


def _batches(
    stream: Iterable[tuple[Document | str, Any]], dim: int, most_tokens: int
) -> Iterator[tuple[list[Document | str], TokenVectors]]:
    documents: list[Document | str] = []
    texts: list[Any] = []
    tokens, limit = 0, min(FIRST_TOKENS, most_tokens)
    for document, vectors in stream:
        documents.append(document)
        texts.append(vectors)
        tokens += len(vectors)
        if tokens >= limit:
            yield documents, TokenVectors.from_list(texts, dim=dim)
            documents, texts, tokens, limit = [], [], 0, min(2 * limit, most_tokens)
    if documents:
        yield documents, TokenVectors.from_list(texts, dim=dim)


def _id(document: Document | str) -> str:
    return document if isinstance(document, str) else document.id
