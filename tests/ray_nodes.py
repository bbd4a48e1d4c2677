"""Real nodes of Ray on this machine: each one `ray start` in a process group of its own, on loopback."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TOKEN = "a-token-for-tests-only-0123456789abcdef"
QUIET = {
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": TOKEN,
    "RAY_gcs_storage": "rocksdb",
    "RAY_gcs_rpc_server_reconnect_timeout_s": "300",
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_failure_threshold": "4",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DEDUP_LOGS": "0",
    "OMP_NUM_THREADS": "1",
}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Nodes:
    """A head and others."""

    def __init__(self, number, cpus=2):
        self.folder = Path(tempfile.mkdtemp(prefix="wr-", dir="/tmp"))  # Ray's sockets need short paths
        self.port, self.cpus = free_port(), cpus
        self.environment = {**os.environ, **QUIET, "RAY_gcs_storage_path": str(self.folder / "gcs")}
        self.address = f"127.0.0.2:{self.port}"  # Ray would take 127.0.0.1 for the machine's own address
        self._hosts = 1
        self.members = [self._start("--head", f"--port={self.port}", f"--temp-dir={self.folder}")]
        self._reachable()
        self.members += [self._start(f"--address={self.address}") for _ in range(number - 1)]

    def _start(self, *arguments):
        command = [sys.executable, "-c", "from ray.scripts.scripts import main; main()"]
        self._hosts += 1
        command += ["start", "--block", f"--node-ip-address=127.0.0.{self._hosts}"]
        options = [f"--num-cpus={self.cpus}", "--object-store-memory=80000000", "--disable-usage-stats"]
        if "--head" in arguments:
            options.append("--include-dashboard=false")
        log = (self.folder / f"node{len(os.listdir(self.folder))}.log").open("wb")
        with log:
            return subprocess.Popen(
                [*command, *arguments, *options],
                stdout=log,
                stderr=log,
                env=self.environment,
                start_new_session=True,
            )

    def _reachable(self):
        until = time.monotonic() + 90
        while time.monotonic() < until:
            try:
                socket.create_connection(("127.0.0.2", self.port), 1).close()
                return
            except OSError:
                assert self.members[0].poll() is None, self.said()
        raise AssertionError(self.said())

    def said(self):
        return "\n".join(path.read_text()[-2000:] for path in self.folder.glob("node*.log"))

    def kill(self, at):
        """Kill -9 everything of a node."""
        _kill(self.members[at])

    def stop(self):
        for member in self.members:
            _kill(member)


def _kill(process):
    """Kill a process and all that it started, the processes that moved into groups of their own, too."""
    if process.poll() is None:
        parents = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal():
                try:
                    parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                except (OSError, IndexError):
                    continue
        doomed = [process.pid]
        for pid in doomed:
            doomed += [child for child, parent in parents.items() if parent == pid]
        for pid in doomed:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    process.wait()
