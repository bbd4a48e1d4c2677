"""A projection fitted to its base: it keeps what each query token finds in each document with all dimensions.

A PCA keeps the directions along which tokens differ most. What ranks documents is something else: the largest
similarity of each query token in each document, and how it differs between documents that resemble each other. So
the projection begins as the PCA and then imitates the base's own maxima (`weft.training.token_distillation`), and
their sum over a query, in batches of neighbours: documents near one of them, and the queries nearest to those. Texts
are all it needs, no judgements. The encoder is run once for each text and does not change.

Lists of random words are texts too. They are about nothing, so they ask for the directions of every subject, those
that no collection at hand is about among them (docs/notes/weft-small.md).
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from sentence_transformers.base.modules import Transformer
from torch import Tensor, nn
from torch.nn.functional import normalize
from tqdm import tqdm

from weft.errors import DataError
from weft.training.losses import Tokens
from weft.training.token_distillation import maxima, unexplained, words

DOCUMENTS, QUERIES = 200, 300
"""Texts of a collection that are looked at, at most. Their states are kept in memory, in half precision."""

LISTS, LISTED, ASKED_FOR = 600, 40, 8
"""Lists of random words of each kind; words of a document and of a query among them."""

STEPS = 320
RATE = 2e-3
NEAR, ASKED = 40, 24
"""Documents and queries of a batch."""

LONGEST = {"document": 160, "query": 48}
"""Tokens of a text that are looked at."""

AT_ONCE = 32


class Group(NamedTuple):
    """Texts of one collection; batches are made within it."""

    queries: Sequence[str]
    documents: Sequence[str]


def random_words(vocabulary: Iterable[str], seed: int = 0) -> Group:
    """Return lists of random words of a vocabulary: its whole words of two ASCII letters or more.

    Examples
    --------
    >>> group = random_words(["[CLS]", "red", "##ing", "a", "\N{LOWER ONE EIGHTH BLOCK}cat", "7"])
    >>> len(group.documents), sorted(set(" ".join(group.queries).split()))
    (600, ['cat', 'red'])
    """
    pieces = (piece.lstrip("\N{LOWER ONE EIGHTH BLOCK}") for piece in vocabulary)  # which begins words in some
    known = sorted({piece for piece in pieces if piece.isascii() and piece.isalpha() and len(piece) > 1})
    chance = random.Random(seed)
    if not known:
        return Group([], [])
    documents, queries = (
        [" ".join(chance.choices(known, k=length)) for _ in range(LISTS)] for length in (LISTED, ASKED_FOR)
    )
    return Group(queries, documents)


class _States(NamedTuple):
    """The states of some texts, and the direction of each text's mean."""

    tokens: list[Tensor]
    """(tokens, hidden) in half precision"""
    means: Tensor
    """(texts, hidden), of length 1"""

    def batch(self, texts: Tensor) -> tuple[Tensor, Tensor]:
        """Return the padded states of some texts, (texts, tokens, hidden), and which are real."""
        some = [self.tokens[i].float() for i in texts.tolist()]
        lengths = torch.tensor([len(states) for states in some])
        real = torch.arange(int(lengths.max())) < lengths[:, None]
        return nn.utils.rnn.pad_sequence(some, batch_first=True), real


def fit(
    linear: nn.Linear, transformer: Transformer, groups: Sequence[Group], *, steps: int = STEPS, seed: int = 0
) -> list[float]:
    """Fit a projection of token states, in place, to the similarities of the states; return each step's loss.

    The texts are those of `groups` and lists of random words of the vocabulary.

    The loss is the share of the variance of the base's maxima that the projection leaves unexplained, plus that of
    their sums over a query's words: 0 if both rank alike, at most 2. The first and the last token of a text, which
    stand for no word, are left out.
    """
    useful = [group for group in groups if group.queries and len(group.documents) > 1]
    if not useful:
        raise DataError("a fitted projection needs queries and documents to look at")
    tokenizer: Any = transformer.tokenizer
    lists = random_words(tokenizer.get_vocab(), seed)
    kept = [
        (_remember(transformer, group.queries, "query"), _remember(transformer, group.documents, "document"))
        for group in (*useful, *([lists] if lists.queries else []))
    ]
    chance = torch.Generator().manual_seed(seed)
    parameters = [p.requires_grad_() for p in linear.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=RATE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=max(steps, 2), pct_start=0.05)
    losses = []
    for step in tqdm(range(steps), desc="fitting", disable=None, leave=False):
        loss = _loss(linear, *_neighbours(*kept[step % len(kept)], chance))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    return losses


def _neighbours(queries: _States, documents: _States, chance: torch.Generator) -> tuple[Any, Any]:
    """Return a batch of queries and documents about one thing, each as padded states and which of them are real."""
    centre = documents.means[int(torch.randint(len(documents.means), (1,), generator=chance))]
    near = (documents.means @ centre).argsort(descending=True)[:NEAR]
    closest = (queries.means @ documents.means[near[:5]].T).amax(1).argsort(descending=True)[: 2 * ASKED]
    asked = closest[torch.randperm(len(closest), generator=chance)[:ASKED]]
    return queries.batch(asked), documents.batch(near)


def _loss(linear: nn.Linear, queries: tuple[Tensor, Tensor], documents: tuple[Tensor, Tensor]) -> Tensor:
    taught = _tokens(*queries), _tokens(*documents)
    found = [
        side._replace(values=normalize(linear(states), dim=-1))
        for side, (states, _) in zip(taught, (queries, documents), strict=True)
    ]
    counted = taught[0].mask
    ours, theirs = maxima(*found), maxima(*taught)  # (queries, tokens, documents)
    summed, taught_sum = ((values * counted[..., None]).sum(1, keepdim=True) for values in (ours, theirs))
    return unexplained(ours, theirs, counted) + unexplained(summed, taught_sum, counted.any(1, keepdim=True))


def _tokens(states: Tensor, real: Tensor) -> Tokens:
    tokens = Tokens(normalize(states, dim=-1), real, real.long(), None)
    return tokens._replace(mask=words(tokens))


def _remember(transformer: Transformer, texts: Sequence[str], task: str) -> _States:
    tokens, means = [], []
    longest = LONGEST[task]
    for states, real in tqdm(states_of(transformer, texts, task), desc="states", disable=None, leave=False):
        means.append(normalize((states * real[..., None]).sum(1), dim=-1))
        tokens += [one[mask][:longest].half() for one, mask in zip(states, real, strict=True)]
    return _States(tokens, torch.cat(means))


@torch.no_grad()
def states_of(
    transformer: Transformer, texts: Sequence[str], task: str = "document"
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the states of batches of texts, (texts, tokens, hidden), and which of them are real; the shortest first."""
    transformer.eval()
    ordered = sorted(texts, key=len)  # little padding: half the time
    for begin in range(0, len(ordered), AT_ONCE):
        features = transformer.preprocess(ordered[begin : begin + AT_ONCE], task=task)
        output: Any = transformer({k: v for k, v in features.items() if isinstance(v, Tensor)}, task=task)
        yield output["token_embeddings"], output["attention_mask"].bool()
