"""What `weft cluster` does: build, serve, roll and stop, by Ray."""

from __future__ import annotations

import contextlib
import logging
import secrets
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from weft.cluster.building import Job, build_shard, find_codebook, publish
from weft.cluster.current import current, set_current
from weft.cluster.manifest import Manifest
from weft.cluster.ray_actors import (
    ASKED,
    NAMESPACE,
    ROUTER,
    RouterActor,
    addresses,
    node_ids,
    replica_name,
    start_replicas,
)
from weft.cluster.store import ShardStore
from weft.errors import DataError, WeftError
from weft.serving.naming import is_loopback

WARM_SECONDS = 600.0


@contextlib.contextmanager
def joined(address: str = "auto") -> Iterator[None]:
    """Join a running Ray cluster."""
    if ray.is_initialized():
        yield
        return
    try:
        # On a machine with several nodes Ray must be told which of them is ours: the head's.
        host = address.rpartition(":")[0]
        own = {"_node_ip_address": host} if host.startswith("127.") else {}
        ray.init(address=address, namespace=NAMESPACE, log_to_driver=False, logging_level=logging.WARNING, **own)
    except (ConnectionError, RuntimeError, ValueError) as error:
        first = str(error).splitlines()[0]
        raise WeftError(
            f"no Ray cluster at {address}, or its token is another one: weft cluster up, or ray start ({first})"
        ) from None
    try:
        yield
    finally:
        ray.shutdown()


class _Builder:
    """Ray Data's worker: it has loaded the model, and builds one shard after another."""

    def __init__(self, job: Job, store: str) -> None:
        from weft.encoders import Encoder

        self._job, self._store, self._encoder = job, ShardStore(store), Encoder.load(job.model)

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        shard = build_shard(self._job, int(row["shard"]), self._store, encoder=self._encoder)
        return {"shard": int(row["shard"]), "documents": shard.documents, "tokens": shard.tokens}


