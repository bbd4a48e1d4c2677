"""A power cut at any moment: nothing acknowledged before is lost. Killing the writer alone would prove nothing."""

import random

import pytest

from faults.amounts import CUTS, note
from faults.machine import Worker
from faults.workload import Model, verify
from weft.errors import WeftError


class Cuts:
    """A writer at work on a disk whose power is cut again and again. Its index is then looked at on the copy."""

    def __init__(self, disk, seed, *, durable=True):
        self._disk, self._seed, self._durable = disk, seed, durable
        self.before, self.at = 0, 0

    def __call__(self, n):
        """Yield for each of n cuts; ask the disk for the copy then."""
        rng = random.Random(self._seed)
        with Worker(self._disk.path / "index", self._seed, durable=self._durable) as worker:
            for _ in range(n):
                # Some more operations; the cut comes in the middle of them, or right after the last.
                asked = rng.randrange(1, 6)
                worker.send(f"run {asked}")
                for _ in range(rng.randrange(asked + 1)):
                    assert worker.answer() == ["ack"]
                    self.at += 1
                self.before = self.at
                with self._disk.standing_still():
                    # An operation needs the disk to finish. One whose acknowledgement is not here now cannot be more
                    # than one ahead of the acknowledged ones.
                    self.at += worker.acknowledged(wait=False)
                yield
                self.at = self._catch_up(worker, self.at)

    def _catch_up(self, worker, acknowledged):
        worker.send("read")  # answered after all that was asked before
        while (answer := worker.answer()) == ["ack"]:
            acknowledged += 1
        assert answer is not None
        assert answer[0] == "contents", answer
        return acknowledged


def losses(disk, seed, n, *, durable=True):
    """Cut n times; return the complaints, and how often the operation in flight was there and was not."""
    cuts, model = Cuts(disk, seed, durable=durable), Model(seed)
    complaints, finished = [], []
    for _ in cuts(n):
        with disk.after_the_cut() as path:
            try:
                finished.append(verify(path / "index", model, cuts.before, cuts.at + 1) > cuts.before)
            except (AssertionError, WeftError) as error:
                complaints.append(str(error))
    return complaints, finished


class TestPowerCut:
    def test_loses_nothing(self, disk):
        complaints, _ = losses(disk, 0, 25)
        assert complaints == []

    @pytest.mark.slow
    @pytest.mark.parametrize("seed", range(1, 9))
    def test_loses_nothing_however_often(self, disk, seed):
        complaints, finished = losses(disk, seed, CUTS // 8)
        assert complaints == []
        note("power cut", seed=seed, cuts=len(finished), lost=0, later=sum(finished))
        assert len(set(finished)) == 2 or CUTS < 160  # the cuts fell before and after the moment of commit

    def test_is_noticed_by_a_writer_that_forgets_to_fsync(self, disk):
        """Otherwise these tests would prove nothing."""
        complaints, _ = losses(disk, 0, 8, durable=False)
        assert len(complaints) >= 4
