"""From addresses of shards to a router, after checking that they belong to one index."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from weft.cluster.fleet import Fleet
from weft.cluster.replicas import Replicas
from weft.cluster.routed import Routed
from weft.encoders import Encoder
from weft.errors import DataError, IndexFormatError
from weft.serving.client import RemoteIndex, ServerError

SECONDS = 120.0
"""How long a router waits for one server of each shard."""


class ShardAt(NamedTuple):
    """Where a shard is served: its index's name there, None for the only one, and the addresses, the writer's first."""

    urls: tuple[str, ...]
    name: str | None = None


def router(
    name: str,
    shards: Sequence[ShardAt],
    *,
    model: str | None = None,
    key: str | None = None,
    writable: bool = False,
    seconds: float = SECONDS,
) -> Callable[..., Routed]:
    """Return what `weft.serving.api.Server` serves as one index.

    Parameters
    ----------
    name : str
    shards : sequence of ShardAt
    model : str, optional
        The model that encodes queries, a folder or a name; by default the bundled one.
    key : str, optional
        The key for the shards' servers.
    writable : bool
        Whether documents lie in the shards that `weft.cluster.placing.shard_of` names.
    seconds : float
        How long to wait for the shards.
    """
    if not shards:
        raise DataError("a router needs at least one shard")
    until = time.monotonic() + seconds
    infos = [_info(shard, key, until) for shard in shards]
    for what in ("dim", "fingerprint", "alignment", "salience_weighs"):
        values = sorted({str(info[what]) for info in infos})
        if len(values) > 1:
            raise IndexFormatError(f"shards of one index must agree in {what}; these have {', '.join(values)}")
    encoder = Encoder.load(model, local_files_only=model is None)
    first = infos[0]
    if encoder.dim != first["dim"] or (first["fingerprint"] and encoder.fingerprint != first["fingerprint"]):
        raise IndexFormatError(
            f"the shards were made with {first['model']}, not with {encoder.name}: name it (--model)"
        )
    replicas = [Replicas(info["name"], at.urls, key) for at, info in zip(shards, infos, strict=True)]
    return Routed.maker(name, Fleet(replicas), encoder, first["alignment"], writable=writable)


def _info(shard: ShardAt, key: str | None, until: float) -> dict[str, Any]:
    while True:
        problem: Exception | None = None
        for url in shard.urls:
            try:
                with RemoteIndex(url, index=shard.name, key=key, timeout=10) as remote:
                    return remote.info()
            except ServerError as error:
                if error.status not in (0, 503):
                    raise
                problem = error
        if time.monotonic() > until:
            raise DataError(f"no server of a shard answers: {problem}")
        time.sleep(0.2)
