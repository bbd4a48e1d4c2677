"""From sources to a published version: one task builds each shard, under a name derived from its contents.

A task that is retried finds its shard in the store or builds it again; it cannot be there twice. The ids of documents
alone decide which shard has them (`weft.cluster.placing.shard_of`).
"""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from weft.checks import check_count
from weft.cluster import codebook
from weft.cluster.manifest import Manifest, Shard
from weft.cluster.placing import shard_of
from weft.cluster.store import ShardStore
from weft.encoders import Encoder
from weft.errors import DataError
from weft.sources.files import Source, read_sources
from weft.sources.find import Found, Selection, find
from weft.sources.records import Fields
from weft.storage import merger
from weft.storage.segments.writing import Shared
from weft.text_index import TextIndex

_log = logging.getLogger("weft.cluster")


@dataclass(frozen=True)
class Job:
    """What to build: the same job has the same shards, whoever builds them."""

    sources: tuple[str, ...]
    """Paths that every machine can read"""
    shards: int
    model: str | None = None
    bits: int = 8
    id_scope: str = "file"
    """Whether the ids of rows are unique per file or across all: see `weft.sources.records.Fields`"""
    fingerprint: str = ""
    """Of the model"""
    files: str = ""
    """Of the files that the sources are: names, sizes and times"""

    @classmethod
    def of(
        cls,
        sources: Sequence[str | Path],
        shards: int,
        *,
        model: str | None = None,
        bits: int = 8,
        id_scope: str = "file",
    ) -> Job:
        """Look at the sources and the model."""
        Fields(scope=id_scope)  # refuses what is not known
        check_count(shards, "shards", "cluster index", 65536)
        paths = tuple(str(Path(source).absolute()) for source in sources)
        found = _found(paths)
        if not found:
            raise DataError(f"nothing to index in {', '.join(map(str, sources))}")
        rows = sorted((str(one.path), one.size, one.path.stat().st_mtime_ns) for one in found)
        digest = hashlib.sha256(json.dumps(rows).encode()).hexdigest()
        return cls(paths, shards, model, bits, id_scope, Encoder.load(model).fingerprint, digest)

    @property
    def name(self) -> str:
        """A hash of everything that the shards depend on."""
        row = {name: value for name, value in asdict(self).items() if name != "model"}
        return hashlib.sha256(json.dumps(row, sort_keys=True).encode()).hexdigest()[:16]

    def shard(self, number: int) -> str:
        """Return a shard's name."""
        return f"{self.name}-{number:04d}-of-{self.shards:04d}"


def find_codebook(job: Job, store: ShardStore, *, encoder: Encoder | None = None) -> Shared | None:
    """Find what the shards of a job share, unless it is in the store; None if they are too small for that."""
    found = codebook.known(store, job.name)
    if found is None and sum(file.size for file in _found(job.sources)) >= merger.CODED_TOKENS / 2 * job.shards:
        sources = read_sources(_found(job.sources), Fields(scope=job.id_scope), lambda _: None)
        found = codebook.find(store, job.name, sources, job.shards, encoder or Encoder.load(job.model))
    return found


def _found(paths: Iterable[str]) -> list[Found]:
    return list(find(list(paths), Selection(), lambda _: None))


def build_shard(job: Job, number: int, store: ShardStore, *, encoder: Encoder | None = None) -> Shard:
    """Build one shard and store it; if it is there already, return it."""
    name = job.shard(number)
    known = store.shard(name)
    if known is not None:
        return known
    if job != Job.of(job.sources, job.shards, model=job.model, bits=job.bits, id_scope=job.id_scope):
        raise DataError("the sources have changed since the build began: start it again")
    encoder = encoder or Encoder.load(job.model)
    shared = find_codebook(job, store, encoder=encoder)
    scratch = Path(tempfile.mkdtemp(prefix="weft-build-"))
    try:
        path = scratch / f"{name}.weft"
        with TextIndex.open(path, create=True, model=job.model, bits=job.bits) as texts:
            texts.encoder = encoder
            texts.index.merging.shared = shared
            fields = Fields(scope=job.id_scope)
            mine = _mine(read_sources(_found(job.sources), fields, lambda _: None), number, job.shards)
            summary = texts.add_sources(mine, progress=False)
            texts.compact()
            _log.info("shard %s: %s", name, summary)
        return store.put_shard(name, path)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _mine(sources: Iterable[Source], number: int, shards: int) -> Iterator[Source]:
    return (source for source in sources if shard_of(source.id, shards) == number)


def publish(job: Job, store: ShardStore) -> Manifest:
    """Publish the shards of a job as the next version; return the newest one if it has them already."""
    shards = [store.shard(job.shard(number)) for number in range(job.shards)]
    missing = sum(shard is None for shard in shards)
    if missing:
        raise DataError(f"{missing} of {job.shards} shards are not built yet")
    made = [shard for shard in shards if shard is not None]
    versions = store.versions()
    if versions:
        newest = store.latest()
        if [shard.name for shard in newest.shards] == [shard.name for shard in made]:
            return newest
    return store.publish(made, parent=versions[-1] if versions else None, notes=_notes(job))


def _notes(job: Job) -> dict[str, Any]:
    return {"sources": list(job.sources), "placed": "hash"}
