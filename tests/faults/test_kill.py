"""kill -9 at the n-th system call: what was acknowledged is there, what was not is not half there."""

import random
import signal

import pytest

from faults.machine import CALLS, Worker, counted, inject, traced
from faults.workload import Model, verify

KINDS = ("create", "add", "add", "delete", "add", "compact", "reopen", "add", "add")
OPERATIONS = 14


def count_calls(path, seed):
    """Return how many calls of each kind a whole run makes."""
    with Worker(path, seed, KINDS) as worker:
        with counted(worker) as calls:
            worker.send(f"run {OPERATIONS}")
            worker.send("quit")
            assert worker.acknowledged() == OPERATIONS
        assert worker.exitcode() == 0
    assert verify(path, Model(seed, KINDS), OPERATIONS, OPERATIONS) <= OPERATIONS
    return calls


def kill_at(path, seed, call, n, model):
    """Kill the writer as it enters its n-th such call, look what is left, and return whether it came so far.

    Not every run makes as many calls (a module compiled on first import opens more files): one that made fewer than n
    has done all its work.
    """
    with Worker(path, seed, KINDS) as worker:
        with traced(worker, *inject(call, "signal=KILL", n)):
            worker.send(f"run {OPERATIONS}")
            worker.send("quit")
            acknowledged = worker.acknowledged()
        killed = worker.exitcode() == -signal.SIGKILL
    assert killed or acknowledged == OPERATIONS
    verify(path, model, acknowledged, min(acknowledged + 1, OPERATIONS))
    return killed


@pytest.mark.usefixtures("strace")
class TestKill:
    def test_at_a_sample_of_calls(self, folder):
        count_calls(folder / "first", seed=0)
        calls = count_calls(folder / "clean", seed=0)
        places = [(call, n + 1) for call in calls for n in range(calls[call])]
        chosen = random.Random(0).sample(places, 100)
        model = Model(0, KINDS)
        killed = [kill_at(folder / f"{call}-{n}", 0, call, n, model) for call, n in chosen]
        assert sum(killed) > 90

    @pytest.mark.slow
    @pytest.mark.parametrize("seed", [1, 2, 3])
    @pytest.mark.parametrize("call", CALLS)
    def test_at_every_call(self, folder, seed, call):
        calls = count_calls(folder / "clean", seed)
        model = Model(seed, KINDS)
        killed = [kill_at(folder / str(n), seed, call, n, model) for n in range(1, calls[call] + 1)]
        assert sum(killed) > 0.9 * len(killed)
