"""Eight readers and a writer that merges: whatever a reader sees was committed, all of it, at one moment."""

import threading
import time
from itertools import islice

import numpy as np
import pytest

from faults.amounts import READING_SECONDS, note
from faults.machine import PATIENCE, context
from faults.workload import DIM, IDS, Model, contents, merge_often, operations, same
from weft import Document, TokenVectors
from weft.search import Index
from weft.storage import merger, merging
from weft.storage.check import check
from weft.storage.store import Store

READERS = 8
MARK = "the state's number"
WRITING = ("add", "delete", "group")


def commit(store, op, n):
    """Perform an operation, and write in the same transaction that it was the n-th."""
    steps = [s.ids if s.vectors is None else store.addition(s.documents, s.vectors) for s in op.steps]
    mark = store.addition([Document(MARK, str(n))], TokenVectors.from_list([np.zeros((0, DIM))], dim=DIM))
    store.write([*steps, mark])


def write(path, seed, seconds, results):
    """Commit for a while, and report how many states and merges there were."""
    merge_often()
    end, n = time.monotonic() + seconds, 1
    with Store.open(path) as store:
        for op in operations(seed):
            if op.kind in WRITING:
                n += 1
                commit(store, op, n)
            elif op.kind == "compact":
                store.compact()
            if time.monotonic() > end:
                break
        store.wait()
        results.send((n, store.merging.merges, str(store.merging.error)))


def committed(seed):
    """Return the states that the writer commits: number 1 is the empty index."""
    return Model(seed, only=("create", *WRITING))


def look(index, expected, query):
    """Read everything in one view and search in it; return which state it was, and what is wrong with it."""
    with index.view():
        mark = index.get(MARK)
        found = contents(index, [*IDS, MARK])
        (ranking,) = index.search(query, k=5, exact=True, hits=False)
    found.pop(MARK, None)
    n = 1 if mark is None else int(mark.text)
    if not same(expected[n], found):
        return n, [f"{n} is no committed state"]
    bounds = {name: score(query, record) for name, record in found.items() if record[2]}
    wrong = [name for name, got in zip(ranking.ids, ranking.scores, strict=True) if not _within(got, bounds[name])]
    problems = [f"{n}: wrong scores of {wrong}"] if wrong else []
    last = min(ranking.scores, default=np.inf)
    missing = [name for name, (low, _) in bounds.items() if name not in ranking.ids and low > last]
    if missing or len(ranking) != min(5, len(bounds)):
        problems.append(f"{n}: {missing} are missing from {ranking.ids}")
    return n, problems


def _within(got, bounds):
    return bounds[0] <= got <= bounds[1]


def score(query, record, rounding=0.1):
    """Return bounds of the sum of maxima weighed by saliences: codes may round, and so choose another token."""
    similarities = query @ np.array(record[2]).T
    weights = np.ones(len(record[2])) if record[4] is None else np.array(record[4])
    near = similarities >= similarities.max(axis=1, keepdims=True) - rounding
    terms = similarities * weights
    low, high = np.where(near, terms, np.inf).min(axis=1), np.where(near, terms, -np.inf).max(axis=1)
    return (low - rounding).sum(), (high + rounding).sum()


def read(path, reopen, seed, stop, results):
    """Read until told to stop; report how often, how many states were seen, the last of them, and what was wrong."""
    merge_often()
    expected, answers, states, problems, latest = committed(seed), 0, 0, [], 0
    query = np.random.default_rng(seed).standard_normal((3, DIM)).astype(np.float32)
    index = Index.open(path)
    while not stop.is_set():
        if reopen:
            index.close()
            index = Index.open(path)
        n, wrong = look(index, expected, query)
        problems += wrong
        if n < latest:
            problems.append(f"back from {latest} to {n}")
        states += n != latest
        latest = n
        expected.forget(n)
        answers += 1
        index.info()
        if answers % 50 == 0:
            problems += check(index).problems
        del problems[20:]
    index.close()
    results.send((answers, states, latest, problems))


def run(path, seconds, seed, readers=READERS, watch=None):
    """Let a writer and readers do their work; `watch(pids)` is called every few seconds meanwhile, if given.

    Return what the writer reports, and what the readers do.
    """
    Store.create(path, DIM).close()
    processes = context()
    stop = processes.Event()
    pipes = [processes.Pipe(duplex=False) for _ in range(readers + 1)]
    started = [
        processes.Process(target=read, args=(path, i % 2 == 0, seed, stop, pipes[i][1]), daemon=True)
        for i in range(readers)
    ]
    started.append(processes.Process(target=write, args=(path, seed, seconds, pipes[-1][1]), daemon=True))
    try:
        for process in started:
            process.start()
        for _, theirs in pipes:
            theirs.close()
        answers, end = [], time.monotonic() + seconds
        while watch is not None and time.monotonic() < end and not pipes[-1][0].poll(5):
            watch([process.pid for process in started])
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


def agree(path, seconds, seed, **options):
    """Run; every answer must be a committed state. Return what there was of everything."""
    (written, merges, error), readers = run(path, seconds, seed, **options)
    assert error == "None"
    assert merges
    for answers, _, last, problems in readers:
        assert problems == []
        assert answers
        assert last <= written
    assert max(states for _, states, _, _ in readers) > 10
    with Store.open(path) as store:
        assert check(store).sound
    answers = sum(answers for answers, *_ in readers)
    return {"seconds": seconds, "readers": len(readers), "commits": written, "merges": merges, "answers": answers}


def test_readers_see_committed_states(folder):
    agree(folder / "index", 8, seed=0)


@pytest.mark.slow
def test_readers_see_committed_states_for_a_minute(folder):
    note("readers", **agree(folder / "index", READING_SECONDS, seed=1), wrong=0)


@pytest.fixture
def merges_often(monkeypatch):
    monkeypatch.setattr(merging, "BASE", 1)
    monkeypatch.setattr(merger, "CODED_TOKENS", 200)


@pytest.mark.usefixtures("merges_often")
def test_threads_of_one_process_see_committed_states(folder):
    """Several threads search one index while another adds to it, deletes from it and merges go on."""
    seed, problems, done = 3, [], threading.Event()

    def search(index, number):
        expected, latest = committed(seed), 0
        query = np.random.default_rng(number).standard_normal((3, DIM)).astype(np.float32)
        while True:
            last = done.is_set()
            try:
                n, wrong = look(index, expected, query)
            except BaseException as error:
                problems.append(repr(error))
                return
            problems.extend(wrong)
            if n < latest:
                problems.append(f"back from {latest} to {n}")
            latest = n
            if last:
                return

    with Index.create(folder / "index", DIM) as index:
        threads = [threading.Thread(target=search, args=(index, i)) for i in range(4)]
        for thread in threads:
            thread.start()
        try:
            ops = (op for op in operations(seed) if op.kind in WRITING)
            for n, op in enumerate(islice(ops, 200), start=2):
                commit(index, op, n)
        finally:
            done.set()
            for thread in threads:
                thread.join()
        index.wait()
        assert index.merging.merges
        assert index.merging.error is None
        assert problems == []
        assert check(index).sound
