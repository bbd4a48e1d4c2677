"""One shard of a store behind an ordinary server: fetched, checked, brought up to its log, warmed, served."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from weft.cluster.following import Following, LoggedIndex, LoggedTexts
from weft.cluster.log import ShardLog
from weft.cluster.store import ShardStore
from weft.errors import DataError
from weft.search.encoder_of import load_encoder


def open_replica(
    store: ShardStore, number: int, folder: Path, *, version: int | None = None, model: str | None = None
) -> LoggedTexts:
    """Return a copy of a shard that follows its log.

    Parameters
    ----------
    store : ShardStore
    number : int
        Which of the version's shards.
    folder : path
        Where copies are kept, for this process alone; one that is there is used again.
    version : int, optional
        By default the newest that is whole.
    model : str, optional
        Where the model is, if not where the shard says.
    """
    manifest = store.latest() if version is None else store.manifest(version)
    if not 0 <= number < len(manifest.shards):
        raise DataError(f"version {manifest.version} has shards 0 to {len(manifest.shards) - 1}, not {number}")
    shard = manifest.shards[number]
    path = store.fetch_shard(shard, folder / shard.name)
    index = LoggedIndex.following(path, ShardLog(store.blobs, shard.log or shard.name), shard.at)
    try:
        return LoggedTexts(index, load_encoder(index, model))
    except BaseException:
        index.close()
        raise


def replica(name: str, texts: LoggedTexts, *, writable: bool = True) -> Callable[..., Any]:
    """Return what `weft.serving.api.Server` takes in place of an index."""
    return lambda pool, limits: Following(name, texts, pool, limits, writable=writable)
