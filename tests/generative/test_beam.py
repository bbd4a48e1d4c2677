"""Constrained decoding against enumeration and a slow beam search that recomputes everything."""

import itertools
import math

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs the generative extra: pip install 'weft-search[generative]'")

from weft.errors import InvalidParameterError
from weft.generative.beam import ROWS, beam_search
from weft.generative.checkpoints import new_t5
from weft.generative.decoder import Decoder
from weft.generative.model import GenerativeModel
from weft.generative.pawa import Pawa
from weft.generative.products import Bytes
from weft.generative.trie import ClusterTrie, Trie

pytestmark = pytest.mark.torch

SHAPE = {"d_model": 16, "num_layers": 2, "num_heads": 2, "d_kv": 8, "d_ff": 32}
QUERIES = [[4, 5, 6, 1], [7, 1], [3, 3, 9, 10, 11, 1]]


@pytest.fixture(scope="module")
def model(tokenizer):
    return GenerativeModel(new_t5(12, SHAPE, seed=5), tokenizer).eval()


def log_probability(model, query, tokens):
    """The sum of log p, by transformers' own forward pass without a cache and without a batch."""
    with torch.no_grad():
        logits = model.t5(input_ids=torch.tensor([query]), decoder_input_ids=torch.tensor([[0, *tokens[:-1]]])).logits[
            0
        ]
    return sum(logits.double().log_softmax(-1)[range(len(tokens)), list(tokens)]).item()


def slow_beam_search(model, query, identifiers, width, length):
    """Every partial hypothesis ever kept, with its log p."""
    prefixes = {tuple(i[:n]) for i in identifiers for n in range(1, len(i) + 1)}
    beam, kept = [()], {}
    for depth in range(1, length + 1):
        longer = [p for p in prefixes if len(p) == depth and p[:-1] in beam]
        scored = sorted(((log_probability(model, query, p), p) for p in longer), reverse=True)[:width]
        beam = [p for _, p in scored]
        kept.update({p: s for s, p in scored})
    return kept


def test_a_beam_as_wide_as_the_set_finds_every_identifier_with_its_log_p(model):
    identifiers = [list(i) for i in itertools.product([2, 5, 9], [3, 4], [2, 11])] + [[7], [7, 3]]
    for query, found in zip(QUERIES, beam_search(model, QUERIES, Trie(identifiers), beams=50, end=1), strict=True):
        assert set(found.keys) == set(map(tuple, identifiers))
        for tokens, log_p in found.keys.items():
            assert log_p == pytest.approx(log_probability(model, query, [*tokens, 1]), abs=1e-4)
        assert list(found.keys.values()) == sorted(found.keys.values(), reverse=True)
        expected = [log_probability(model, query, [token]) for token in range(12)]
        np.testing.assert_allclose(found.unigrams, expected, atol=1e-4)
        assert math.isclose(np.exp(found.unigrams).sum(), 1, abs_tol=1e-5)  # of the whole vocabulary


@pytest.mark.parametrize("width", [1, 2, 3, 5])
def test_a_narrow_beam_keeps_what_a_slow_one_keeps(model, width):
    random = np.random.default_rng(width)
    identifiers = {tuple(random.integers(2, 12, random.integers(1, 5)).tolist()) for _ in range(60)}

    class Prefixes(Trie):  # every prefix counts, as in SEAL
        def complete(self, state):
            return state > 0

    found = list(beam_search(model, QUERIES, Prefixes(identifiers), beams=width, length=3, batch_size=2))
    for query, decoded in zip(QUERIES, found, strict=True):
        expected = slow_beam_search(model, query, identifiers, width, 3)
        assert decoded.keys == pytest.approx(expected, abs=1e-4)


def test_thousands_of_decodes_and_not_one_invalid_identifier(model):
    random = np.random.default_rng(0)
    identifiers = {tuple(random.integers(2, 12, random.integers(1, 6)).tolist()) for _ in range(300)}
    queries = [[*random.integers(2, 12, random.integers(1, 8)).tolist(), 1] for _ in range(300)]
    found = list(beam_search(model, queries, Trie(identifiers), beams=10, end=1, batch_size=64))
    decoded = [key for one in found for key in one.keys]
    assert len(decoded) > 3000
    assert set(decoded) <= identifiers


