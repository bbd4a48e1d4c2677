"""What is needed to show results: documents with the places of their tokens, many at once.

It takes one query of the catalogue and one read of each segment, instead of several for each result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft.errors import CorruptIndexError
from weft.storage.segments import Segment
from weft.storage.segments.reading import Spans, unpack_spans
from weft.storage.store import Store
from weft.types import Document


class Shown(NamedTuple):
    """A document, and where its tokens stand in its text."""

    document: Document
    spans: NDArray[np.int32] | None
    """(m, 2); None where the index does not keep them, or they were not asked for"""


def shown(store: Store, ids: Sequence[str], *, spans: bool = True) -> list[Shown]:
    """Return documents in the order of their ids, which must all be there.

    Call it inside the `view` that found them.

    Parameters
    ----------
    store : Store
    ids : sequence of str
    spans : bool
        Whether to read where tokens stand, too.

    Examples
    --------
    >>> import tempfile
    >>> from weft.types import TokenVectors
    >>> vectors = TokenVectors.from_list([[[1.0], [1.0]], [[1.0]]], spans=[[[0, 3], [4, 9]], [[0, 5]]])
    >>> with Store.create(tempfile.mkdtemp(), dim=1) as store:
    ...     store.add([Document("a", "red earth"), Document("b", "ocean")], vectors)
    ...     [(one.document.text, one.spans.tolist()) for one in shown(store, ["b", "a"])]
    [('ocean', [[0, 5]]), ('red earth', [[0, 3], [4, 9]])]
    """
    with store.view() as view, store.reading_catalogue() as catalogue:
        found = catalogue.several(ids)
        lost = next((name for name in ids if name not in found), None)
        if lost is not None:
            raise CorruptIndexError(f"{catalogue.file}: damaged: its list of ids does not lead to {lost!r}")
        places: dict[int, NDArray[np.int32] | None] = {}
        if spans:
            numbers = np.array(sorted(number for number, _ in found.values()), dtype=np.int64)
            for s in view.segments:
                places.update(_spans(s.segment, s.segment.ordinals_of(numbers)))
    return [Shown(document, places.get(number)) for number, document in (found[name] for name in ids)]


def _spans(segment: Segment, ordinals: NDArray[np.int64]) -> dict[int, NDArray[np.int32] | None]:
    """Return where the tokens of some documents of a segment stand, by the documents' numbers."""
    if not len(ordinals) or "span_steps" not in segment.columns:
        return {}
    lengths = segment.offsets[ordinals + 1] - segment.offsets[ordinals]
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    rows = segment.token_rows(ordinals)
    steps, sizes = (segment.column(name, ordinals, rows) for name in ("span_steps", "span_lengths"))
    unpacked = unpack_spans(Spans(steps, sizes, segment.apart(ordinals, rows)), offsets)
    parts = (unpacked[start:stop] for start, stop in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True))
    return dict(zip(segment.numbers[ordinals].tolist(), parts, strict=True))
