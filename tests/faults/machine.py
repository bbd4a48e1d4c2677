"""Processes that can be killed or made to fail at a chosen system call, and disks that can be filled or cut off."""

import fcntl
import json
import multiprocessing
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import pytest

from faults import workload

PATIENCE = 120
"""Seconds after which a process that does not answer fails the test."""


# -- processes -----------------------------------------------------------------------------------------


def context() -> Any:
    """Return a way to start processes by forking one that has weft imported and no threads: a few ms each."""
    made = multiprocessing.get_context("forkserver")
    made.set_forkserver_preload(["faults.workload"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
        patch.setenv("OPENBLAS_NUM_THREADS", "1")
        forkserver.ensure_running()
    return made


class Worker:
    """A process that runs `workload.serve`. A context manager: it is gone afterwards."""

    def __init__(self, path: Path, seed: int, kinds: Sequence[str] = ("create",), *, durable: bool = True) -> None:
        self._channel, theirs = socket.socketpair()
        self._channel.settimeout(PATIENCE)
        with theirs:
            self._process = context().Process(target=workload.serve, args=(theirs, path, seed, kinds, durable))
            self._process.start()
        self._received = b""
        self.ended = False
        """Whether the process was seen to be gone."""
        assert self._process.pid is not None
        self.pid: int = self._process.pid

    def send(self, command: str) -> None:
        self._channel.sendall(command.encode() + b"\n")

    def answer(self, *, wait: bool = True) -> list[Any] | None:
        """Return the next answer; None if the process is dead, or if there is none yet and we do not wait."""
        while b"\n" not in self._received:
            if not wait and not select.select([self._channel], [], [], 0)[0]:
                return None
            try:
                received = self._channel.recv(1 << 16)
            except ConnectionResetError:  # it died without having read our last command
                received = b""
            if not received:
                self.ended = True
                return None
            self._received += received
        line, self._received = self._received.split(b"\n", 1)
        answer: list[Any] = json.loads(line)
        return answer

    def acknowledged(self, *, wait: bool = True) -> int:
        """Return how many operations were acknowledged, until the process ended or, without waiting, until now."""
        acks = 0
        while (answer := self.answer(wait=wait)) is not None:
            assert answer == ["ack"], answer
            acks += 1
        return acks

    def exitcode(self) -> int | None:
        self._process.join(PATIENCE)
        code: int | None = self._process.exitcode
        return code

    def kill(self) -> None:
        self._process.kill()
        self._process.join(PATIENCE)

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._process.close()
        self._channel.close()


# -- faults in system calls ----------------------------------------------------------------------------

CALLS = ("openat", "write", "pwrite64", "fsync", "fdatasync", "ftruncate", "fallocate", "unlink", "mkdir")
"""The calls by which an index changes what is on disk."""


@contextmanager
def traced(worker: Worker, *options: str) -> Iterator[None]:
    """Attach strace to a waiting process and all its threads, those to come included, and let it go at the end."""
    command = ["strace", "-f", "-p", str(worker.pid), *options]
    strace = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    with strace:
        try:
            assert strace.stderr is not None
            line = strace.stderr.readline()
            assert "attached" in line, line
            yield
        finally:
            if not worker.ended:  # a strace that lets go of threads as they die waits for ever; one left alone ends too
                strace.send_signal(signal.SIGINT)
            try:
                strace.communicate(timeout=PATIENCE)
            finally:
                strace.kill()


def inject(calls: str, fault: str, when: int | str) -> list[str]:
    """Return the options that put a fault (``signal=KILL``, ``error=EIO``) into the n-th (``n+``: and later) call.

    Each thread counts for itself.
    """
    return ["-o", os.devnull, "-e", f"trace={calls}", "-e", f"inject={calls}:{fault}:when={when}"]


@contextmanager
def counted(worker: Worker) -> Iterator[Counter[str]]:
    """Count a process's calls, those of the thread that makes the most of them; the counter is filled at the end."""
    counts: Counter[str] = Counter()
    with tempfile.NamedTemporaryFile("r", suffix=".strace") as log:
        with traced(worker, "-o", log.name, "-e", "trace=" + ",".join(CALLS)):
            yield counts
        threads = Counter(re.findall(r"^(\d+) +(\w+)\(", log.read(), re.MULTILINE))
    for (_, call), n in threads.items():
        counts[call] = max(counts[call], n)


# -- disks ---------------------------------------------------------------------------------------------

_FREEZE, _THAW = 0xC0045877, 0xC0045878  # FIFREEZE, FITHAW of <linux/fs.h>


@contextmanager
def scratch(megabytes: int) -> Iterator[Path]:
    """Yield a folder for disk images, in memory where there is room."""
    shm = Path("/dev/shm")
    roomy = shm.is_dir() and shutil.disk_usage(shm).free > 2 * megabytes << 20
    with tempfile.TemporaryDirectory(prefix="weft-faults-", dir=shm if roomy else None) as folder:
        yield Path(folder)


def make_image(image: Path, megabytes: int) -> None:
    """Make an empty ext4 filesystem in a file, complete: nothing is left to be initialised in the background."""
    with open(image, "wb") as file:
        file.truncate(megabytes << 20)
    # Blocks as on real disks: with smaller ones SQLite's shared memory has holes, and a full disk is a SIGBUS.
    options = ["-q", "-F", "-b", "4096", "-m", "0", "-E", "lazy_itable_init=0,lazy_journal_init=0,root_owner=0:0"]
    _run("mkfs.ext4", *options, str(image))


@contextmanager
def mounted(image: Path) -> Iterator[Path]:
    """Mount an ext4 image through a loop device (a journal that needs it is replayed)."""
    with tempfile.TemporaryDirectory(prefix="weft-mount-") as folder:
        _run("mount", "-t", "ext4", "-o", "loop,noatime", str(image), folder)
        try:
            yield Path(folder)
        finally:
            try:
                _run("umount", folder)
            except RuntimeError:  # a test failed with files open: it goes when they do
                _run("umount", "-l", folder)


@contextmanager
def frozen(mount: Path) -> Iterator[None]:
    """Stop all writing to a filesystem for a while; whoever writes waits."""
    handle = os.open(mount, os.O_RDONLY)
    try:
        fcntl.ioctl(handle, _FREEZE, 0)
        try:
            yield
        finally:
            fcntl.ioctl(handle, _THAW, 0)
    finally:
        os.close(handle)


class Disk:
    """An ext4 filesystem (`path`) whose power can be cut at any moment.

    Its image is a file on a second filesystem. To cut, the *second* one is frozen: in the middle of whatever is being
    written the disk stands still, nothing of the first one's caches is flushed, and the image is copied at rest.
    """

    def __init__(self, stack: ExitStack, megabytes: int = 24) -> None:
        self._folder = stack.enter_context(scratch(4 * megabytes))
        make_image(self._folder / "outer.img", 2 * megabytes + 16)
        self._outer = stack.enter_context(mounted(self._folder / "outer.img"))
        make_image(self._outer / "disk.img", megabytes)
        self.path = stack.enter_context(mounted(self._outer / "disk.img"))

    @contextmanager
    def standing_still(self) -> Iterator[None]:
        """Freeze the disk, copy it, and go on."""
        with frozen(self._outer):
            _run("cp", "--reflink=never", "--sparse=always", str(self._outer / "disk.img"), str(self._copy))
            yield

    @property
    def _copy(self) -> Path:
        return self._folder / "copy.img"

    @contextmanager
    def after_the_cut(self) -> Iterator[Path]:
        """Mount the copy, as the machine would when the power is back."""
        try:
            with mounted(self._copy) as path:
                yield path
        finally:
            self._copy.unlink()


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")


# -- what this machine can do --------------------------------------------------------------------------


def require_strace() -> None:
    if shutil.which("strace") is None:
        pytest.skip("needs strace: apt-get install -y strace")
    if subprocess.run(["strace", "-o", os.devnull, "true"], capture_output=True).returncode:
        pytest.skip("strace may not trace processes here (ptrace is not allowed)")


def require_mount() -> None:
    if shutil.which("mkfs.ext4") is None:
        pytest.skip("needs mkfs.ext4: apt-get install -y e2fsprogs")
    if os.geteuid() != 0:
        pytest.skip("needs root, to mount disk images")
    with scratch(16) as folder:
        make_image(folder / "probe.img", 8)
        try:
            with mounted(folder / "probe.img"):
                pass
        except RuntimeError as error:
            pytest.skip(f"cannot mount disk images here: {error}")
