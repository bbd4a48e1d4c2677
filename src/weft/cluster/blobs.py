"""Where a store keeps its bytes: a folder, or an S3-compatible service. Keys are paths with ``/``.

Nothing is ever overwritten: `create` makes an object that is not there, whole, or says that it is there.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

from weft.errors import DataError, StorageError, WeftError, first_line, missing_extra

TIMEOUT = timedelta(seconds=30)
"""The time-out of each request to an S3-compatible service."""
RETRIES = {"max_retries": 4, "retry_timeout": timedelta(seconds=60)}
"""Obstore retries failed requests for this long; its own default is three minutes."""


class NoSuchBlobError(WeftError, FileNotFoundError):
    """Nothing has this key."""


class Blobs(Protocol):
    """What a store needs of the place that keeps it."""

    url: str

    def read(self, key: str) -> bytes:
        """Return an object's bytes; `NoSuchBlobError` if there is none."""
        ...

    def create(self, key: str, data: bytes | Path) -> bool:
        """Make an object of bytes or of a file, durably; False if there is one already."""
        ...

    def download(self, key: str, to: Path) -> None:
        """Write an object into a file."""
        ...

    def sizes(self, prefix: str) -> dict[str, int]:
        """Return the objects whose keys begin with a folder, and their bytes."""
        ...


def open_blobs(url: str) -> Blobs:
    """Open a folder (a path), or ``s3://bucket/prefix`` with the settings of the environment (``AWS_…``)."""
    if url.startswith("s3://"):
        return ObjectBlobs(url)
    if "://" in url:
        raise DataError(f"a store is a folder or s3://bucket/prefix, not {url}")
    return FolderBlobs(Path(url))


class FolderBlobs:
    """Objects as files."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.url = folder.absolute(), str(folder)

    def read(self, key: str) -> bytes:
        try:
            return (self.folder / key).read_bytes()
        except FileNotFoundError:
            raise NoSuchBlobError(f"{self.url}/{key} is missing") from None
        except OSError as error:
            raise StorageError(f"{self.url}/{key} cannot be read: {error.strerror}") from None

    def create(self, key: str, data: bytes | Path) -> bool:
        path = self.folder / key
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            return False
        draft = path.parent / f".{secrets.token_hex(8)}.draft"  # no key that `sizes` would list
        try:
            with draft.open("wb") as file:
                if isinstance(data, Path):
                    with data.open("rb") as source:
                        shutil.copyfileobj(source, file, 2**20)
                else:
                    file.write(data)
                file.flush()
                os.fsync(file.fileno())
            try:
                os.link(draft, path)  # unlike a rename it fails if somebody else was first
            except FileExistsError:
                return False
            _sync_folder(path.parent)
        except OSError as error:
            raise StorageError(f"{self.url}/{key} cannot be written: {error.strerror}") from None
        finally:
            draft.unlink(missing_ok=True)
        return True

    def download(self, key: str, to: Path) -> None:
        try:
            shutil.copyfile(self.folder / key, to)
        except FileNotFoundError:
            raise NoSuchBlobError(f"{self.url}/{key} is missing") from None
        except OSError as error:
            raise StorageError(f"{self.url}/{key} cannot be read: {error.strerror}") from None

    def sizes(self, prefix: str) -> dict[str, int]:
        return dict(self._walk(self.folder / prefix)) if (self.folder / prefix).is_dir() else {}

    def _walk(self, folder: Path) -> Iterator[tuple[str, int]]:
        for path in sorted(folder.rglob("*")):
            if path.is_file() and not path.name.startswith("."):
                yield path.relative_to(self.folder).as_posix(), path.stat().st_size


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class ObjectBlobs:
    """Objects of an S3-compatible service, by obstore; addresses and keys come from the environment (``AWS_…``)."""

    def __init__(self, url: str) -> None:
        try:
            import obstore
            from obstore.store import from_url
        except ImportError:
            raise missing_extra("obstore", "cluster", url) from None
        self.url, self._obstore = url.rstrip("/"), obstore
        plain = os.environ.get("AWS_ENDPOINT_URL", os.environ.get("AWS_ENDPOINT", "")).startswith("http://")
        client = {"timeout": TIMEOUT, "connect_timeout": TIMEOUT, **({"allow_http": True} if plain else {})}
        options: dict[str, Any] = {"client_options": client, "retry_config": RETRIES}
        try:
            self._store: Any = from_url(self.url, **options)
        except Exception as error:
            raise DataError(f"the store {url} cannot be opened: {first_line(error)}") from None

    def read(self, key: str) -> bytes:
        return bytes(self._got(key).bytes())

    def create(self, key: str, data: bytes | Path) -> bool:
        try:
            # One request: a multipart upload cannot be told to create and not to replace.
            self._obstore.put(self._store, key, data, mode="create", use_multipart=False)
        except self._obstore.exceptions.AlreadyExistsError:
            return False
        except self._obstore.exceptions.BaseError as error:
            raise StorageError(f"{self.url}/{key} cannot be written: {first_line(error)}") from None
        return True

    def download(self, key: str, to: Path) -> None:
        with to.open("wb") as file:
            try:
                for chunk in self._got(key).stream(min_chunk_size=2**20):
                    file.write(chunk)
            except self._obstore.exceptions.BaseError as error:
                raise StorageError(f"{self.url}/{key} cannot be read: {first_line(error)}") from None

    def _got(self, key: str) -> Any:
        try:
            return self._obstore.get(self._store, key)
        except (FileNotFoundError, self._obstore.exceptions.NotFoundError):
            raise NoSuchBlobError(f"{self.url}/{key} is missing") from None
        except self._obstore.exceptions.BaseError as error:
            raise StorageError(f"{self.url}/{key} cannot be read: {first_line(error)}") from None

    def sizes(self, prefix: str) -> dict[str, int]:
        found: dict[str, int] = {}
        try:
            for batch in self._obstore.list(self._store, prefix=f"{prefix.rstrip('/')}/"):
                found.update((row["path"], int(row["size"])) for row in batch)
        except self._obstore.exceptions.BaseError as error:
            raise StorageError(f"{self.url} cannot be listed: {first_line(error)}") from None
        return found
