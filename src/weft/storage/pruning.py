"""Pruning by salience (ALIGNER §3.2): keep the top β of a text's tokens, for the index (β_d) or for probing (β_q)."""

from __future__ import annotations

import numpy as np

from weft.alignment.backend import top_mask
from weft.alignment.gates import budget
from weft.checks import check_fraction
from weft.errors import invalid
from weft.types import BoolArray, TokenVectors


def prune(texts: TokenVectors, beta: float, *, parameter: str = "beta") -> TokenVectors:
    """Keep the ⌈β·m⌉ most salient tokens of each text, in their old order; of equals the first.

    Examples
    --------
    >>> texts = TokenVectors.from_list([np.eye(4)], salience=[[0.1, 0.9, 0.0, 0.5]])
    >>> prune(texts, 0.5).salience.tolist()
    [0.8999999761581421, 0.5]
    """
    rows = kept(texts, beta, parameter=parameter)
    if rows.all():
        return texts
    return TokenVectors.trusted(
        texts.values[rows],
        np.concatenate([[0], np.cumsum(rows)]).astype(np.int64)[texts.offsets],
        None if texts.token_ids is None else texts.token_ids[rows],
        None if texts.salience is None else texts.salience[rows],
        None if texts.spans is None else texts.spans[rows],
    )


def kept(texts: TokenVectors, beta: float, *, parameter: str = "beta") -> BoolArray:
    """Tell which tokens `prune` keeps, shape (T,)."""
    check_fraction(beta, parameter, "prune")
    if texts.salience is None:
        raise invalid(parameter, "prune", "left out for texts without saliences", beta)
    padded = texts.to_padded()
    assert padded.salience is not None
    keep: BoolArray = top_mask(padded.salience, budget(beta, padded.mask)[:, None], padded.mask)[padded.mask]
    return keep
