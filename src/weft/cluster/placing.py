"""Which shard a document belongs to, and versions that tell how far each shard has come."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping

from weft.errors import invalid
from weft.storage.families import is_passage_id

_VERSION = re.compile(r"\d{1,9}:\d{1,18}(,\d{1,9}:\d{1,18})*")


def shard_of(id: str, shards: int) -> int:  # noqa: A002
    """Return the shard of a document; its passages are there, too.

    Examples
    --------
    >>> [shard_of(name, 4) for name in ("mars", "mars##3", "sea")]
    [2, 2, 1]
    """
    name = id.rpartition("##")[0] if is_passage_id(id) else id
    return int.from_bytes(hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest()) % shards


def to_version(shards: Mapping[int, int]) -> str:
    """Return how far shards have come as text.

    Examples
    --------
    >>> to_version({2: 5, 0: 17}), read_version("0:17,2:5")
    ('0:17,2:5', {0: 17, 2: 5})
    """
    return ",".join(f"{shard}:{shards[shard]}" for shard in sorted(shards))


def read_version(text: str) -> dict[int, int]:
    """Read what `to_version` wrote."""
    if not _VERSION.fullmatch(text):
        raise invalid("at_least", "the request", "the version that a write returned", text)
    return {int(shard): int(at) for shard, at in (pair.split(":") for pair in text.split(","))}
