"""What Ray does: it places servers, restarts them, and knows where they are. No query goes through it.

A shard's replica is an actor whose process runs the ordinary server of `weft serve`; the router's actor runs the
router. All state is in the store: an actor that is restarted, on this machine or another, fetches what it needs.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from weft.cluster.current import current
from weft.cluster.fleet import Fleet
from weft.cluster.manifest import Manifest
from weft.cluster.replicas import Replicas
from weft.cluster.store import ShardStore
from weft.errors import DataError

NAMESPACE = "weft"
ROUTER = "router"
LOOK_SECONDS = 0.5
"""How often a router asks Ray where replicas are."""
ASKED = 2**20
"""Bytes that servers ask Ray for: of an actor that asks for nothing it ignores the node. CPU would make a replica that
is restarted wait for the end of a build."""
TOLD_SECONDS = 3.0
"""How long a server that cannot start is there to say why."""
_log = logging.getLogger("weft.cluster")


def replica_name(name: str, version: int, shard: int, number: int) -> str:
    """Return the name of a replica's actor."""
    return f"{name}/{version}/{shard}/{number}"


class _Server:
    """A server in a thread of an actor's process."""

    def __init__(self) -> None:
        self.url = ""
        self.problem = ""
        self._ready = threading.Event()

    def start(self, make: Any, host: str, port: int) -> None:
        threading.Thread(target=self._run, args=(make, host, port), daemon=True).start()

    def _run(self, make: Any, host: str, port: int) -> None:
        try:
            from weft.serving import running
            from weft.serving.naming import listening

            listener = listening(host, port, listen=False)  # who has the address already is told at once
            server = make()
            running.check_exposed(host, server.keys)
            running.run(server, listener, ready=self._announce)
        except BaseException as error:
            self.problem = str(error) or type(error).__name__
            _log.error("a server ended: %s", self.problem)
            time.sleep(TOLD_SECONDS)
        os._exit(1)  # Ray starts the actor again

    def _announce(self, address: str) -> None:
        self.url = address
        self._ready.set()

    def wait(self, seconds: float) -> str:
        self._ready.wait(seconds)
        return self.url


def _keys(secret: str | None) -> Any:
    from weft.serving.keys import Keys

    return None if secret is None else Keys.parse([f"router write {secret}"], "the cluster's key")


@ray.remote(max_restarts=-1, max_task_retries=-1)
class ReplicaActor:
    """One replica of one shard."""

    def __init__(
        self, store: str, version: int, shard: int, *, folder: str, secret: str | None, model: str | None, threads: int
    ) -> None:
        from weft.cluster.replica import open_replica, own_folder, replica
        from weft.serving.api import Server

        place, self._lock = own_folder(Path(folder), f"{version}-{shard}-{os.getpid()}")
        name = f"shard{shard}"
        self._logged: Any = None

        def make() -> Any:
            texts = open_replica(ShardStore(store), shard, place, version=version, model=model)
            self._logged = texts.logged
            return Server({name: replica(name, texts)}, keys=_keys(secret), page=False, threads=threads)

        self._server = _Server()
        self._server.start(make, str(ray.util.get_node_ip_address()), 0)

    def position(self) -> int:
        """Return the entry of the shard's log that it has come to."""
        return -1 if self._logged is None else int(self._logged.position)

    def url(self, seconds: float = 0.0) -> str:
        """Return where it serves; empty as long as it is not warm."""
        return self._server.wait(seconds)

    def problem(self) -> str:
        """Return why it cannot serve; empty if it can, or does not know yet."""
        return self._server.problem

    def pid(self) -> int:
        """Return the process that serves."""
        return os.getpid()

    def node(self) -> str:
        """Return the node that it is on."""
        return str(ray.get_runtime_context().get_node_id())


