"""kill -9 at the n-th system call: what was acknowledged is there, what was not is not half there."""

import random
import shutil
import signal
from itertools import count

import pytest

from faults.amounts import KILLS, note
from faults.machine import CALLS, Worker, counted, inject, traced
from faults.workload import Model, verify

KINDS = (
    *("create", "add", "add", "add", "add", "group", "delete", "add", "wait", "compact", "reopen"),
    *("hold", "add", "add", "group", "add", "add", "group", "delete", "add", "release", "wait"),
    *("add", "add", "group", "wait", "reopen", "add"),
)
OPERATIONS = len(KINDS)
STARTS = {
    "from the beginning": 0,
    "beside a merge": KINDS.index("hold") + 5,
    "at the commit of a merge": KINDS.index("release"),
}
"""How many operations are done before calls are counted. In the last case only a merge writes at first."""


def begun(path, seed, start):
    worker = Worker(path, seed, KINDS)
    worker.send(f"run {start}")
    assert [worker.answer() for _ in range(start)] == [["ack"]] * start
    return worker


def count_calls(path, seed, start=0):
    """Return how many calls of each kind a whole run makes."""
    with begun(path, seed, start) as worker:
        with counted(worker) as calls:
            worker.send(f"run {OPERATIONS - start}")
            worker.send("quit")
            assert worker.acknowledged() == OPERATIONS - start
        assert worker.exitcode() == 0
    assert verify(path, Model(seed, KINDS), OPERATIONS, OPERATIONS) <= OPERATIONS
    return calls


def kill_at(path, seed, start, call, n, model):
    """Kill the writer as one of its threads enters its n-th such call, look what is left, and return whether one did.

    Not every run makes as many calls: threads do not always do the same, and a module compiled on first import opens
    more files. A run that made fewer than n has done all its work.
    """
    with begun(path, seed, start) as worker:
        with traced(worker, *inject(call, "signal=KILL", n)):
            worker.send(f"run {OPERATIONS - start}")
            worker.send("quit")
            acknowledged = start + worker.acknowledged()
        killed = worker.exitcode() == -signal.SIGKILL
    assert killed or acknowledged == OPERATIONS
    verify(path, model, acknowledged, min(acknowledged + 1, OPERATIONS))
    return killed


@pytest.mark.usefixtures("strace")
@pytest.mark.parametrize("start", STARTS.values(), ids=STARTS)
class TestKill:
    def test_at_a_sample_of_calls(self, folder, start):
        count_calls(folder / "first", 0, start)
        calls = count_calls(folder / "clean", 0, start)
        places = [(call, n + 1) for call in calls for n in range(calls[call])]
        chosen = random.Random(0).sample(places, min(40, len(places)))
        model = Model(0, KINDS)
        killed = [kill_at(folder / f"{call}-{n}", 0, start, call, n, model) for call, n in chosen]
        assert sum(killed) > len(killed) / 2

    @pytest.mark.slow
    @pytest.mark.parametrize("seed", [1, 2, 3])
    @pytest.mark.parametrize("call", CALLS)
    def test_at_every_call(self, folder, seed, call, start):
        calls = count_calls(folder / "clean", seed, start)
        model = Model(seed, KINDS)
        killed = [kill_at(folder / str(n), seed, start, call, n, model) for n in range(1, calls[call] + 1)]
        assert sum(killed) >= len(killed) / 2

    @pytest.mark.slow
    def test_at_random_calls(self, folder, start, request):
        """As many kills as asked for, each at another place or in another workload."""
        asked, kills, runs = KILLS // len(STARTS), 0, 0
        for seed in count(10):
            if kills >= asked:
                break
            calls = count_calls(folder / f"clean-{seed}", seed, start)
            places = [(call, n + 1) for call in calls for n in range(calls[call])]
            model = Model(seed, KINDS)
            for call, n in random.Random(seed).sample(places, min(60, len(places), asked - kills)):
                path = folder / f"{seed}-{call}-{n}"
                runs += 1
                kills += kill_at(path, seed, start, call, n, model)
                shutil.rmtree(path, ignore_errors=True)
        note("kill -9", start=request.node.callspec.id, kills=kills, runs=runs, workloads=seed - 10, lost=0)
