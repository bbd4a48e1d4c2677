"""Random operations on an index, the state a plain dict says they lead to, and the process that performs them.

Operation i depends on the seed alone, so whoever knows how many operations were acknowledged knows what must be
on disk: exactly the state after those, or after one more, the one in flight. Nothing else is accepted. Merges go on in
the background all the while, and change nothing of it but the last digits of vectors that they code.
"""

import json
import os
import random
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from faults.session import Session
from weft import Document, TokenVectors
from weft.errors import NotAnIndexError
from weft.storage import catalogue, database, merger, merging
from weft.storage.check import check
from weft.storage.store import Store

DIM = 4
IDS = [f"d{i}" for i in range(14)] + ["später", "a b", "'; DROP TABLE documents; --", "🎈"]
KINDS = {"add": 12, "delete": 4, "group": 4, "hold": 2, "release": 2, "wait": 1, "compact": 1, "reopen": 1}
ROUNDING = 0.1
"""How far a coded coordinate may be from the one that was given, of −1 to 1."""

State = dict[str, Any]
"""id → [text, metadata, values, token_ids, salience]: what `contents` reads from a store."""


class Step(NamedTuple):
    """Documents to be added, or ids to be deleted."""

    documents: list[Document]
    vectors: TokenVectors | None
    ids: list[str]


class Op(NamedTuple):
    """What is acknowledged as one: an add or a delete, or the several of a group, or what changes no document."""

    kind: str
    steps: list[Step]


def operations(seed: int, kinds: Sequence[str] = ("create",)) -> Iterator[Op]:
    """Yield operations for ever: first of the given kinds, then of random ones."""
    rng = random.Random(seed)
    forced = iter(kinds)
    while True:
        kind = next(forced, None) or rng.choices(list(KINDS), list(KINDS.values()))[0]
        wanted = {"add": ["add"], "delete": ["delete"]}.get(kind, [])
        if kind == "group":
            wanted = rng.choices(["add", "delete"], [3, 1], k=rng.choice((2, 4, 9)))
        yield Op(kind, [_addition(rng) if step == "add" else _deletion(rng) for step in wanted])


def _addition(rng: random.Random) -> Step:
    chosen = [rng.choice(IDS) for _ in range(rng.choice((1, 1, 1, 2, 5)))]  # one id twice in a call is allowed
    documents = [
        Document(name, f"text {rng.random()} of {name}", {"n": rng.randrange(9), "in": [name, None]}) for name in chosen
    ]
    return Step(documents, _vectors(rng, len(chosen)), [])


def _deletion(rng: random.Random) -> Step:
    return Step([], None, rng.sample(IDS, rng.choice((1, 3))))


def _vectors(rng: random.Random, n: int) -> TokenVectors:
    lengths = [rng.choice((0, 1, 3, 7)) for _ in range(n)]
    if rng.random() < 0.005:
        lengths[0] = 5000  # more than one block of checksums, more than one page of everything
    numbers = np.random.default_rng(rng.getrandbits(32))
    texts = [numbers.uniform(-1, 1, (m, DIM)).astype(np.float32) for m in lengths]
    made = TokenVectors.from_list(
        texts,
        [numbers.integers(0, 999, m) for m in lengths] if rng.random() < 0.5 else None,
        [numbers.random(m) for m in lengths] if rng.random() < 0.5 else None,
    )
    return made.astype(np.float16) if rng.random() < 0.3 else made


# -- the model -----------------------------------------------------------------------------------------


def apply_to_model(state: State, op: Op) -> None:
    for step in op.steps:
        for i, document in enumerate(step.documents):
            assert step.vectors is not None
            state[document.id] = _record(document, step.vectors[i : i + 1])
        for name in step.ids:
            state.pop(name, None)


def _record(document: Document, vectors: TokenVectors) -> list[Any]:
    return [
        document.text,
        dict(document.metadata),
        vectors.values.astype(np.float32).tolist(),
        None if vectors.token_ids is None else vectors.token_ids.tolist(),
        None if vectors.salience is None else vectors.salience.tolist(),
    ]


def same(expected: State | None, found: State) -> bool:
    """Whether two states are the same, but for the rounding of codes."""
    return expected is not None and expected.keys() == found.keys() and not _different(expected, found)


def _different(expected: State, found: State) -> list[str]:
    common = expected.keys() & found.keys()
    return sorted(name for name in common if not _same_record(expected[name], found[name]))


def _same_record(expected: list[Any], found: list[Any]) -> bool:
    if expected[:2] + expected[3:] != found[:2] + found[3:] or len(expected[2]) != len(found[2]):
        return False
    return expected[2] == found[2] or bool(np.allclose(expected[2], found[2], rtol=0, atol=ROUNDING))


