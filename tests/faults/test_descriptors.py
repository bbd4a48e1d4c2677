"""Few file descriptors, as on macOS: an index of a thousand segments must be read, and merging must not use them up."""

import json
import os
import subprocess
import sys

import pytest

SCRIPT = """
import json, os, resource, sys
import numpy as np
from weft import Index, TokenVectors
from weft.storage.check import check

path, merge, adds = sys.argv[1], sys.argv[2], int(sys.argv[3])
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
os.fsync = lambda handle: None
rng = np.random.default_rng(0)
query = rng.standard_normal((2, 4)).astype(np.float32)
counts = []

def use(index):
    assert len(index) == adds
    (ranking,) = index.search(query, k=3, exact=True)
    assert check(index).problems == ()
    counts.append(len(os.listdir("/proc/self/fd")))
    return ranking.ids, [round(float(score), 4) for score in ranking.scores]

with Index.create(path, 4, merge=merge) as index:
    index.lock()
    index._commits._own._db.execute("PRAGMA synchronous = OFF")
    for i in range(adds):
        index.add([f"d{i}"], TokenVectors.from_list([rng.standard_normal((3, 4))]))
        if i % 100 == 0:
            index.wait()
            counts.append(len(os.listdir("/proc/self/fd")))
    index.wait()
    segments = index.info()["segments"]
    answers = [use(index)]
with Index.open(path, merge="off") as index:
    answers.append(use(index))
    index.compact()
    assert index.info()["segments"] == 1
    answers.append(use(index))
assert answers[0] == answers[1] == answers[2], answers
print(json.dumps([segments, counts]))
"""


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts descriptors in /proc")
@pytest.mark.parametrize(("merge", "adds"), [("off", 1100), ("background", 600), ("inline", 300)])
def test_few_are_enough(folder, merge, adds):
    command = [sys.executable, "-c", SCRIPT, str(folder / "index"), merge, str(adds)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    segments, counts = json.loads(done.stdout)
    assert segments == adds if merge == "off" else segments < 24
    assert max(counts) - min(counts) < 16  # a few connections for readers, and no more
