"""`ShardStore`: versions of an index, each a list of immutable shards, in a folder or an S3-compatible service.

    shards/NAME/shard.json              what the shard is: its files with their checksums
    shards/NAME/ATTEMPT/…               the files, an ordinary index
    versions/00000003.json              a version

A shard exists once its ``shard.json`` does, a version once its manifest does. Each is made by creating an object, which
fails if it exists, so of two attempts one wins and the other learns that it lost. Each attempt puts its files under a
name of its own, so a task that is retried, or runs twice, never mixes its files with another's.
"""

from __future__ import annotations

import hashlib
import logging
import secrets
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from weft.cluster.blobs import Blobs, NoSuchBlobError, open_blobs
from weft.cluster.manifest import OF_MODEL, Manifest, Shard, sealed, unsealed
from weft.errors import CorruptIndexError, DataError, IndexStateError, invalid
from weft.serving.naming import NAME
from weft.storage.database import write_ahead
from weft.storage.folder import check_folder
from weft.storage.snapshot import snapshot
from weft.text_index import TextIndex

_log = logging.getLogger("weft.cluster")


class PublishedElsewhereError(IndexStateError):
    """Somebody else has published a version with this number."""


class ShardStore:
    """Versions and shards at one place.

    Parameters
    ----------
    url : str
        A folder, or ``s3://bucket/prefix``.

    Examples
    --------
    >>> import tempfile
    >>> ShardStore(tempfile.mkdtemp()).versions()
    []
    """

    def __init__(self, url: str | Path | Blobs) -> None:
        self.blobs = open_blobs(str(url)) if isinstance(url, str | Path) else url

    @property
    def url(self) -> str:
        """Where it lies."""
        return self.blobs.url

    # -- versions ------------------------------------------------------------------------------------

    def versions(self) -> list[int]:
        """Return the numbers of all published versions, damaged ones included."""
        names = (key.rpartition("/")[2].removesuffix(".json") for key in self.blobs.sizes("versions"))
        return sorted(int(name) for name in names if name.isdecimal())

    def manifest(self, version: int) -> Manifest:
        """Return a version; refuse one that is unknown or damaged, or lacks a file."""
        key = f"versions/{version:08d}.json"
        try:
            found = Manifest.from_bytes(self.blobs.read(key), f"{self.url}/{key}")
        except NoSuchBlobError:
            known = ", ".join(map(str, self.versions())) or "none"
            raise DataError(f"{self.url} has no version {version}; it has {known}") from None
        if found.version != version:
            raise CorruptIndexError(f"{self.url}/{key}: damaged: it says that it is version {found.version}")
        for shard in found.shards:
            there = self.blobs.sizes(shard.prefix)
            for name, (size, _) in shard.files.items():
                if there.get(f"{shard.prefix}/{name}") != size:
                    lost = "is missing" if f"{shard.prefix}/{name}" not in there else "has another size"
                    raise CorruptIndexError(f"{self.url}/{shard.prefix}/{name} of version {version} {lost}")
        return found

    def latest(self) -> Manifest:
        """Return the newest version that is whole; newer ones that are damaged are reported and passed over."""
        problem: CorruptIndexError | None = None
        for version in reversed(self.versions()):
            try:
                return self.manifest(version)
            except CorruptIndexError as error:
                _log.warning("version %d cannot be used: %s", version, error)
                problem = problem or error
        if problem is not None:
            raise problem
        raise DataError(f"nothing is published in {self.url}: weft cluster index SOURCE -o {self.url}")

    def publish(
        self, shards: Sequence[Shard], *, parent: int | None, notes: Mapping[str, Any] | None = None
    ) -> Manifest:
        """Publish the next version; `PublishedElsewhereError` if somebody else was first.

        Parameters
        ----------
        shards : sequence of Shard
            All of the same model.
        parent : int or None
            The newest version that the caller knows: if there is a newer one, nothing is published.
        """
        newest = max(self.versions(), default=0)
        if newest != (parent or 0):
            raise self._elsewhere(newest)
        made = Manifest(newest + 1, tuple(shards), parent, notes or {})
        if not self.blobs.create(f"versions/{made.version:08d}.json", made.to_bytes()):
            raise self._elsewhere(made.version)
        return made

    def _elsewhere(self, version: int) -> PublishedElsewhereError:
        return PublishedElsewhereError(f"version {version} of {self.url} was published in the meantime: start from it")

    # -- shards --------------------------------------------------------------------------------------

    def shard(self, name: str) -> Shard | None:
        """Return a shard that was stored whole, or None."""
        key = f"shards/{name}/shard.json"
        try:
            row = unsealed(self.blobs.read(key), f"{self.url}/{key}")
            return Shard.from_json(row)
        except NoSuchBlobError:
            return None
        except (KeyError, TypeError, ValueError) as error:
            raise CorruptIndexError(f"{self.url}/{key}: damaged: {error}") from None

    def put_shard(self, name: str, index: Path, *, log: str = "", at: int = 0) -> Shard:
        """Store the newest state of an index as a shard; one of this name that is there already is returned instead.

        Parameters
        ----------
        name : str
        index : path
        log, at : str and int, optional
            The log of the shard's changes, and the entry of it that the index has come to.
        """
        if not NAME.fullmatch(name):
            raise invalid("name", "put_shard", "letters, digits, '.', '_' and '-'", name)
        known = self.shard(name)
        if known is not None:
            return known
        with tempfile.TemporaryDirectory(prefix="weft-shard-", dir=index.parent) as draft:
            folder = Path(draft) / "index"
            snapshot(index, folder)
            with TextIndex.open(folder) as texts:
                info = texts.index.info()
                settings: dict[str, Any] = {name: info[name] for name in OF_MODEL if name in info}
                settings["encoder"], settings["model"] = texts.index.encoder_fingerprint, texts.index.model
            for extra in ("catalogue.sqlite-wal", "catalogue.sqlite-shm", "writer.lock"):
                (folder / extra).unlink(missing_ok=True)
            prefix = f"shards/{name}/{secrets.token_hex(8)}"
            files: dict[str, tuple[int, str]] = {}
            for path in sorted(p for p in folder.rglob("*") if p.is_file()):
                file = path.relative_to(folder).as_posix()
                files[file] = (path.stat().st_size, _digest(path))
                self.blobs.create(f"{prefix}/{file}", path)
        made = Shard(name, prefix, info["documents"], info["tokens"], settings, files, log, at)
        if self.blobs.create(f"shards/{name}/shard.json", sealed(asdict(made))):
            return made
        known = self.shard(name)  # another attempt was first: its files count, ours are never looked at
        assert known is not None
        return known

    def fetch_shard(self, shard: Shard, to: Path) -> Path:
        """Bring a shard's files here, check every byte, and return their folder; what is here already is kept."""
        if to.exists():
            return to
        to.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=".fetching-", dir=to.parent))
        try:
            for name, (size, digest) in shard.files.items():
                path = draft / name
                if not path.resolve().is_relative_to(draft.resolve()):
                    raise CorruptIndexError(f"{self.url}/{shard.prefix}: {name!r} leads out of the shard")
                path.parent.mkdir(parents=True, exist_ok=True)
                self.blobs.download(f"{shard.prefix}/{name}", path)
                if path.stat().st_size != size or _digest(path) != digest:
                    raise CorruptIndexError(f"{self.url}/{shard.prefix}/{name}: damaged: its checksum does not fit")
            check_folder(draft)
            write_ahead(draft)  # shards that weft 0.2.0 stored do not
            draft.chmod(0o755)
            try:
                draft.rename(to)
            except OSError:
                if not to.exists():  # somebody else was first
                    raise
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        return to


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
