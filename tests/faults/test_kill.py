"""kill -9 at the n-th system call: what was acknowledged is there, what was not is not half there."""

import random
import signal

import pytest

from faults.machine import CALLS, Worker, counted, inject, traced
from faults.workload import Model, verify

KINDS = ("create", "add", "add", "delete", "add", "compact", "reopen", "add", "add")
OPERATIONS = 14


def count_calls(path, seed):
    with Worker(path, seed, KINDS) as worker:
        with counted(worker) as calls:
            worker.send(f"run {OPERATIONS}")
            worker.send("quit")
            assert worker.acknowledged() == OPERATIONS
        assert worker.exitcode() == 0
    assert verify(path, Model(seed, KINDS), OPERATIONS, OPERATIONS) <= OPERATIONS
    return calls


def kill_at(path, seed, call, n, model):
    """Kill the writer as it enters its n-th such call, and look what is left."""
    with Worker(path, seed, KINDS) as worker:
        with traced(worker, *inject(call, "signal=KILL", n)):
            worker.send(f"run {OPERATIONS}")
            worker.send("quit")
            acknowledged = worker.acknowledged()
        killed = worker.exitcode() == -signal.SIGKILL
    verify(path, model, acknowledged, min(acknowledged + 1, OPERATIONS))
    return killed


@pytest.mark.usefixtures("strace")
class TestKill:
    def test_at_a_sample_of_calls(self, folder):
        calls = count_calls(folder / "clean", seed=0)
        places = [(call, n + 1) for call in calls for n in range(calls[call])]
        chosen = random.Random(0).sample(places, 100)
        model = Model(0, KINDS)
        killed = [kill_at(folder / f"{call}-{n}", 0, call, n, model) for call, n in chosen]
        assert all(killed)

    @pytest.mark.slow
    @pytest.mark.parametrize("seed", [1, 2, 3])
    @pytest.mark.parametrize("call", CALLS)
    def test_at_every_call(self, folder, seed, call):
        calls = count_calls(folder / "clean", seed)
        model = Model(seed, KINDS)
        assert all(kill_at(folder / str(n), seed, call, n, model) for n in range(1, calls[call] + 1))
