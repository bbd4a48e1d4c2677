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
    store: Store, ids: Sequence[str], *, spans: bool = True, places: Sequence[tuple[int, int]] | None = None
) -> list[Shown]:
    """Return documents in the order of their ids, which must all be there.

    Call it inside the `view` that found them.

    Parameters
    ----------
    store : Store
    ids : sequence of str
    spans : bool
        Whether to tell where tokens stand, too.
    places : sequence of (int, int), optional
        Which segment each document is in, and which one it is there, as `Ranking.places` has it.

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
        if places is None:
            numbered = catalogue.several(ids)
            numbers = [numbered[name][0] if name in numbered else -1 for name in ids]
            found = dict(numbered.values())
            places = _places(view, numbers) if spans else ()
        else:
            numbers = [int(view.segments[owner].segment.numbers[ordinal]) for owner, ordinal in places]
            found = catalogue.documents(numbers)
    for name, number in zip(ids, numbers, strict=True):
        if number not in found or found[number].id != name:
            raise CorruptIndexError(f"{catalogue.file}: damaged: its list of ids does not lead to {name!r}")
    if not spans:
        return [Shown(found[number], None) for number in numbers]
    return [
        Shown(found[number], None if at is None else view.segments[at[0]].segment.places(at[1]))
        for number, at in zip(numbers, places, strict=True)
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
