"""A real T5 taken apart: its own attentions found again, its logits summed up from parts, eq. 14 as one of them."""

import numpy as np
import pytest

pytest.importorskip("transformers", reason="needs the generative extra: pip install 'weft-search[generative]'")
import torch

from weft.errors import DataError
from weft.explain import Reading, explain, to_html
from weft.generative.attention import attention_alignment
from weft.generative.model import GenerativeModel
from weft.generative.pawa import Pawa
from weft.generative.relevance import PARTS, trace

pytestmark = pytest.mark.torch

QUERIES = [[5, 9, 12, 7, 1], [8, 6, 1]]
TARGETS = [[11, 4, 13], [10, 3, 9, 5]]


@pytest.fixture(params=["t5", "table", "pawa"])
def model(request, tiny_model):
    if request.param == "t5":
        return tiny_model
    made = GenerativeModel(tiny_model.t5, tiny_model.tokenizer)
    made.set_table(torch.randn(20, made.dim, generator=torch.Generator().manual_seed(1)))
    if request.param == "pawa":
        torch.manual_seed(2)
        made.pawa = Pawa(made.dim, 20, layers=1, heads=2)
    return made.eval()


@torch.no_grad()
def test_parts_sum_to_the_models_own_logits(model):
    found = trace(model, model.encode(QUERIES), TARGETS)
    assert set(found.parts) == set(PARTS)
    total = sum(found.parts.values())
    torch.testing.assert_close(total[found.mask], found.logit[found.mask], rtol=1e-4, atol=1e-4)
    # The mean of −log p is the training loss, which is computed elsewhere.
    assert -found.log_p[found.mask].mean().item() == pytest.approx(model(QUERIES, TARGETS).item(), abs=1e-5)


@torch.no_grad()
def test_score_with_the_attention_alignment_is_the_cross_attention_part(model):
    found = trace(model, model.encode(QUERIES), TARGETS)
    for row in range(2):
        part = found.parts["cross-attention"][row][found.mask[row]].sum().item()
        assert found.relevance(row) == pytest.approx(part, abs=1e-4)
        assert found.ranking(row).scores[0] == pytest.approx(part, abs=1e-4)
    assert found.relevance(0, norm=False) != pytest.approx(found.relevance(0), rel=1e-2)


@torch.no_grad()
def test_attentions_are_those_of_the_model(tiny_model):
    """Recomputed from post-norm states, per head, without 1/√d; compared with eager attention's own."""
    t5 = tiny_model.t5
    encoded = tiny_model.encode(QUERIES)
    before = t5.config._attn_implementation
    t5.set_attn_implementation("eager")
    try:
        decoder_input = torch.tensor([[0, 11, 4, 0], [0, 10, 3, 9]])
        theirs = t5.decoder(
            input_ids=decoder_input,
            encoder_hidden_states=encoded.hidden,
            encoder_attention_mask=encoded.mask,
            output_attentions=True,
            use_cache=False,
        ).cross_attentions
    finally:
        t5.set_attn_implementation(before)
    found = trace(tiny_model, encoded, [[11, 4, 13], [10, 3, 9, 5]])
    for layer in range(found.layers):
        for row in range(2):
            real = found.mask[row]
            ours = found.attention(layer)[row][:, :, real]
            np.testing.assert_allclose(ours, theirs[layer][row].transpose(-1, -2)[:, :, real], atol=1e-6)
            Q, D = found.query[row].numpy(), found.states[layer][row][real].numpy()
            asked = encoded.mask[row].bool().numpy()
            W = found.interaction(layer).numpy()
            for head in range(found.heads):
                A = attention_alignment(Q[asked], D, W[head])
                np.testing.assert_allclose(ours[head].numpy()[asked], A, atol=1e-6)


@torch.no_grad()
def test_rows_do_not_change_each_other(tiny_model):
    together = trace(tiny_model, tiny_model.encode(QUERIES), TARGETS)
    for row in range(2):
        alone = trace(tiny_model, tiny_model.encode(QUERIES[row : row + 1]), TARGETS[row : row + 1])
        torch.testing.assert_close(together.logit[row][together.mask[row]], alone.logit[0], rtol=1e-4, atol=1e-5)
        assert together.relevance(row) == pytest.approx(alone.relevance(0), abs=1e-4)


@torch.no_grad()
def test_an_explanation_of_all_pairs(tiny_model):
    found = trace(tiny_model, tiny_model.encode(QUERIES), TARGETS)
    query = Reading("", 5, pieces=[f"q{i}" for i in range(5)])
    document = Reading("", 3, pieces=["red", "cat", "moon"])
    made = explain(found.ranking(0), 0, query=query, document=document, alignment="attention")
    assert len(made.pairs) == 15
    assert made.total == pytest.approx(made.score, abs=1e-5)
    page = to_html([made])
    assert "weight of each pair" in page
    weight = max(pair.weight for pair in made.pairs)
    assert f">{weight:.2f}</td>" in page


def test_mistakes(tiny_model):
    encoded = tiny_model.encode(QUERIES)
    with pytest.raises(DataError, match="at least one token"):
        trace(tiny_model, encoded, [[5], []])
    tiny_model.train()
    try:
        with pytest.raises(DataError, match="training mode"):
            trace(tiny_model, encoded, TARGETS)
    finally:
        tiny_model.eval()
