"""Documents and the passages that they were split into: of ``report``, ``report##0`` and so on.

No whole document has such an id: adding one is refused. Older indexes name their passages ``report#0``, which may also
be a document's id; there only the metadata tells them apart.
"""

from __future__ import annotations

import re

from weft.storage.store import Store
from weft.types import PASSAGE_SEPARATOR, Document

NOTES = "weft"
"""The key of our own notes in a passage's metadata."""
PASSAGE_MARK = PASSAGE_SEPARATOR[0]
"""What is in the id of every passage, of older indexes too."""
_PASSAGE_ID = re.compile(rf"{PASSAGE_SEPARATOR}[0-9]+\Z")


def is_passage_id(id: str) -> bool:  # noqa: A002
    """Tell whether an id is one that only passages have.

    Examples
    --------
    >>> is_passage_id("report##0"), is_passage_id("issue#12"), is_passage_id("page##intro")
    (True, False, False)
    """
    return _PASSAGE_ID.search(id) is not None


def parent_of(document: Document) -> str | None:
    """Return the id of the document that a passage is of; None for a whole document, whatever its id looks like.

    Examples
    --------
    >>> parent_of(Document("report##0", "", {"parent": "report"})), parent_of(Document("issue#12", ""))
    ('report', None)
    """
    notes = document.metadata.get(NOTES)
    parent = notes.get("id") if isinstance(notes, dict) else document.metadata.get("parent")
    return parent if isinstance(parent, str) and _number(document.id, parent) is not None else None


def family(store: Store, id: str) -> list[Document]:  # noqa: A002
    """Return the document with this id, if it is there, and the passages of that document, in order.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from weft.types import TokenVectors
    >>> with Store.create(tempfile.mkdtemp(), dim=2) as store:
    ...     passages = [Document(f"report##{n}", "", {"parent": "report"}) for n in range(11)]
    ...     store.add(passages, TokenVectors.from_list([np.ones((1, 2))] * 11))
    ...     [passage.id for passage in family(store, "report")][-2:]
    ['report##9', 'report##10']
    """
    with store.reading_catalogue() as catalogue:
        found = catalogue.family(id)
    members = [d for d in found if d.id == id or parent_of(d) == id]
    return sorted(members, key=lambda member: _order(member.id, id))


def _order(name: str, parent: str) -> int:
    number = _number(name, parent)
    return -1 if number is None else number


def _number(name: str, parent: str) -> int | None:
    """The number of a passage in its document, by its id; None if it is not one of that document's passages."""
    if not name.startswith(parent + PASSAGE_MARK):
        return None
    number = name[len(parent) + 1 :].removeprefix(PASSAGE_MARK)
    return int(number) if re.fullmatch("[0-9]{1,18}", number) else None
