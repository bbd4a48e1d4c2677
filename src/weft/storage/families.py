"""Documents and the passages that they were split into: of ``report``, ``report#0`` and so on."""

from __future__ import annotations

from weft.storage.store import Store
from weft.types import PASSAGE_SEPARATOR, Document


def family(store: Store, id: str) -> list[Document]:  # noqa: A002
    """Return the document with this id, if it is there whole, and its passages, in order.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from weft.types import TokenVectors
    >>> with Store.create(tempfile.mkdtemp(), dim=2) as store:
    ...     passages = [Document(f"report#{n}", "", {"parent": "report"}) for n in range(11)]
    ...     store.add(passages, TokenVectors.from_list([np.ones((1, 2))] * 11))
    ...     [passage.id for passage in family(store, "report")][-2:]
    ['report#9', 'report#10']
    """
    with store.reading_catalogue() as catalogue:
        found = catalogue.family(id)
    members = [d for d in found if d.id == id or d.metadata.get("parent") == id]
    return sorted(members, key=_number)


def _number(member: Document) -> int:
    number = member.id.rpartition(PASSAGE_SEPARATOR)[2]
    return int(number) if "parent" in member.metadata and number.isdigit() else -1