def test_queries_do_not_depend_on_their_batch(model):
    trie = Trie(itertools.product([2, 5, 9], [3, 4, 8]))
    together = list(beam_search(model, QUERIES, trie, beams=3, end=1))
    alone = [next(iter(beam_search(model, [query], trie, beams=3, end=1))) for query in QUERIES]
    for one, other in zip(together, alone, strict=True):
        assert one.keys == pytest.approx(other.keys, abs=1e-4)


@pytest.mark.parametrize("form", ["gated-gelu", "relu", "untied"])
def test_step_by_step_the_logits_are_transformers_own(tokenizer, form):
    """T5's two feed-forward layers, tied and own heads; rows of two queries of unequal length, chosen anew."""
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(vocab_size=12, feed_forward_proj="relu" if form == "relu" else "gated-gelu", **SHAPE)
    torch.manual_seed(6)
    t5 = T5ForConditionalGeneration(config)
    if form == "untied":
        t5.lm_head.weight = torch.nn.Parameter(torch.randn_like(t5.lm_head.weight))
        t5.config.scale_decoder_outputs = False
    model = GenerativeModel(t5, tokenizer).eval()
    queries, prefixes = QUERIES[1:], [[0], [0]]
    for trained in (False, True):
        if trained:  # weights that change are noticed
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.mul_(1.1)
        owner, prefixes = [0, 1], [[0], [0]]
        with torch.inference_mode():
            decoder = Decoder(model, queries)
            for rows, tokens in (([0, 0, 1], [3, 4, 5]), ([2, 0, 1, 1], [7, 3, 3, 9]), ([0, 3], [2, 2])):
                found = decoder.logits()
                for row, prefix in enumerate(prefixes):
                    ids = torch.tensor([queries[owner[row]]])
                    whole = t5(input_ids=ids, decoder_input_ids=torch.tensor([prefix])).logits[0, -1]
                    torch.testing.assert_close(found[row], whole, rtol=1e-4, atol=1e-4)
                decoder.advance(np.array(rows), np.array(tokens, np.int32))
                prefixes = [[*prefixes[row], token] for row, token in zip(rows, tokens, strict=True)]
                owner = [owner[row] for row in rows]


def test_in_bytes_the_logits_are_nearly_the_same(tokenizer):
    """Against the same steps in floats, of several rows, of one, and of rows of zeros."""
    shape = SHAPE | {"d_model": 64, "d_ff": 128, "d_kv": 32}
    model = GenerativeModel(new_t5(40, shape, seed=4), tokenizer).eval()
    found = {}
    for in_bytes in (False, True):
        model.decodes_in_bytes = in_bytes  # noticed by a model that has decoded before
        with torch.inference_mode():
            decoder = Decoder(model, QUERIES)
            steps = [decoder.logits()]
            decoder.advance(np.array([0, 1, 2, 2]), np.array([3, 4, 5, 6], np.int32))
            steps.append(decoder.logits())
            decoder.advance(np.array([3]), np.array([7], np.int32))
            steps.append(decoder.logits())
        found[in_bytes] = torch.cat(steps)
    off = (found[True] - found[False]).norm(dim=1) / found[False].norm(dim=1)
    assert (off > 0).all()
    assert off.max() < 0.05
    layer = torch.nn.Linear(64, 6, bias=False)
    with torch.inference_mode():
        assert not Bytes(layer)(torch.zeros(2, 1, 64)).any()
        states = torch.randn(2, 3, 64)
        torch.testing.assert_close(Bytes(layer)(states), layer(states), rtol=0, atol=0.05)