class Model:
    """The expected states; number n is the state after n operations, None before the index was created."""

    def __init__(
        self,
        seed: int,
        kinds: Sequence[str] = ("create",),
        *,
        without: int | None = None,
        only: Sequence[str] = (),
    ) -> None:
        """Expect that operation number `without` failed, and so did nothing; or that there are `only` some kinds."""
        listed = enumerate(operations(seed, kinds))
        self._operations = (op for i, op in listed if i != without and (not only or op.kind in only))
        self._states: dict[int, State | None] = {0: None}
        self._last = 0

    def __getitem__(self, n: int) -> State | None:
        while self._last < n:
            state = dict(self._states[self._last] or {})
            apply_to_model(state, next(self._operations))
            self._last += 1
            self._states[self._last] = state
        return self._states[n]

    def forget(self, before: int) -> None:
        """Keep no states of numbers below this, which will not be asked for again."""
        for n in [n for n in self._states if n < min(before, self._last)]:
            del self._states[n]


# -- the store -----------------------------------------------------------------------------------------


def contents(store: Store, ids: Iterable[str] = IDS) -> State:
    """Read everything, in one view."""
    with store.view():
        found = contents_of(store, ids)
        assert len(store) == len(found), "the number of documents is not the number of ids found"
    return found


def contents_of(store: Store, ids: Iterable[str]) -> State:
    """Read some documents, in one view."""
    found: State = {}
    with store.view():
        for name in ids:
            document, vectors = store.get(name), store.vectors(name)
            assert (document is None) == (vectors is None), f"half a document: {name}"
            if document is not None and vectors is not None:
                found[name] = _record(document, vectors)
    return found


def verify(path: Path, model: Model, first: int, last: int) -> int:
    """Check what is left of an index after a fault, and that it can be used; return which state it is in.

    Between `first` and `last` operations must be in it: all that were acknowledged, and at most the one in flight.
    """
    try:
        store = Store.open(path)
    except NotAnIndexError:
        assert first == 0, f"the index is gone after {first} acknowledged operations"
        return 0
    with store:
        report = check(store)
        assert report.sound, report.problems
        found = contents(store)
        states = [n for n in range(max(first, 1), last + 1) if same(model[n], found)]
        assert states, f"{_difference(model[max(first, 1)], found)} (acknowledged: {first}, begun: {last})"
        store.add(["after the fault"], TokenVectors.from_list([np.ones((2, DIM))]))
        store.wait()
        assert store.merging.error is None
        report = check(store)
        assert report.sound, report.problems
        assert not report.leftovers, f"not collected: {report.leftovers}"
    with Store.open(path) as store:
        store.delete("after the fault")  # so the lock was free
        store.compact()
        assert check(store).sound
        assert same(found, contents(store))
    return states[0]


def _difference(expected: State | None, found: State) -> str:
    expected = expected or {}
    lost = sorted(expected.keys() - found.keys())
    extra = sorted(found.keys() - expected.keys())
    return f"no committed state: lost {lost}, unexpected {extra}, different {_different(expected, found)}"


# -- the process ---------------------------------------------------------------------------------------


def merge_often() -> None:
    """Merge a few segments already, and code a few tokens."""
    merging.BASE, merger.CODED_TOKENS = 1, 200


def serve(channel: socket.socket, path: Path, seed: int, kinds: Sequence[str], durable: bool) -> None:
    """Perform operations on demand. Runs in a process of its own, which may be killed at any time.

    The channel is a socket because the faults are injected into the calls for files. Commands: ``run n`` performs n
    operations and answers each with ``ack``, or with ``error`` and what was raised; ``read`` answers with the contents;
    ``merges`` answers with how many were done, and why the last one failed; ``quit`` closes the index.
    """
    if not durable:
        _forget_durability()
    merge_often()
    # The database is folded back every few pages, so that faults fall into that too.
    database.LONG_LOG = 100_000
    catalogue.connect = connecting("PRAGMA wal_autocheckpoint = 12", catalogue.connect)
    pending = operations(seed, kinds)
    with channel, channel.makefile("r") as commands, Session(path, DIM) as session:
        for command in commands:
            verb, *numbers = command.split()
            if verb == "quit":
                break
            if verb == "read":
                _send(channel, "contents", contents(session.store), list(check(session.store).problems))
            if verb == "merges":
                merges = session.store.merging
                _send(channel, "merges", merges.merges, _said(merges.error))
            for op in islice(pending, int(numbers[0]) if verb == "run" else 0):
                try:
                    session.perform(op)
                except Exception as error:
                    _send(channel, "error", *_said(error))
                else:
                    _send(channel, "ack")


def _said(error: Exception | None) -> list[Any]:
    return [] if error is None else [[base.__name__ for base in type(error).__mro__], str(error)]


def _send(channel: socket.socket, *message: Any) -> None:
    channel.sendall(json.dumps(message).encode() + b"\n")


def _forget_durability() -> None:
    """Become a writer that forgot to fsync: the tests must catch it."""
    catalogue.connect = careless(catalogue.connect)
    os.fsync = lambda handle: None


def careless(connect: Callable[[Path], Any]) -> Callable[[Path], Any]:
    """Return a way to open the catalogue without ever waiting for the disk."""
    return connecting("PRAGMA synchronous = OFF", connect)


def connecting(pragma: str, connect: Callable[[Path], Any]) -> Callable[[Path], Any]:
    """Return a way to open the catalogue with a setting."""

    def connect_with_it(folder: Path) -> Any:
        db = connect(folder)
        db.execute(pragma)
        return db

    return connect_with_it
