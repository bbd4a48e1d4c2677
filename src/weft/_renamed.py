"""Names that weft once had: using one raises an error with the new name.

Modules are in the table below. An attribute is kept as ``old = Renamed("new")`` in its class, a keyword by
``@renamed_keywords(old="new")`` on its function.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from typing import Any, NoReturn, ParamSpec, TypeVar

from weft.errors import InvalidParameterError

MODULES = {
    "weft.collections": "weft.sources",
    "weft.encoders.importers.native": "weft.encoders.importers.sentence_transformers",
    "weft.encoders.text": "weft.encoders.tokenizing",
    "weft.explain.model": "weft.explain.explanation",
    "weft.generative.kernel": "weft.generative.feature_kernel",
    "weft.generative.token_text": "weft.generative.corpus_index",
    "weft.index": "weft.storage",
    "weft.search.bm25": "weft.evaluation.bm25",
    "weft.search.brute": "weft.storage.segments.terms",
    "weft.search.coded": "weft.storage.segments.coded",
    "weft.search.floors": "weft.search.tokens",
    "weft.search.terms": "weft.storage.segments.terms",
    "weft.search.text": "weft.search.searcher",
}

P = ParamSpec("P")
R = TypeVar("R")


class _RenamedModules:
    """The last finder that an import asks, so it sees only what no other found."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:  # noqa: ARG004
        if name in MODULES:
            raise ImportError(f"{name} is {MODULES[name]} now", name=name)


def install() -> None:
    """Make imports of modules that moved say where they are now."""
    if _RenamedModules not in sys.meta_path:
        sys.meta_path.append(_RenamedModules)


class Renamed:
    """An attribute that was renamed.

    Examples
    --------
    >>> class Model:
    ...     size = 3
    ...     length = Renamed("size")
    >>> Model().length
    Traceback (most recent call last):
    ...
    AttributeError: Model.length is Model.size now
    """

    def __init__(self, new: str) -> None:
        self.new = new

    def __set_name__(self, owner: type[Any], name: str) -> None:
        self.old = name

    def __get__(self, instance: object, owner: type[Any]) -> NoReturn:
        raise AttributeError(f"{owner.__name__}.{self.old} is {owner.__name__}.{self.new} now")


def renamed_keywords(**names: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Refuse keywords that were renamed.

    Examples
    --------
    >>> @renamed_keywords(length="size")
    ... def cut(size=3): ...
    >>> cut(length=4)
    Traceback (most recent call last):
    ...
    weft.errors.InvalidParameterError: The 'length' parameter of cut is called 'size' now.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            for old, new in names.items():
                if old in kwargs:
                    raise InvalidParameterError(
                        f"The {old!r} parameter of {function.__qualname__} is called {new!r} now."
                    )
            return function(*args, **kwargs)

        return checked

    return decorate