def test_many_beams_are_decoded_a_few_queries_at_a_time(model, monkeypatch):
    """300 beams of 16 queries took 1.5 GB, and more time than one query after the other."""
    seen = []

    class Counting(Decoder):
        def logits(self):
            found = super().logits()
            seen.append(len(found))
            return found

    monkeypatch.setattr("weft.generative.beam.Decoder", Counting)
    identifiers = [list(i) for i in itertools.product(range(2, 10), range(2, 10), range(2, 10))]
    queries = QUERIES * 4
    found = list(beam_search(model, queries, Trie(identifiers), beams=256, end=1))
    assert len(found) == 12
    assert max(seen) <= ROWS
    assert len(next(iter(found)).keys) >= 256


@pytest.mark.parametrize("additive", [True, False])
def test_pawa_step_by_step_is_pawa_at_once(tokenizer, additive):
    torch.manual_seed(1)
    table = torch.randn(12, 16)
    pawa = Pawa(16, 12, layers=1, heads=2, additive=additive)
    model = GenerativeModel(new_t5(30, SHAPE, seed=2), tokenizer, table=table, pawa=pawa).eval()
    identifiers = list(itertools.product([2, 5, 9], [3, 4], [2, 11]))
    for query, found in zip(QUERIES, beam_search(model, QUERIES, Trie(identifiers), beams=50, end=1), strict=True):
        assert len(found.keys) == len(identifiers)
        for tokens, log_p in found.keys.items():
            with torch.no_grad():
                loss = model([query], [[*tokens, 1]])  # the mean over tokens, teacher-forced
            assert log_p == pytest.approx(-loss.item() * (len(tokens) + 1), abs=1e-4)


def test_clusters_say_the_tokens_they_belong_to(tokenizer):
    torch.manual_seed(4)
    token_of = np.array([-1, -1, 5, 6, 5, 7, 7, 7])
    model = GenerativeModel(new_t5(30, SHAPE), tokenizer, table=torch.randn(8, 16), frozen_table=True).eval()
    trie = ClusterTrie(Trie([[5, 7], [6]]), token_of)
    (found,) = beam_search(model, QUERIES[:1], trie, beams=20, end=1)
    assert set(found.keys) == {*itertools.product([2, 4], [5, 6, 7]), (3,)}


def test_variants_of_one_identifier_do_not_fill_the_beam(tokenizer):
    """A narrow beam of a decoder with three clusters a token: every hypothesis says something else."""
    torch.manual_seed(4)
    identifiers = [list(i) for i in itertools.product([5, 6, 7], [8, 9])]
    token_of = np.concatenate([[-1, -1], np.repeat(np.arange(5, 10), 3)])
    table = torch.randn(len(token_of), 16)
    model = GenerativeModel(new_t5(30, SHAPE), tokenizer, table=table, frozen_table=True).eval()
    trie = ClusterTrie(Trie(identifiers), token_of)
    for query in QUERIES:
        (plain,) = beam_search(model, [query], trie, beams=6, end=1)
        (merged,) = beam_search(model, [query], trie, beams=6, end=1, says=token_of)
        said = [tuple(token_of[list(key)].tolist()) for key in merged.keys]
        assert sorted(said) == sorted(map(tuple, identifiers))  # all six, each once
        assert len({tuple(token_of[list(key)].tolist()) for key in plain.keys}) < 6
        # The score is that of the very clusters decoded, and of the best of each step's.
        for key, log_p in merged.keys.items():
            with torch.no_grad():
                loss = model([query], [[*key, 1]])
            assert log_p == pytest.approx(-3 * loss.item(), abs=1e-4)
        (every,) = beam_search(model, [query], trie, beams=1000, end=1)
        assert next(iter(merged.keys.values())) <= next(iter(every.keys.values())) + 1e-5


def test_a_model_without_the_tokens_of_the_index_is_refused(model):
    with pytest.raises(InvalidParameterError, match=r"token 40, but the model's decoder has 12 tokens"):
        next(iter(beam_search(model, QUERIES, Trie([[40]]))))
    with pytest.raises(InvalidParameterError, match="'beams' parameter"):
        next(iter(beam_search(model, QUERIES, Trie([[4]]), beams=0)))
