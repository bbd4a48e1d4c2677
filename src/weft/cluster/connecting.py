"""`weft.connect`: an index behind a server, or behind the router of a cluster that Ray knows."""

from __future__ import annotations

from urllib.parse import urlsplit

from weft.cluster import nodes
from weft.errors import invalid, missing_extra
from weft.serving import AsyncRemoteIndex, RemoteIndex
from weft.serving.client import TIMEOUT

RAY = "ray://"


def connect(url: str, *, index: str | None = None, key: str | None = None, timeout: float = TIMEOUT) -> RemoteIndex:
    """Return an index behind a server (`weft serve`) or a cluster, with the methods of `TextIndex`.

    Parameters
    ----------
    url : str
        The server's address; or ``ray://HOST:PORT/NAME``, the address of a Ray cluster and the name of its index
        (``index`` by default). Ray tells where the router is; queries go there over HTTP.
    index : str, optional
        The name of an index there; not needed where there is only one.
    key : str, optional
    timeout : float
        Seconds to wait for an answer.

    Examples
    --------
    >>> import weft
    >>> with weft.connect("http://127.0.0.1:8080") as notes:  # doctest: +SKIP
    ...     for match in notes.search("the red planet", k=3):
    ...         print(match.id, [match.text[s.start : s.stop] for s in match.spans])
    """
    return RemoteIndex(_found(url), index=index, key=key, timeout=timeout)


def connect_async(
    url: str, *, index: str | None = None, key: str | None = None, timeout: float = TIMEOUT
) -> AsyncRemoteIndex:
    """Return the same for asyncio: see `connect`."""
    return AsyncRemoteIndex(_found(url), index=index, key=key, timeout=timeout)


def _found(url: str) -> str:
    """Return the address of a router that Ray knows; any other address as it is."""
    if not url.startswith(RAY):
        return url
    parts = urlsplit(url)
    name = parts.path.strip("/") or "index"
    if not parts.netloc or "/" in name:
        raise invalid("url", "connect", "ray://HOST:PORT/NAME, such as ray://10.0.0.1:6379/notes", url)
    nodes.show_token()
    try:
        from weft.cluster import control
    except ModuleNotFoundError as error:
        raise missing_extra(str(error.name), "cluster", url) from None
    with control.joined(parts.netloc):
        return control.router_url(name)
