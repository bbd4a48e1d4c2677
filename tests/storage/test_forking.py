"""An index and forks of its process: the child may not go on with it, may open it anew, and does the parent no harm."""

import multiprocessing
import os

import numpy as np
import pytest

from weft import Index, TokenVectors
from weft.errors import IndexLockedError, IndexStateError
from weft.storage.check import check

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
DIM = 4


def tokens(count=1, seed=0):
    rng = np.random.default_rng(seed)
    return TokenVectors.from_list([rng.standard_normal((3, DIM)).astype(np.float32) for _ in range(count)])


@pytest.fixture
def index(tmp_path):
    with Index.create(tmp_path / "i.weft", DIM) as index:
        index.add([f"d{n}" for n in range(20)], tokens(20))
        yield index


def in_child(function, *arguments):
    """Run in a forked child; return what the function does."""
    context = multiprocessing.get_context("fork")
    receiving, sending = context.Pipe(duplex=False)

    def run():
        try:
            sending.send(function(*arguments))
        except BaseException as error:
            sending.send(error)

    child = context.Process(target=run)
    child.start()
    sending.close()
    answer = receiving.recv()
    child.join()
    assert child.exitcode == 0
    return answer


@pytest.mark.parametrize(
    "use",
    [
        lambda index: index.add(["x"], tokens()),
        lambda index: index.delete("d0"),
        lambda index: index.compact(),
        lambda index: index.get("d0"),
        lambda index: index.search(tokens(), 1),
        lambda index: index.wait(),
        lambda index: index.check(),
        lambda index: index.writer(),
        lambda index: len(index),
    ],
)
def test_a_child_may_not_go_on_with_its_parents_index(index, use):
    answer = in_child(use, index)
    assert isinstance(answer, IndexStateError)
    assert "was opened before this process was forked; open it again" in str(answer)
    index.add(["y"], tokens())
    assert len(index) == 21


def test_a_group_writer_does_not_wait_for_a_thread_that_is_not_there(index):
    with index.writer() as writer:
        assert isinstance(in_child(lambda: writer.add(["x"], tokens())), IndexStateError)
        assert isinstance(in_child(lambda: writer.commit()), IndexStateError)
        writer.add(["y"], tokens())
    assert "y" in index


def test_a_child_inside_a_view(index):
    with index.view():
        assert isinstance(in_child(index.get, "d0"), IndexStateError)
        assert index.get("d0").id == "d0"


def test_parent_adds_while_child_would_compact(index):
    # Both held the one lock that the child had inherited: each removed the other's files.
    context = multiprocessing.get_context("fork")

    def child():
        for _ in range(20):
            with pytest.raises(IndexStateError):
                index.compact()
            with Index.open(index.folder) as own, pytest.raises(IndexLockedError):
                own.compact()
            with Index.open(index.folder) as own:
                assert len(own.search(tokens(), 3)[0].ids) == 3

    process = context.Process(target=child)
    process.start()
    for n in range(40):
        index.add([f"new{n}"], tokens(seed=n))
    process.join()
    assert process.exitcode == 0
    assert len(index) == 60
    index.close()
    with Index.open(index.folder) as again:
        assert check(again).sound
        assert len(again) == 60


def test_a_child_opens_the_index_anew_and_sees_what_the_parent_commits(index):
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe()

    def child():
        with Index.open(index.folder) as own:
            while there.recv() != "end":
                there.send((len(own), check(own).sound))

    process = context.Process(target=child)
    process.start()
    for n in range(5):
        index.add([f"new{n}"], tokens(seed=n))
        here.send("count")
        assert here.recv() == (21 + n, True)
    here.send("end")
    process.join()
    assert process.exitcode == 0


def test_the_lock_goes_with_its_owner_though_a_child_lives(index):
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe()
    child = context.Process(target=there.recv)
    child.start()  # it has a copy of all our files
    index.close()
    with Index.open(index.folder) as again:
        again.add(["x"], tokens())
    here.send(None)
    child.join()


def test_a_lock_that_a_dead_parent_left_to_its_child(tmp_path):
    Index.create(tmp_path / "i.weft", DIM).close()
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe()

    def parent():
        index = Index.open(tmp_path / "i.weft")
        index.add(["x"], tokens())
        if os.fork() == 0:
            there.send("forked")  # what runs after a fork has run
            there.recv()  # outlives the one that wrote
            os._exit(0)
        os._exit(0)

    process = context.Process(target=parent)
    process.start()
    process.join()
    assert here.recv() == "forked"
    with Index.open(tmp_path / "i.weft") as again:
        again.add(["y"], tokens())
        assert len(again) == 2
    here.send(None)