def build(
    sources: Sequence[str | Path],
    store: str,
    shards: int,
    *,
    model: str | None = None,
    bits: int = 8,
    id_scope: str = "file",
    workers: int | None = None,
    cpus: float = 1.0,
    gpus: float = 0.0,
    told: Callable[[int, int, int], None] | None = None,
) -> Manifest:
    """Build shards on all nodes and publish them; shards that are in the store already are not built again.

    Parameters
    ----------
    sources : sequence of paths
        Files and folders that every node can read.
    store : str
    shards : int
    model, bits
        As for `TextIndex.open`.
    id_scope : str
        "global" takes the ids of rows as they are.
    workers : int, optional
        Processes with a model; by default one for each node and `cpus`.
    cpus, gpus : float
        Processors and GPUs of each worker; models that run on torch use the GPU.
    told : function of (shards done, shards, documents), optional
    """
    job, where = Job.of(sources, shards, model=model, bits=bits, id_scope=id_scope), ShardStore(store)
    _check_nodes(cpus, gpus)
    todo = [number for number in range(shards) if where.shard(job.shard(number)) is None]
    done, documents = shards - len(todo), 0
    if todo:
        import ray.data

        logging.getLogger("ray.data").setLevel(logging.ERROR)  # `told` says how far it is
        context = ray.data.DataContext.get_current()
        context.enable_progress_bars = False
        context.print_on_execution_start = False
        # The output of a task is a line: without this Ray would keep 100 MB for each.
        context.target_max_block_size = 2**20
        there: Any = ray.cluster_resources()
        most = workers or max(1, int(there.get("GPU", 0) // gpus if gpus else there.get("CPU", 1) // cpus))
        found: Any = ray.remote(_find_codebook).options(num_cpus=cpus, num_gpus=gpus, max_retries=-1)
        ray.get(found.remote(job, store))  # before the shards, which share it
        rows = ray.data.from_items([{"shard": number} for number in todo], override_num_blocks=len(todo))
        built = rows.map(
            _Builder,
            fn_constructor_args=(job, store),
            compute=ray.data.ActorPoolStrategy(
                min_size=1, max_size=min(most, len(todo)), max_tasks_in_flight_per_actor=1
            ),
            num_cpus=cpus,
            num_gpus=gpus,
        )
        for row in built.iter_rows():
            done, documents = done + 1, documents + int(row["documents"])
            if told is not None:
                told(done, shards, documents)
    return publish(job, where)


def _check_nodes(cpus: float, gpus: float) -> None:
    """Refuse workers that no node has room for: Ray would wait for one for ever."""
    known: Any = ray.nodes()
    for what, wanted in (("CPU", cpus), ("GPU", gpus)):
        most = max((node["Resources"].get(what, 0) for node in known if node["Alive"]), default=0)
        if wanted > most:
            raise DataError(f"a worker cannot have {wanted:g} {what}s: the nodes have at most {most:g}")


def _find_codebook(job: Job, store: str) -> None:
    find_codebook(job, ShardStore(store))


class Serving(NamedTuple):
    """A cluster that serves."""

    url: str
    version: int
    shards: int
    replicas: int


def serve(
    name: str,
    store: str,
    *,
    replicas: int = 2,
    shards: int | None = None,
    version: int | None = None,
    host: str = "127.0.0.1",
    port: int = 8080,
    keys: str | None = None,
    model: str | None = None,
    folder: str | None = None,
    threads: int = 1,
    cpus: float = 0.0,
    seconds: float = WARM_SECONDS,
) -> Serving:
    """Start replicas of every shard and a router; return when it answers.

    The router is on the node whose address `host` is; for this machine's own, on the node that this is called on.
    """
    there = _router_of(name)
    if there is not None and (at := ray.get(there.url.remote(), timeout=60)):
        raise WeftError(f"{name!r} is served already, at {at}: weft cluster roll, or weft cluster down first")
    where = ShardStore(store)
    chosen = version if version is not None else current(where) or where.latest().version
    made = len(where.manifest(chosen).shards)
    if shards is not None and shards != made:
        raise DataError(f"version {chosen} of {store} has {made} shards, not {shards}: weft cluster index makes them")
    nodes, router_node = node_ids(), _node_at(host)
    if replicas > len(nodes):  # refused before anything is started
        raise DataError(f"{replicas} replicas need as many nodes; the cluster has {len(nodes)}")
    settings: dict[str, Any] = {
        **{"store": store, "replicas": replicas, "cpus": cpus, "host": host, "port": port, "keys": keys},
        **{"secret": secrets.token_urlsafe(32), "model": model, "threads": threads},
        "folder": folder or str(Path(tempfile.gettempdir()) / "weft-replicas"),
    }
    set_current(where, chosen)
    # The router waits for the shards. If it exists, an earlier call started it: its settings stay, since the servers
    # know each other by their key.
    router = RouterActor.options(  # type: ignore[attr-defined]
        name=f"{name}/{ROUTER}",
        namespace=NAMESPACE,
        lifetime="detached",
        get_if_exists=True,
        num_cpus=0,
        memory=ASKED,
        max_concurrency=4,
        scheduling_strategy=NodeAffinitySchedulingStrategy(router_node, soft=True),
    ).remote(name, settings)
    settings = ray.get(router.settings.remote(), timeout=seconds)
    try:
        *_, url = _warm([*_replicas_of(name, chosen, made, settings), router], seconds, patient=False)
    except CannotServeError:
        down(name)
        raise
    return Serving(url, chosen, made, settings["replicas"])


class CannotServeError(WeftError):
    """A server says why it cannot start."""


def _node_at(host: str) -> str:
    """Return the node whose router can listen at an address."""
    alive, known = node_ids(), addresses()
    for node in alive:
        if known[node] == host:
            return node
    if is_loopback(host):
        return str(ray.get_runtime_context().get_node_id())
    raise DataError(f"no node has the address {host}; there are {', '.join(sorted(known[node] for node in alive))}")


def _replicas_of(name: str, version: int, shards: int, settings: Mapping[str, Any]) -> list[Any]:
    options = {key: settings[key] for key in ("cpus", "secret", "model", "folder", "threads")}
    return start_replicas(name, settings["store"], version, shards, settings["replicas"], **options)


def _warm(actors: Sequence[Any], seconds: float, *, patient: bool = True) -> list[str]:
    """Return the addresses of servers once all of them are warm; one that cannot start tries again, if `patient`."""
    until = time.monotonic() + seconds
    urls = [""] * len(actors)
    while not all(urls):
        if time.monotonic() > until:
            raise WeftError(f"{urls.count('')} of {len(urls)} servers were not ready within {seconds:g} seconds")
        for at, actor in enumerate(actors):
            if not urls[at]:
                problem = ""
                with contextlib.suppress(ray.exceptions.RayError):
                    urls[at] = ray.get(actor.url.remote(1.0), timeout=60)
                    problem = "" if patient else ray.get(actor.problem.remote(), timeout=60)
                if problem:
                    raise CannotServeError(problem)
    return urls


def _router_of(name: str) -> Any:
    """Return the actor of a cluster's router, or None."""
    try:
        return ray.get_actor(f"{name}/{ROUTER}", NAMESPACE)
    except ValueError:
        return None


def _router(name: str) -> Any:
    found = _router_of(name)
    if found is None:
        raise DataError(f"no cluster serves {name!r}: weft cluster serve STORE --name {name}")
    return found


def router_url(name: str, seconds: float = 30.0) -> str:
    """Return the address of a cluster's router."""
    return str(ray.get(_router(name).url.remote(seconds), timeout=seconds + 30))


def roll(name: str, version: int | None = None, *, seconds: float = WARM_SECONDS) -> Serving:
    """Serve another version: warm its replicas, then point the router to them, then stop the old ones."""
    router = _router(name)
    settings: Any = ray.get(router.settings.remote(), timeout=60)
    where, before = ShardStore(settings["store"]), int(ray.get(router.served.remote(), timeout=60))
    replicas = int(settings["replicas"])
    manifest = where.latest() if version is None else where.manifest(version)
    shards = len(manifest.shards)
    model, now = settings["model"], where.manifest(before).shards[0].settings if before else {}
    if model and now and manifest.shards[0].settings["encoder"] != now["encoder"]:
        raise DataError(
            f"version {manifest.version} was made with another model than {model}, with which {name!r} is served: "
            "weft cluster down, then serve it with its own --model"
        )
    if manifest.version != before:
        _warm(_replicas_of(name, manifest.version, shards, settings), seconds)
        set_current(where, manifest.version)
        until = time.monotonic() + seconds
        while ray.get(router.served.remote(), timeout=60) != manifest.version:
            if time.monotonic() > until:
                raise WeftError(f"the router did not turn to version {manifest.version} within {seconds:g} seconds")
            time.sleep(0.1)
        time.sleep(DRAIN_SECONDS)  # requests in progress finish on the old ones
        _stop(name, before, len(where.manifest(before).shards), replicas)
    return Serving(router_url(name), manifest.version, shards, replicas)


DRAIN_SECONDS = 2.0
"""How long old replicas stay after the router has turned away from them."""


def _stop(name: str, version: int, shards: int, replicas: int) -> None:
    for shard in range(shards):
        for number in range(replicas):
            with contextlib.suppress(ValueError):
                ray.kill(ray.get_actor(replica_name(name, version, shard, number), NAMESPACE), no_restart=True)


class ReplicaStatus(NamedTuple):
    """A replica, as Ray knows it."""

    actor: str
    state: str
    node: str
    url: str
    behind: int = -1
    """Changes that another replica of the shard has, and this one has not; -1 if unknown."""


def status(name: str) -> tuple[int, str, list[ReplicaStatus]]:
    """Return the version that is served, the router's address, and where the replicas are."""
    from ray.util import list_named_actors

    router = _router(name)
    version = int(ray.get(router.served.remote(), timeout=60))
    rows, positions = [], {}
    for row in list_named_actors(all_namespaces=True):
        if row["namespace"] != NAMESPACE or not row["name"].startswith(f"{name}/") or row["name"].count("/") != 3:
            continue
        try:
            actor = ray.get_actor(row["name"], NAMESPACE)
            asked: Any = [actor.url.remote(), actor.node.remote(), actor.position.remote()]
            url, node, positions[row["name"]] = ray.get(asked, timeout=5)
            rows.append(ReplicaStatus(row["name"], "warm" if url else "warming", node[:12], url))
        except (ValueError, ray.exceptions.RayError):
            rows.append(ReplicaStatus(row["name"], "restarting", "", ""))
    newest: dict[str, int] = {}
    for actor_name, position in positions.items():
        shard = actor_name.rpartition("/")[0]
        newest[shard] = max(newest.get(shard, 0), position)
    behind = {name: newest[name.rpartition("/")[0]] - at for name, at in positions.items() if at >= 0}
    return version, router_url(name), sorted(row._replace(behind=behind.get(row.actor, -1)) for row in rows)


def down(name: str) -> int:
    """Stop a cluster's servers; return how many there were. What is in the store stays."""
    from ray.util import list_named_actors

    stopped = 0
    for row in list_named_actors(all_namespaces=True):
        if row["namespace"] == NAMESPACE and row["name"].startswith(f"{name}/"):
            with contextlib.suppress(ValueError):
                ray.kill(ray.get_actor(row["name"], NAMESPACE), no_restart=True)
                stopped += 1
    return stopped
