"""What a client is told when something is wrong: RFC 9457 problems, without paths or tracebacks."""

from __future__ import annotations

import logging

from weft.errors import IndexLockedError, InvalidParameterError, StorageError, WeftError
from weft.storage.filters import FilterError

_log = logging.getLogger("weft.serving")


class RefusedError(WeftError):
    """A refusal or a failure, as an answer.

    Parameters
    ----------
    status : int
    detail : str
        One line for the person who reads the answer.
    retry : float, optional
        Seconds after which to try again.
    """

    def __init__(self, status: int, detail: str, *, retry: float | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.retry = retry


TITLES = {
    400: "Not readable",
    401: "A key is needed",
    403: "Not allowed",
    404: "Not found",
    405: "Method not allowed",
    408: "The request took too long to arrive",
    409: "Conflict",
    413: "Too large",
    415: "Unsupported media type",
    421: "Misdirected request",
    422: "Not acceptable",
    429: "Too many requests",
    431: "Headers too large",
    500: "Internal error",
    503: "Busy",
    504: "Took too long",
    507: "Storage failed",
}


def as_problem(error: Exception) -> RefusedError:
    """Return what to tell a client about an error. Only messages known to hold no path are passed on."""
    if isinstance(error, RefusedError):
        return error
    if isinstance(error, InvalidParameterError | FilterError):
        return RefusedError(422, " ".join(str(error).split()))
    if isinstance(error, IndexLockedError):
        return RefusedError(409, "another process is writing to this index")
    if isinstance(error, StorageError):
        _log.error("storage: %s", error)
        return RefusedError(507, "the disk is full or failing; nothing was written")
    _log.error("unexpected %s", type(error).__name__, exc_info=error)
    return RefusedError(500, "something went wrong; the server's log has the details")
