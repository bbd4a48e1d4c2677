"""Keys: who may read, write and administer, and how often each may ask."""

from __future__ import annotations

import hashlib
import hmac
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from weft.errors import DataError

SCOPES = ("read", "write", "admin")
"""Each scope allows what those before it allow."""
SHORTEST = 16
_HASHED = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True)
class Key:
    """A key as the server knows it: by its hash."""

    name: str
    scope: str
    digest: bytes

    def allows(self, scope: str) -> bool:
        """Tell whether the key allows what needs a scope."""
        return SCOPES.index(self.scope) >= SCOPES.index(scope)


class Keys:
    """The keys of one server.

    Examples
    --------
    >>> keys = Keys.parse(["page read correct-horse-battery"])
    >>> keys.find("correct-horse-battery").name
    'page'
    >>> keys.find("wrong") is None
    True
    """

    def __init__(self, keys: Iterable[Key]) -> None:
        self._keys = list(keys)

    def __len__(self) -> int:
        return len(self._keys)

    @classmethod
    def parse(cls, lines: Iterable[str], source: str = "the keys") -> Keys:
        """Read lines of ``name scope key``; the key as it is, or as ``sha256:`` and its hash in hexadecimal."""
        found: dict[str, Key] = {}
        for number, line in enumerate(lines, 1):
            parts = line.split("#")[0].split()
            if not parts:
                continue
            where = f"line {number} of {source}"
            if len(parts) != 3 or parts[1] not in SCOPES:
                raise DataError(f"{where} must be: name scope key, the scope one of {', '.join(SCOPES)}")
            name, scope, secret = parts
            if name in found:
                raise DataError(f"{where}: the name {name!r} occurs twice")
            if secret.startswith("sha256:"):
                if not _HASHED.fullmatch(secret):
                    raise DataError(f"{where}: sha256: must be followed by 64 hexadecimal digits")
                digest = bytes.fromhex(secret.removeprefix("sha256:"))
            elif len(secret) < SHORTEST:
                raise DataError(f"{where}: a key must have at least {SHORTEST} characters")
            else:
                digest = _digest(secret)
            found[name] = Key(name, scope, digest)
        if not found:
            raise DataError(f"{source} has no key: write lines of name, scope and key")
        return cls(found.values())

    @classmethod
    def read(cls, path: Path) -> Keys:
        """Read a file of keys."""
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(f"{path} cannot be read: {error}") from None
        return cls.parse(lines, str(path))

    def find(self, secret: str) -> Key | None:
        """Return the key with this secret; the time it takes tells nothing about the secret."""
        digest, found = _digest(secret), None
        for key in self._keys:
            if hmac.compare_digest(key.digest, digest):
                found = key
        return found


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()


class RateLimit:
    """A bucket of requests for each name, filled again at `rate` a second, holding at most twice as many."""

    def __init__(self, rate: float | None) -> None:
        self._rate = rate
        self._buckets: dict[str, tuple[float, float]] = {}  # what is left, and when

    def wait(self, name: str) -> float:
        """Take one request; return 0, or the seconds until there will be one."""
        if self._rate is None:
            return 0.0
        now, most = time.monotonic(), max(2 * self._rate, 1.0)
        left, then = self._buckets.get(name, (most, now))
        left = min(most, left + (now - then) * self._rate)
        self._buckets[name] = (left - 1 if left >= 1 else left, now)
        return 0.0 if left >= 1 else (1 - left) / self._rate
