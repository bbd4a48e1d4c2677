"""Eight readers and a writer: whatever a reader sees was committed, all of it, at one moment."""

import hashlib
import json
import time

import pytest

from faults.machine import PATIENCE, context
from faults.workload import DIM, apply_to_store, contents, operations
from weft.storage.check import check
from weft.storage.store import Store

READERS = 8


def digest(store):
    with store.view() as view:
        found = json.dumps(contents(store), sort_keys=True).encode()
        return view.generation, hashlib.sha256(found).hexdigest()


def write(path, seed, seconds, results):
    """Commit for a while, and report what each committed state was."""
    end = time.monotonic() + seconds
    with Store.open(path) as store:
        states = dict([digest(store)])
        for op in operations(seed, ()):
            if op.kind != "reopen":
                apply_to_store(store, op)
                states.update([digest(store)])
            if time.monotonic() > end:
                break
    results.send(states)


def read(path, reopen, stop, results):
    """Read until told to stop, and report every state seen."""
    seen, problems, latest = {}, [], -1
    store = Store.open(path)
    while not stop.is_set():
        if reopen:
            store.close()
            store = Store.open(path)
        generation, found = digest(store)
        if generation < latest:
            problems.append(f"back from {latest} to {generation}")
        if seen.setdefault(generation, found) != found:
            problems.append(f"two contents of {generation}")
        latest = generation
        store.info()
        if len(seen) % 50 == 0:
            problems += check(store).problems
    store.close()
    results.send((seen, problems))


def run(path, seconds, seed):
    Store.create(path, DIM).close()
    processes = context()
    stop = processes.Event()
    pipes = [processes.Pipe(duplex=False) for _ in range(READERS + 1)]
    started = [
        processes.Process(target=read, args=(path, i % 2 == 0, stop, pipes[i][1]), daemon=True) for i in range(READERS)
    ]
    started.append(processes.Process(target=write, args=(path, seed, seconds, pipes[-1][1]), daemon=True))
    try:
        for process in started:
            process.start()
        for _, theirs in pipes:
            theirs.close()
        answers = []
        for ours, _ in reversed(pipes):  # the writer first
            assert ours.poll(PATIENCE + seconds), "no answer"
            answers.append(ours.recv())
            stop.set()
    finally:
        stop.set()
        for ours, theirs in pipes:
            ours.close()
            theirs.close()
        for process in started:
            if process.pid is not None:
                process.join(PATIENCE)
                process.close()
    return answers[0], answers[1:]


def agree(path, seconds, seed):
    committed, readers = run(path, seconds, seed)
    for seen, problems in readers:
        assert problems == []
        assert seen
        wrong = [generation for generation in seen if committed.get(generation) != seen[generation]]
        assert wrong == []
    assert len({generation for seen, _ in readers for generation in seen}) > 10
    with Store.open(path) as store:
        assert check(store).sound


def test_readers_see_committed_states(folder):
    agree(folder / "index", 4, seed=0)


@pytest.mark.slow
def test_readers_see_committed_states_for_a_minute(folder):
    agree(folder / "index", 60, seed=1)
