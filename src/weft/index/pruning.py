"""Pruning by salience (ALIGNER §3.2): keep the top β of a text's tokens, for the index (β_d) or for probing (β_q)."""

from __future__ import annotations

import numpy as np

from weft.alignment.backend import top_mask
from weft.alignment.gates import budget
from weft.alignment.spec import check_fraction
from weft.errors import invalid
from weft.types import TokenVectors


def prune(texts: TokenVectors, beta: float, *, parameter: str = "beta") -> TokenVectors:
    """Keep the ⌈β·m⌉ most salient tokens of each text, in their old order; of equals the first.

    Examples
    --------
    >>> texts = TokenVectors.from_list([np.eye(4)], salience=[[0.1, 0.9, 0.0, 0.5]])
    >>> prune(texts, 0.5).salience.tolist()
    [0.8999999761581421, 0.5]
    """
    check_fraction(beta, parameter, "prune")
    if texts.salience is None:
        raise invalid(parameter, "prune", "left out for texts without saliences", beta)
    if beta == 1:
        return texts
    padded = texts.to_padded()
    assert padded.salience is not None
    keep = top_mask(padded.salience, budget(beta, padded.mask)[:, None], padded.mask)
    rows = keep[padded.mask]
    return TokenVectors.trusted(
        texts.values[rows],
        np.concatenate([[0], np.cumsum(keep.sum(axis=1))]).astype(np.int64),
        None if texts.token_ids is None else texts.token_ids[rows],
        texts.salience[rows],
        None if texts.spans is None else texts.spans[rows],
    )
