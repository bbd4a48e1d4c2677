"""What is needed to show results: documents, and where their tokens stand, with one query of the catalogue for all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft.errors import CorruptIndexError
from weft.storage.segments.reading import Places
from weft.storage.store import Store
from weft.storage.views import View
from weft.types import Document


class Shown(NamedTuple):
    """A document, and where its tokens stand in its text."""

    document: Document
    places: Places | None
    """None where the index does not keep them, or they were not asked for"""

    @property
    def spans(self) -> NDArray[np.int32] | None:
        """The characters of each token, (m, 2)."""
        return None if self.places is None else self.places.unpacked()


def shown(
    store: Store,
    ids: Sequence[str],
    *,
    spans: bool = True,
    documents: Sequence[Document] | None = None,
    places: Sequence[tuple[int, int] | None] | None = None,
) -> list[Shown]:
    """Return documents in the order of their ids, which must all be there.

    Call it inside the `view` that found them.

    Parameters
    ----------
    store : Store
    ids : sequence of str
    spans : bool
        Whether to tell where tokens stand, too.
    documents, places : optional
        Of these ids, where a ranking has them.

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
    with store.view() as view:
        if places is None or documents is None:
            with store.reading_catalogue() as catalogue:
                found = catalogue.several(ids)
                lost = next((name for name in ids if name not in found), None)
                if lost is not None:
                    raise CorruptIndexError(f"{catalogue.file}: damaged: its list of ids does not lead to {lost!r}")
            documents = [found[name][1] for name in ids]
            places = _places(view, [found[name][0] for name in ids]) if spans else None
        if not spans:
            return [Shown(document, None) for document in documents]
        return [
            Shown(document, None if at is None else view.segments[at[0]].segment.places(at[1]))
            for document, at in zip(documents, places or (), strict=True)
        ]


def _places(view: View, numbers: Sequence[int]) -> list[tuple[int, int] | None]:
    """Return which segment has each document, and where; None where none has."""
    ascending = np.array(sorted(numbers), dtype=np.int64)
    found = {}
    for owner, live in enumerate(view.segments):
        ordinals = live.segment.ordinals_of(ascending)
        for number, ordinal in zip(live.segment.numbers[ordinals].tolist(), ordinals.tolist(), strict=True):
            found[number] = owner, ordinal
    return [found.get(number) for number in numbers]
