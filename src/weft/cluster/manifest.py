"""A version of a cluster's index: which shards it is made of, written once and checked whenever it is read."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from weft.errors import CorruptIndexError, DataError

FORMAT = "weft.cluster/1"
OF_MODEL = ("dim", "encoder", "model", "bits", "alignment", "salience_weighs")
"""What all shards of a version share."""


@dataclass(frozen=True)
class Shard:
    """An immutable index in the store."""

    name: str
    prefix: str
    """Where its files lie."""
    documents: int
    tokens: int
    settings: Mapping[str, Any]
    """See `OF_MODEL`."""
    files: Mapping[str, tuple[int, str]]
    """Bytes and SHA-256 of each."""
    log: str = ""
    """The log of its changes; by default named as the shard is."""
    at: int = 0
    """The entry of it that the shard was made after."""

    @property
    def bytes(self) -> int:
        """Of all files."""
        return sum(size for size, _ in self.files.values())

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> Shard:
        """Read what `asdict` wrote."""
        files = {str(name): (int(size), str(digest)) for name, (size, digest) in row["files"].items()}
        counts: dict[str, Any] = {name: int(row[name]) for name in ("documents", "tokens")}
        counts |= {"log": str(row.get("log", "")), "at": int(row.get("at", 0))}
        return cls(str(row["name"]), str(row["prefix"]), settings=dict(row["settings"]), files=files, **counts)


@dataclass(frozen=True)
class Manifest:
    """A published version."""

    version: int
    shards: tuple[Shard, ...]
    parent: int | None = None
    """The version that it was made from."""
    notes: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.shards:
            raise DataError("a version needs at least one shard")
        names = [shard.name for shard in self.shards]
        if len(set(names)) != len(names):
            raise DataError(f"a version cannot have two shards of one name: {', '.join(names)}")
        for name in OF_MODEL:
            values = {json.dumps(shard.settings.get(name)) for shard in self.shards}
            if len(values) > 1:
                raise DataError(f"shards of one version must agree in {name}; these have {', '.join(sorted(values))}")

    @property
    def documents(self) -> int:
        """Passages in all shards."""
        return sum(shard.documents for shard in self.shards)

    def to_bytes(self) -> bytes:
        """Return it as JSON that carries its own checksum."""
        return sealed(
            {
                "version": self.version,
                "parent": self.parent,
                "notes": dict(self.notes),
                "shards": [asdict(shard) for shard in self.shards],
            }
        )

    @classmethod
    def from_bytes(cls, data: bytes, where: str) -> Manifest:
        """Read it; `CorruptIndexError` if a byte has changed."""
        row = unsealed(data, where)
        try:
            shards: Sequence[Shard] = [Shard.from_json(shard) for shard in row["shards"]]
            return cls(int(row["version"]), tuple(shards), row["parent"], row["notes"])
        except (KeyError, TypeError, ValueError, DataError) as error:
            raise CorruptIndexError(f"{where}: damaged: it is not a manifest ({error})") from None


def sealed(row: Mapping[str, Any]) -> bytes:
    """Return JSON with its own SHA-256.

    Examples
    --------
    >>> unsealed(sealed({"a": 1}), "here")["a"]
    1
    """
    body = {"format": FORMAT, **row}
    return json.dumps({**body, "sha256": _digest(body)}, ensure_ascii=False, sort_keys=True).encode()


def unsealed(data: bytes, where: str) -> dict[str, Any]:
    """Return what `sealed` was given; `CorruptIndexError` if a byte has changed."""
    try:
        row = json.loads(data)
        digest = row.pop("sha256")
    except (ValueError, KeyError, AttributeError):
        raise CorruptIndexError(f"{where}: damaged: it is not whole") from None
    if digest != _digest(row):
        raise CorruptIndexError(f"{where}: damaged: its checksum does not fit")
    if row.get("format") != FORMAT:
        raise CorruptIndexError(f"{where}: of the format {row.get('format')!r}; this weft reads {FORMAT}")
    return dict(row)


def _digest(row: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(row, ensure_ascii=False, sort_keys=True).encode()).hexdigest()
