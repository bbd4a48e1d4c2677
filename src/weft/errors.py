"""Every error a user can cause is a `WeftError`; its message names the value and what to do about it.

Asserts are kept for our own bugs.
"""

from __future__ import annotations


class WeftError(Exception):
    """Base of all errors that weft raises on purpose."""


class InvalidParameterError(WeftError, ValueError):
    """An argument breaks a constraint; the message names the parameter, the constraint and the value."""


class MissingExtraError(WeftError, ImportError):
    """A heavy dependency is not installed; the message is the line that installs it."""


class UnsupportedCPUError(WeftError, RuntimeError):
    """A SIMD level was asked for that this machine cannot run."""


class DataError(WeftError, ValueError):
    """A file of texts, queries or judgements is missing or has the wrong layout."""


class CheckpointError(WeftError):
    """A model is missing, incomplete, or in a layout that weft does not know."""


class TruncatedError(WeftError, ValueError):
    """A text is longer than the model reads, and the caller asked not to have it cut."""


class IndexStateError(WeftError):
    """The index is not in a state that allows the call."""


class NotAnIndexError(IndexStateError, FileNotFoundError):
    """There is no index at the path."""


class IndexExistsError(IndexStateError, FileExistsError):
    """An index is already there."""


class IndexLockedError(IndexStateError):
    """Another writer has the index."""


class IndexFormatError(IndexStateError):
    """The index was made by another version, encoder or dimension than the one asked for."""


class StorageError(IndexStateError, OSError):
    """The disk is full or failing. The call changed nothing, and what was committed before is intact."""


class CorruptIndexError(IndexStateError):
    """A file is damaged: its bytes are not those that were written. The message names the file and the place."""


def invalid(parameter: str, owner: str, constraint: str, value: object) -> InvalidParameterError:
    """Build the error for a bad argument.

    Examples
    --------
    >>> raise invalid("k", "TopK", "an integer >= 1", 0)
    Traceback (most recent call last):
    ...
    weft.errors.InvalidParameterError: The 'k' parameter of TopK must be an integer >= 1. Got 0 instead.
    """
    return InvalidParameterError(
        f"The {parameter!r} parameter of {owner} must be {constraint}. Got {_brief(value)} instead."
    )


def missing_extra(package: str, extra: str, purpose: str) -> MissingExtraError:
    """Build the error for a dependency that an extra would install.

    Examples
    --------
    >>> raise missing_extra("torch", "torch", "training")
    Traceback (most recent call last):
    ...
    weft.errors.MissingExtraError: training needs torch, which is not installed: pip install 'weft-search[torch]'
    """
    return MissingExtraError(f"{purpose} needs {package}, which is not installed: pip install 'weft-search[{extra}]'")


def first_line(error: Exception) -> str:
    """Return the first line with text of another library's message, or the kind of error."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def counted(count: int, noun: str) -> str:
    """Return a number of things as a message says it.

    Examples
    --------
    >>> counted(1, "passage"), counted(2000, "passage")
    ('1 passage', '2,000 passages')
    """
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _brief(value: object) -> str:
    # A bad array of a million numbers must not become a megabyte of message.
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # integers of thousands of digits, lists in lists without end
        text = f"a {type(value).__name__}"
    text = text.encode("utf-8", "backslashreplace").decode()  # half a character cannot be printed
    text = " ".join(text.split()) if "\n" in text else text  # an array's lines
    return text if len(text) <= 200 else text[:197] + "..."
