"""XTR's in-batch token retrieval: the definition's scores and gradients, appendix A's closed forms, little memory."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("sentence_transformers")

from weft.alignment import Alignment
from weft.alignment.base import Pairs
from weft.alignment.scoring import evaluate
from weft.training.in_batch import memory, score_in_batch

pytestmark = pytest.mark.torch


def batch(seed, shapes=((3, 4), (5, 6)), dim=7, salient=False, dtype=torch.float64):
    """Two sides of random vectors, the last texts shorter, the very last empty."""
    generator = torch.Generator().manual_seed(seed)
    sides = []
    for texts, tokens in shapes:
        values = torch.randn(texts, tokens, dim, generator=generator, dtype=dtype)
        mask = torch.arange(tokens)[None] < torch.arange(tokens, tokens - texts, -1).clamp(min=0)[:, None]
        u = torch.rand(texts, tokens, generator=generator, dtype=dtype) if salient else None
        sides.append((values.requires_grad_(), mask, None if u is None else u.requires_grad_()))
    return sides


def defined(queries, documents, alignment):
    S = torch.einsum("bnd,Nmd->bNnm", queries[0], documents[0])
    return evaluate(Pairs(S, queries[1], documents[1]), alignment, queries[2], documents[2]).score


@pytest.mark.parametrize("salient", [False, True])
@pytest.mark.parametrize("k", [1, 3, 8, 100])
@pytest.mark.parametrize("z", ["sum", "query", "one"])
def test_scores_and_gradients_are_the_definitions(k, z, salient):
    alignment = Alignment.parse(f"xtr-in-batch:{k},z={z}")
    found = []
    for scored in (defined, lambda *sides: score_in_batch(*sides, at_once=25)):  # one row of tokens at a time
        sides = batch(k, salient=salient)
        scores = scored(*sides, alignment)
        torch.nn.functional.cross_entropy(3 * scores, torch.tensor([0, 2, 1])).backward()
        tensors = [t for side in sides for t in (side[0], side[2]) if t is not None]
        found.append([scores.detach(), *(t.grad for t in tensors)])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)


def test_nothing_to_retrieve_scores_nothing():
    queries, documents = batch(1)
    for empty in (0, 1):
        sides = [list(queries), list(documents)]
        sides[empty][1] = torch.zeros_like(sides[empty][1])
        scores = score_in_batch(*map(tuple, sides), Alignment.parse("xtr-in-batch:4"))
        assert scores.shape == (3, 5)
        assert not scores.detach().any()
        scores.sum().backward()


@pytest.mark.parametrize("k", [2, 5, 12, 20])
def test_appendix_a(k):
    """∂L/∂P of a similarity that counts: −(1 − P(D⁺))/Z⁺ for the positive, P(D⁻)/Z⁻ for a negative; else 0."""
    torch.manual_seed(k)
    S = torch.rand(1, 4, 3, 5, dtype=torch.float64).requires_grad_()  # one query of 3 tokens, 4 documents of 5
    ones = torch.ones(1, 3, dtype=torch.bool), torch.ones(4, 5, dtype=torch.bool)
    terms = evaluate(Pairs(S, *ones), f"xtr-in-batch:{k}")
    torch.nn.functional.cross_entropy(terms.score, torch.tensor([0])).backward()
    P = terms.score.detach().softmax(-1)[0].numpy()

    similarity = S.detach()[0].numpy()  # (4, 3, 5), by hand from here on
    expected = np.zeros_like(similarity)
    Z = np.zeros(4)
    best = []
    for i in range(3):
        retrieved = np.sort(similarity[:, i].ravel())[-k]
        for d in range(4):
            j = similarity[d, i].argmax()
            if similarity[d, i, j] >= retrieved:
                best.append((d, i, j))
                Z[d] += 1
    for d, i, j in best:
        expected[d, i, j] = -(1 - P[0]) / Z[0] if d == 0 else P[d] / Z[d]
    np.testing.assert_allclose(S.grad[0].numpy(), expected, atol=1e-12)


def test_what_is_kept_for_the_backward_pass_does_not_grow_with_the_documents():
    kept = {}
    for documents in (32, 128):
        sides = batch(1, shapes=((8, 16), (documents, 32)), dim=8, dtype=torch.float32)
        sides[1] = (sides[1][0], torch.ones(documents, 32, dtype=torch.bool), None)
        seen = {}

        def pack(tensor, seen=seen):
            seen[tensor.data_ptr()] = tensor.numel() * tensor.element_size()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            score_in_batch(*sides, Alignment.parse("xtr-in-batch:4")).sum()
        vectors = sides[1][0].numel() * 4
        kept[documents] = sum(seen.values()) - 2 * vectors  # the vectors themselves, padded and not
    similarities = 8 * 16 * 128 * 32
    assert kept[128] < 0.5 * similarities  # bytes a similarity; all of them with their masks took 38.7
    assert memory(8, 16, 128, 32, 4, 8) < 16 * similarities + 2**20
