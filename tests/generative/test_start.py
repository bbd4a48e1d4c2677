"""A model that starts from the corpus prefers what shares documents with the query before it has learnt anything."""

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the torch extra: pip install 'weft-search[torch]'")
pytest.importorskip("transformers", reason="needs the generative extra: pip install 'weft-search[generative]'")
pytest.importorskip("sklearn", reason="needs the generative extra: pip install 'weft-search[generative]'")

import torch

from weft.generative.checkpoints import new_t5
from weft.generative.start import start_from_corpus, token_vectors

SHAPE = {"d_model": 16, "num_layers": 2, "num_heads": 2, "d_kv": 8, "d_ff": 16}
TOPICS = [range(3, 10), range(10, 17), range(17, 24)]


@pytest.fixture
def texts():
    """Documents of seven tokens each from one topic."""
    random = np.random.default_rng(0)
    return [random.choice(list(TOPICS[n % 3]), 7).tolist() for n in range(60)]


def test_tokens_of_one_topic_are_near(texts):
    vectors = token_vectors(texts, 24, 16)
    for topic in TOPICS:
        inside = vectors[topic] @ vectors[topic].T
        outside = vectors[topic] @ np.delete(vectors, topic, axis=0).T
        assert inside.mean() > 4
        assert abs(outside).max() < 1e-3  # no document has tokens of two topics
    np.testing.assert_allclose(np.linalg.norm(vectors[3:], axis=1), 4, rtol=1e-5)
    assert not vectors[:3].any()


def test_a_corpus_smaller_than_the_model_leaves_dimensions_empty():
    vectors = token_vectors([[3, 4], [4, 5]], 8, 16)
    assert vectors.shape == (8, 16)
    assert not vectors[:, 2:].any()


def test_cross_attention_hands_on_what_it_reads(texts):
    t5 = new_t5(24, SHAPE)
    start_from_corpus(t5, texts)
    for block in t5.decoder.block:
        attention = block.layer[1].EncDecAttention
        torch.testing.assert_close(attention.o.weight @ attention.v.weight, torch.eye(16), atol=1e-5, rtol=0)


def test_the_untrained_decoder_prefers_the_querys_topic(texts):
    before, after = [], []
    for seed in range(8):
        t5 = new_t5(24, SHAPE, seed=seed).eval()
        untouched = t5.shared.weight[:3].clone()
        before.append(_inside(t5))
        start_from_corpus(t5, texts, seed)
        after.append(_inside(t5))
        assert torch.equal(t5.shared.weight[:3], untouched)  # pad, end and unknown are in no document
    assert np.mean(before) < 0.36 < 0.4 < np.mean(after)  # a third is chance


def _inside(t5):
    """How much of the first step's probability is on tokens of the query's topic, on average."""
    with torch.no_grad():
        found = []
        for topic in TOPICS:
            logits = t5(input_ids=torch.tensor([[*topic[:3], 1]]), decoder_input_ids=torch.tensor([[0]])).logits[0, -1]
            found.append(logits[3:].softmax(0)[[token - 3 for token in topic]].sum())
    return float(torch.stack(found).mean())


def test_the_same_seed_gives_the_same_model(texts):
    first, second = new_t5(24, SHAPE), new_t5(24, SHAPE)
    for t5 in (first, second):
        start_from_corpus(t5, texts, seed=4)
    for ours, theirs in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(ours, theirs)
