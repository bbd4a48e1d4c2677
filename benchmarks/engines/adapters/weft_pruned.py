"""The index of this project over the more salient half of each document's tokens."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from adapters import weft
from weft.storage.pruning import prune
from weft.types import TokenVectors

BETA_D = 0.5


class Engine(weft.Engine):
    """weft, pruned.

    The workloads come without learned saliences; the rarity of a token's type stands in for them. It chooses tokens as
    `beta_d` does and is then dropped: stored, it would weigh scores, and recall is against unweighted MaxSim.
    """

    ten = ((8, 64, 40), (12, 64, 100), (16, 128, 240))
    hundred = ()

    def texts(self, work: Any) -> Iterator[tuple[str, np.ndarray]]:
        rarity = 1 / np.bincount(work.types)[work.types].astype(np.float32)
        for d in range(work.documents):
            if d % 1000 == 0:
                weft.forget(work.vectors)
            rows = slice(work.offsets[d], work.offsets[d + 1])
            vectors = np.array(work.vectors[rows])
            offsets = np.array([0, len(vectors)])
            yield str(d), prune(TokenVectors.trusted(vectors, offsets, None, rarity[rows]), BETA_D).values
