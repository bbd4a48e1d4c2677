"""`weft cluster up`: a machine becomes a node of a Ray cluster, closed to anyone without its token."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from weft.errors import DataError

PORT = 6379
RECONNECT_SECONDS = 300
"""How long nodes and their processes go on without the head."""
TOKEN_FILE = Path(".ray") / "auth_token"


def environment(given: Mapping[str, str], *, storage: Path | None = None) -> dict[str, str]:
    """Return Ray's settings for a node: it asks for a token, and a head keeps its state on disk.

    Parameters
    ----------
    given : mapping
        The environment; it, or a file in the home folder, has the token that all nodes share.
    storage : path, optional
        Where a head keeps its state, so that it can be started again.

    Examples
    --------
    >>> environment({"RAY_AUTH_TOKEN": "one for all nodes"})["RAY_AUTH_MODE"]
    'token'
    """
    if not has_token(given):
        raise DataError("no token: run ray get-auth-token --generate, and copy ~/.ray/auth_token to every machine")
    made = {
        "RAY_gcs_rpc_server_reconnect_timeout_s": str(RECONNECT_SECONDS),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_worker_niceness": "0",  # Ray's own is 15, and these are servers
        **given,
        "RAY_AUTH_MODE": "token",
    }
    if storage is not None:
        made |= {"RAY_gcs_storage": "rocksdb", "RAY_gcs_storage_path": str(storage)}
    return made


def has_token(given: Mapping[str, str]) -> bool:
    """Tell whether there is a token, in an environment or in a file of the home folder."""
    own_file = Path(given.get("HOME", "/")) / TOKEN_FILE
    return bool(given.get("RAY_AUTH_TOKEN") or given.get("RAY_AUTH_TOKEN_PATH") or own_file.is_file())


def show_token() -> None:
    """Let Ray show the token, if there is one, to the cluster that is joined. Call it before Ray is imported."""
    if has_token(os.environ):
        os.environ.setdefault("RAY_AUTH_MODE", "token")


def command(host: str, *, join: str | None, port: int = PORT, more: Sequence[str] = ()) -> list[str]:
    """Return the command of a node that runs until it is stopped.

    Examples
    --------
    >>> command("10.0.0.2", join="10.0.0.1:6379", more=["--num-gpus=1"])[3:]
    ['start', '--block', '--node-ip-address=10.0.0.2', '--address=10.0.0.1:6379', '--num-gpus=1']
    """
    # The monitor, which asks clouds for machines, would show its metrics to everybody.
    head = ["--head", f"--port={port}", "--include-dashboard=false", "--no-monitor"]
    role = head if join is None else [f"--address={join}"]
    ray = [sys.executable, "-c", "from ray.scripts.scripts import main; main()"]
    return [*ray, "start", "--block", f"--node-ip-address={host}", *role, *more]


def up(host: str, *, join: str | None, port: int = PORT, storage: Path, more: Sequence[str] = ()) -> None:
    """Turn this process into a node: a head, or one of the cluster whose head is at `join`."""
    made = environment(os.environ, storage=storage if join is None else None)
    line = command(host, join=join, port=port, more=more)
    sys.stdout.flush()
    os.execve(line[0], line, made)