@ray.remote(max_restarts=-1, max_task_retries=-1)
class RouterActor:
    """The router: one address for all."""

    def __init__(self, name: str, settings: Mapping[str, Any]) -> None:
        """Serve with the settings that `weft.cluster.control.serve` made; they are kept here for `roll`."""
        self._name, self._settings, self._store = name, dict(settings), ShardStore(settings["store"])
        self._number, self._secret, keys = settings["replicas"], settings["secret"], settings["keys"]
        self.version = 0
        self._urls: list[tuple[str, ...]] = []
        self._routed: Any = None
        self._server = _Server()
        # Where --host is a node's address, a router that was moved to another node has that one's.
        own, host = str(ray.util.get_node_ip_address()), settings["host"]
        at = own if host in addresses().values() else host

        def make() -> Any:
            from weft.cluster.routed import Routed
            from weft.serving.api import Server
            from weft.serving.keys import Keys

            version = self._wanted()
            manifest = self._store.manifest(version)
            fleet = self._found(version, len(manifest.shards))
            while fleet is None:
                time.sleep(LOOK_SECONDS)
                fleet = self._found(version, len(manifest.shards))
            encoder = self._encoder_of(manifest)

            def routed(pool: Any, limits: Any) -> Any:
                self._routed = Routed(name, fleet, encoder, _alignment_of(manifest), pool, limits, writable=True)
                return self._routed

            self.version = version
            known = None if keys is None else Keys.parse(keys.splitlines(), "the router's keys")
            server = Server({name: routed}, keys=known, hosts=[at])
            threading.Thread(target=self._look, daemon=True).start()
            return server

        self._server.start(make, at, settings["port"])

    def settings(self) -> dict[str, Any]:
        """Return what the cluster was started with."""
        return self._settings

    def _encoder_of(self, manifest: Manifest) -> Any:
        from weft.encoders import Encoder

        of = manifest.shards[0].settings
        if self._routed is not None and self._routed.encoder.fingerprint == of.get("encoder"):
            return self._routed.encoder
        return Encoder.load(self._settings["model"] or of.get("model") or None)

    def _wanted(self) -> int:
        version = current(self._store)
        return self._store.latest().version if version is None else version

    def _found(self, version: int, shards: int) -> Fleet | None:
        """Where the replicas of a version are; None until every shard has a warm one."""
        urls: list[tuple[str, ...]] = []
        for shard in range(shards):
            mine: list[str] = []
            for number in range(self._number):
                try:
                    actor = ray.get_actor(replica_name(self._name, version, shard, number), NAMESPACE)
                    url: str = ray.get(actor.url.remote(), timeout=2)
                except (ValueError, ray.exceptions.RayError):
                    continue
                if url:
                    mine.append(url)
            if not mine:
                return None
            urls.append(tuple(mine))
        if version == self.version and urls == self._urls:
            return None
        self._urls = urls
        return Fleet([Replicas(f"shard{n}", some, self._secret) for n, some in enumerate(urls)])

    def _look(self) -> None:
        """Follow replicas that were restarted elsewhere, and the version that was chosen."""
        while True:
            time.sleep(LOOK_SECONDS)
            try:
                version = self._wanted()
                manifest = self._store.manifest(version)
                fleet = self._found(version, len(manifest.shards))
                if fleet is not None and self._routed is not None:
                    self._routed.point(fleet, self._encoder_of(manifest), _alignment_of(manifest))
                    self.version = version
            except Exception as error:  # the store, or Ray's head, may be back the next time
                _log.warning("the router cannot look for its shards: %s", error)

    def url(self, seconds: float = 0.0) -> str:
        """Return its address; empty until it serves."""
        return self._server.wait(seconds)

    def problem(self) -> str:
        """Return why it cannot serve; empty if it can, or does not know yet."""
        return self._server.problem

    def served(self) -> int:
        """Return the version that is served."""
        return self.version

    def pid(self) -> int:
        """Return the process that serves."""
        return os.getpid()


def _alignment_of(manifest: Manifest) -> str:
    return str(manifest.shards[0].settings.get("alignment"))


def node_ids() -> list[str]:
    """Return the nodes that are alive, the head last: it has other work, and its loss hurts most."""
    known: Any = ray.nodes()
    alive = [node for node in known if node["Alive"]]
    return [n["NodeID"] for n in sorted(alive, key=lambda n: ("node:__internal_head__" in n["Resources"], n["NodeID"]))]


def addresses() -> dict[str, str]:
    """Return the address of each node, those that are gone included."""
    known: Any = ray.nodes()
    return {node["NodeID"]: node["NodeManagerAddress"] for node in known}


def start_replicas(
    name: str, store: str, version: int, shards: int, replicas: int, *, cpus: float = 0.0, **options: Any
) -> list[Any]:
    """Start the replicas of a version, those of one shard on different nodes; return their actors."""
    nodes = node_ids()
    if replicas > len(nodes):
        raise DataError(f"{replicas} replicas need as many nodes; the cluster has {len(nodes)}")
    made = []
    for shard in range(shards):
        for number in range(replicas):
            node = nodes[(shard + number) % len(nodes)]
            made.append(
                ReplicaActor.options(  # type: ignore[attr-defined]
                    name=replica_name(name, version, shard, number),
                    namespace=NAMESPACE,
                    lifetime="detached",
                    get_if_exists=True,
                    num_cpus=cpus,
                    memory=ASKED,
                    max_concurrency=4,
                    scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=True),
                ).remote(store, version, shard, **options)
            )
    return made
