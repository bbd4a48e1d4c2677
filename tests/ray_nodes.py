"""Real nodes of Ray on this machine: each one `weft cluster up` in a process group of its own, on loopback."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TOKEN = "a-token-for-tests-only-0123456789abcdef"
# The memory that others on this machine use is no reason to kill workers.
QUIET = {
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": TOKEN,
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_failure_threshold": "4",
    "RAY_memory_monitor_refresh_ms": "0",
    "RAY_enable_worker_prestart": "0",
    "RAY_prestart_worker_first_driver": "0",
    "RAY_DEDUP_LOGS": "0",
    "OMP_NUM_THREADS": "1",
}
TRIES = 4
"""Ray gives a node 30 seconds to start, which a busy machine may exceed."""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Nodes:
    """A head and others."""

    def __init__(self, number, cpus=2):
        self.folder = Path(tempfile.mkdtemp(prefix="wr-", dir="/tmp"))  # Ray's sockets need short paths
        self.port, self.cpus = free_port(), cpus
        self.home = self.folder / "home"
        self.home.mkdir()
        self.environment = {**os.environ, **QUIET, "HOME": str(self.home)}
        self.address = f"127.0.0.2:{self.port}"  # Ray would take 127.0.0.1 for the machine's own address
        self.members = []
        try:
            for _ in range(number):
                self.add()
        except BaseException:
            self.stop()
            raise

    def add(self):
        """Start one more node, the first one as the head."""
        at = len(self.members)
        self.members.append(None)
        self.start(at)

    def start(self, at):
        """Start a node, again if it was killed; return when it is part of the cluster."""
        for _ in range(TRIES):
            if at == 0:  # or Ray takes the nodes that survived on this machine for a head that runs
                (self.folder / "ray_current_cluster").unlink(missing_ok=True)
            self.members[at], log = self._begin(at)
            if self._started(self.members[at], log):
                return
            _kill(self.members[at])
        raise AssertionError(log.read_text()[-3000:])

    def _begin(self, at):
        role = ["--join", self.address] if at else ["--port", self.port, "--storage", self.folder / "gcs"]
        ray = [f"--num-cpus={self.cpus}", "--object-store-memory=200000000", "--include-log-monitor=false"]
        ray += [] if at else [f"--temp-dir={self.folder}"]
        weft = [sys.executable, "-m", "weft", "cluster", "up", "--host", f"127.0.0.{at + 2}"]
        command = [*map(str, [*weft, *role]), *ray]
        path = self.folder / f"node{at}-{time.monotonic_ns()}.log"
        with path.open("wb") as log:
            options = {"stdout": log, "stderr": log, "env": self.environment, "start_new_session": True}
            return subprocess.Popen(command, **options), path

    def _started(self, process, log):
        until = time.monotonic() + 180
        while time.monotonic() < until and process.poll() is None:
            if "Ray runtime started" in log.read_text():
                return True
            time.sleep(0.05)
        return False

    def having(self, pid):
        """Return which node a process is on."""
        return next(at for at, member in enumerate(self.members) if pid in children(member.pid))

    def kill(self, at):
        """Kill -9 everything of a node."""
        _kill(self.members[at])

    def stop(self):
        for member in reversed(self.members):
            if member is not None:
                _kill(member)
        shutil.rmtree(self.folder, ignore_errors=True)


def children(pid):
    """Return a process and all that it started, the processes that moved into groups of their own, too."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, IndexError):
                continue
    found = [pid]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found


def _kill(process):
    for pid in children(process.pid) if process.poll() is None else ():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()
