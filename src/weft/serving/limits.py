"""What a client may ask of a server, and the most that a request may cost."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from weft.alignment import XTR, Alignment
from weft.errors import invalid

MEGABYTE = 2**20


@dataclass(frozen=True)
class Limits:
    """Bounds of one server. Requests beyond them are refused before any work is done.

    Examples
    --------
    >>> Limits(k=50).k
    50
    >>> Limits(k=0)
    Traceback (most recent call last):
    ...
    weft.errors.InvalidParameterError: The 'k' parameter of Limits must be a number > 0. Got 0 instead.
    """

    body: int = 32 * MEGABYTE
    """Bytes of a request's body."""
    k: int = 1000
    """Documents that a search returns."""
    queries: int = 64
    """Queries in one request."""
    query_characters: int = 8192
    query_tokens: int = 1024
    """Token vectors of a query that comes as vectors."""
    n_probe: int = 1024
    k_prime: int = 200_000
    refine: int = 20_000
    filter_characters: int = 4096
    documents: int = 1000
    """Documents in one request: to add, to delete, or to re-rank."""
    text_characters: int = 1_000_000
    id_characters: int = 512
    waiting: int = 256
    """Requests that may wait for a thread, and documents (times four) that may wait to be written."""
    seconds: float = 30.0
    """A request that is not answered by then is given up."""
    write_seconds: float = 300.0
    receipt_seconds: float = 20.0
    """A body must have arrived by then."""
    header_seconds: float = 10.0
    """So must the headers of a request, counted from its first byte or from the opening of the connection."""
    rate: float | None = None
    """Requests a second for each key, with bursts of twice as many."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is None and field.name == "rate":
                continue
            if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
                raise invalid(field.name, "Limits", "a number > 0", value)

    def most(self, value: int | None, name: str) -> None:
        """Refuse a number outside 1 … the limit of that name."""
        bound = getattr(self, name)
        if value is not None and not 1 <= value <= bound:
            raise invalid(name, "the request", f"from 1 to {bound}", value)

    def count(self, listed: Any, what: str, bound: str) -> None:
        """Refuse an empty list, and one that is too long."""
        most = getattr(self, bound)
        if not 1 <= len(listed) <= most:
            raise invalid(what, "the request", f"a list of 1 to {most}", f"{len(listed)}")

    def text(self, text: str, what: str, bound: str) -> str:
        """Refuse a text that is empty, too long, or cannot be written as UTF-8."""
        most = getattr(self, bound)
        if not text.strip():
            raise invalid(what, "the request", "a text that is not empty", text)
        if len(text) > most:
            raise invalid(what, "the request", f"at most {most:,} characters", f"{len(text):,}")
        return text

    def alignment(self, text: str | None) -> None:
        """Refuse an alignment that is unknown, or that retrieves more tokens than `k_prime` allows."""
        if text is None:
            return
        if len(text) > 200:
            raise invalid("alignment", "the request", "at most 200 characters", f"{len(text):,}")
        parsed = Alignment.parse(text)
        if isinstance(parsed, XTR) and parsed.k_prime is not None:
            self.most(parsed.k_prime, "k_prime")
