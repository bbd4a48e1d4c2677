"""One shard of a store behind an ordinary server: fetched, checked, brought up to its log, warmed, served."""

from __future__ import annotations

import fcntl
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from weft.cluster.following import Following, LoggedIndex, LoggedTexts
from weft.cluster.log import ShardLog
from weft.cluster.manifest import Manifest, Shard
from weft.cluster.store import ShardStore
from weft.errors import DataError
from weft.search.encoder_of import load_encoder


def own_folder(folder: Path, name: str) -> tuple[Path, IO[str]]:
    """Return where a process keeps its copies, and a lock that must stay open as long as it does.

    What processes left behind that are dead now is removed: each copy is as large as a shard.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.glob("*.lock"):
        with path.open("a") as lock, suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path.with_suffix(""), ignore_errors=True)
            path.unlink(missing_ok=True)
    mine = (folder / f"{name}.lock").open("a")
    fcntl.flock(mine, fcntl.LOCK_EX)
    shutil.rmtree(folder / name, ignore_errors=True)
    return folder / name, mine


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
    index = _followed(store, shard, folder)
    try:
        return LoggedTexts(index, load_encoder(index, model))
    except BaseException:
        index.close()
        raise


def replica(name: str, texts: LoggedTexts, *, writable: bool = True) -> Callable[..., Any]:
    """Return what `weft.serving.api.Server` takes in place of an index."""
    return lambda pool, limits: Following(name, texts, pool, limits, writable=writable)


def _followed(store: ShardStore, shard: Shard, folder: Path) -> LoggedIndex:
    path = store.fetch_shard(shard, folder / shard.name)
    return LoggedIndex.following(path, ShardLog(store.blobs, shard.log or shard.name), shard.at)


def compact(store: ShardStore, *, version: int | None = None, scratch: Path | None = None) -> Manifest:
    """Publish a version with all changes that the logs hold, so that replicas have less to read when they start.

    Changes go on meanwhile: the new shards follow the same logs, from the entries they were made after.

    Parameters
    ----------
    store : ShardStore
    version : int, optional
        The one that is served; by default the newest.
    scratch : path, optional
        Where one shard after another is worked on.
    """
    manifest, newest = store.latest() if version is None else store.manifest(version), store.versions()[-1]
    made = []
    for shard in manifest.shards:
        with tempfile.TemporaryDirectory(prefix="weft-compact-", dir=scratch) as folder:
            with _followed(store, shard, Path(folder)) as index:
                at = index.catch_up()
                if at > shard.at:
                    index.compact()
                path = index.folder
            log = shard.log or shard.name
            made.append(shard if at == shard.at else store.put_shard(f"{log}-at-{at}", path, log=log, at=at))
    if tuple(made) == manifest.shards:
        return manifest
    return store.publish(made, parent=newest, notes={**manifest.notes, "compacted": manifest.version})
