"""Eight processes for half an hour: every answer a committed state, and nothing grows."""

import re
import statistics
from pathlib import Path

import pytest

from faults.amounts import SOAK_SECONDS, note
from faults.test_readers import agree

READERS = 7


class Watch:
    """What processes and the folder of an index take, again and again; a list for each process, and for the folder."""

    def __init__(self, folder):
        self._folder = folder
        self.taken = {}

    def __call__(self, pids):
        for i, pid in enumerate(pids):
            who = "writer" if i == len(pids) - 1 else "reader that reopens" if i % 2 == 0 else "reader"
            process = Path("/proc", str(pid))
            anonymous = re.search(r"RssAnon:\s+(\d+) kB", (process / "status").read_text())
            self._add(f"descriptors of a {who}", i, len(list((process / "fd").iterdir())))
            self._add(f"megabytes of a {who}", i, int(anonymous[1]) / 1024)
        sizes = [size for path in self._folder.rglob("*") if (size := _size(path)) is not None]
        self._add("files", 0, len(sizes))
        self._add("megabytes on disk", 0, sum(sizes) / 1e6)

    def _add(self, what, which, value):
        self.taken.setdefault(what, {}).setdefault(which, []).append(value)

    def thirds(self):
        """Return for each thing the medians of the three thirds of the time, the largest process's."""
        found = {}
        for what, each in self.taken.items():
            medians = [[round(statistics.median(part), 1) for part in _thirds(values)] for values in each.values()]
            found[what] = max(medians, key=lambda three: three[-1])
        return found


def _thirds(values):
    third = len(values) // 3
    return values[:third], values[third : 2 * third], values[2 * third :]


def _size(path):
    try:
        return path.stat().st_size if path.is_file() else None
    except FileNotFoundError:  # a merge has just removed it
        return None


@pytest.mark.slow
def test_nothing_grows(folder):
    watch = Watch(folder / "index")
    figures = agree(folder / "index", SOAK_SECONDS, seed=2, readers=READERS, watch=watch)
    thirds = watch.thirds()
    note("soak", processes=READERS + 1, **figures, wrong=0, thirds=thirds)
    for what, (_, middle, last) in thirds.items():
        assert last <= 1.1 * middle + 4, (what, thirds[what])
