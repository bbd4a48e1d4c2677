"""Which version of a store is served: the last of a series of small objects, each made once."""

from __future__ import annotations

from weft.cluster.manifest import sealed, unsealed
from weft.cluster.store import ShardStore
from weft.errors import CorruptIndexError


def current(store: ShardStore) -> int | None:
    """Return the version to serve; None if none was chosen."""
    names = sorted(store.blobs.sizes("current"), reverse=True)
    for name in names:
        try:
            return int(unsealed(store.blobs.read(name), f"{store.url}/{name}")["version"])
        except (CorruptIndexError, KeyError, ValueError):
            continue  # torn: the one before it counts
    return None


def set_current(store: ShardStore, version: int) -> None:
    """Choose the version to serve from now on; the last choice counts."""
    store.manifest(version)  # refuses one that is unknown or not whole
    number = len(store.blobs.sizes("current")) + 1
    while not store.blobs.create(f"current/{number:08d}.json", sealed({"version": version})):
        number += 1
