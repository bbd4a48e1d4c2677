"""Models: losses as transformers computes them, heads as the equations say, folders that come back as they were."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs the generative extra: pip install 'weft-search[generative]'")

from weft.errors import CheckpointError, DataError, InvalidParameterError
from weft.generative.checkpoints import load_t5, new_t5, train_tokenizer
from weft.generative.model import GenerativeModel
from weft.generative.nonparametric import cluster_table
from weft.generative.pawa import Pawa

pytestmark = pytest.mark.torch

SHAPE = {"d_model": 16, "num_layers": 1, "num_heads": 2, "d_kv": 8, "d_ff": 32}
INPUTS, TARGETS = [[4, 5, 6, 1], [7, 1]], [[3, 2, 9], [8, 4, 4, 5, 1]]


def test_the_loss_is_transformers_own(tiny_model):
    labels = torch.full((2, 5), -100)
    ids, mask = torch.zeros(2, 4, dtype=torch.int64), torch.zeros(2, 4, dtype=torch.int64)
    for row in range(2):
        labels[row, : len(TARGETS[row])] = torch.tensor(TARGETS[row])
        ids[row, : len(INPUTS[row])], mask[row, : len(INPUTS[row])] = torch.tensor(INPUTS[row]), 1
    with torch.no_grad():
        expected = tiny_model.t5(input_ids=ids, attention_mask=mask, labels=labels).loss
        assert tiny_model(INPUTS, TARGETS).item() == pytest.approx(expected.item(), abs=1e-5)


@pytest.mark.parametrize("additive", [True, False])
def test_pawa_is_equation_17(additive):
    torch.manual_seed(0)
    pawa = Pawa(8, 5, layers=2, heads=2, additive=additive).eval()
    hidden, prefix, table = torch.randn(1, 3, 8), torch.randn(1, 3, 8), torch.randn(5, 8)
    with torch.no_grad():
        logits = pawa(hidden, prefix, table)
        projection = pawa.projection.weight.reshape(8, 5, 8)  # E: a d × d matrix for each token
        for i in range(3):
            alone = pawa.prefixes(
                prefix[:, : i + 1],
                pawa.memory,
                tgt_mask=torch.nn.Transformer.generate_square_subsequent_mask(i + 1),
            )[0, -1]  # d′_i sees no later token
            for v in range(5):
                embedding = projection[:, v] @ alone + pawa.projection.bias.reshape(8, 5)[:, v]  # e_{i,v} = E_v d′_i
                expected = embedding @ hidden[0, i] + (table[v] @ hidden[0, i] if additive else 0)
                assert logits[0, i, v].item() == pytest.approx(expected.item(), abs=1e-4)


def test_folders_come_back_as_they_were(tokenizer, tmp_path):
    torch.manual_seed(2)
    model = GenerativeModel(
        new_t5(len(tokenizer), SHAPE),
        tokenizer,
        table=torch.randn(12, 16),
        frozen_table=True,
        token_of=np.arange(12) - 2,
        pawa=Pawa(16, 12, 1, 2),
        settings={"method": "dsi"},
    ).eval()
    model.save(tmp_path / "one")
    again = GenerativeModel.load(tmp_path / "one")
    assert again.settings == {"method": "dsi"}
    assert again.token_of.tolist() == list(range(-2, 10))
    assert not again.table.weight.requires_grad
    with torch.no_grad():
        assert again(INPUTS, TARGETS).item() == model(INPUTS, TARGETS).item()
    (tmp_path / "one" / "decoder_vocabulary.safetensors").write_bytes(b"?")
    with pytest.raises(CheckpointError, match=r"decoder_vocabulary.safetensors. cannot be read"):
        GenerativeModel.load(tmp_path / "one")


@pytest.mark.parametrize("tied", [True, False])
def test_a_head_of_its_own_survives_loading(tmp_path, tied):
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(vocab_size=20, feed_forward_proj="gated-gelu", tie_word_embeddings=tied, **SHAPE)
    config.tie_word_embeddings = tied
    torch.manual_seed(1)
    t5 = T5ForConditionalGeneration(config).eval()
    if not tied:
        t5.lm_head.weight.data.normal_()
    t5.save_pretrained(tmp_path)
    again = load_t5(tmp_path).eval()
    assert torch.equal(again.lm_head.weight, t5.lm_head.weight)
    assert torch.equal(again.lm_head.weight, again.shared.weight) == tied
    ids = torch.tensor([[3, 4, 1]])
    with torch.no_grad():
        one, other = (model(input_ids=ids, decoder_input_ids=ids).logits for model in (again, t5))
    assert torch.equal(one, other)


@pytest.mark.parametrize("stored", ["shared.weight", "encoder.embed_tokens.weight"])
def test_embeddings_that_a_checkpoint_stores_once_are_those_of_both_sides(tmp_path, tokenizer, stored):
    """T5 v1.1 and flan-t5: one table of embeddings and a head of its own. The encoder's was drawn at random."""
    from safetensors.torch import load_file, save_file
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(vocab_size=len(tokenizer), feed_forward_proj="gated-gelu", tie_word_embeddings=True, **SHAPE)
    torch.manual_seed(1)
    t5 = T5ForConditionalGeneration(config).eval()
    t5.lm_head.weight = torch.nn.Parameter(torch.randn_like(t5.shared.weight))
    t5.config.scale_decoder_outputs = False
    t5.save_pretrained(tmp_path / "flan")
    tensors = load_file(tmp_path / "flan" / "model.safetensors")
    tables = {name for name in tensors if "embed_tokens" in name or "shared" in name}
    kept = {name: value for name, value in tensors.items() if name not in tables} | {"shared.weight": t5.shared.weight}
    if stored != "shared.weight":  # a copy beside it changes nothing
        kept[stored] = t5.shared.weight.clone()
    save_file(
        {name: value.contiguous() for name, value in kept.items()},
        tmp_path / "flan" / "model.safetensors",
        metadata={"format": "pt"},
    )
    tokenizer.save_pretrained(tmp_path / "flan")

    model = GenerativeModel(load_t5(tmp_path / "flan"), tokenizer, settings={"method": "seal"}).eval()
    assert model.t5.encoder.embed_tokens.weight is model.t5.shared.weight  # trained as one
    assert model.t5.decoder.embed_tokens.weight is model.t5.shared.weight
    assert model.t5.lm_head.weight is not model.t5.shared.weight
    ids = torch.tensor([[3, 4, 1]])
    with torch.no_grad():
        expected = t5(input_ids=ids, decoder_input_ids=ids).logits
        assert torch.equal(model.t5(input_ids=ids, decoder_input_ids=ids).logits, expected)
        model.save(tmp_path / "again")
        again = GenerativeModel.load(tmp_path / "again")
        assert again.t5.encoder.embed_tokens.weight is again.t5.shared.weight
        assert torch.equal(again.t5(input_ids=ids, decoder_input_ids=ids).logits, expected)


def test_a_checkpoint_without_some_weights_is_refused(tmp_path):
    from safetensors.torch import load_file, save_file

    new_t5(20, SHAPE).save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    lost = "encoder.block.0.layer.0.SelfAttention.q.weight"
    tensors.pop(lost)
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match=f"lacks weights of a T5: {lost}"):
        load_t5(tmp_path)


def test_clusters_keep_their_token_and_are_few(tiny_model):
    texts = [[5, 6, 7, 5], [5, 8, 6], [5, 6], [5, 9], [6, 5, 5]]
    lengths = [3, 2, 2, 2, 3]
    made = cluster_table(tiny_model, texts, lengths, clusters=2, context=3)
    for text, n, clusters in zip(texts, lengths, made.identifiers, strict=True):
        assert made.token_of[clusters].tolist() == text[:n]
    assert made.token_of.tolist() == [-1, -1, 5, 5, 6, 6, 7, 8, 9]
    with torch.no_grad():
        hidden = tiny_model.encode([[5, 9, 1]]).hidden[0, 1]
    np.testing.assert_allclose(made.table[made.identifiers[3][1]], hidden, atol=1e-5)  # one of its kind: itself
    again = cluster_table(tiny_model, texts, lengths, clusters=2, context=3, batch_size=2)
    np.testing.assert_allclose(again.table, made.table, atol=1e-4)


def test_tokenizers_of_a_corpus():
    texts = ["The Red Cat, the red boat.", "a river"] * 3
    for kind in ("bpe", "unigram"):
        tokenizer = train_tokenizer(texts, 40, kind=kind)
        assert (tokenizer.pad_token_id, tokenizer.eos_token_id, tokenizer.unk_token_id) == (0, 1, 2)
        assert len(tokenizer) <= 40
        whole = tokenizer("the red cat", add_special_tokens=False)["input_ids"]
        assert whole[-len(alone := tokenizer("Cat", add_special_tokens=False)["input_ids"]) :] == alone
        assert tokenizer.decode(whole) == "the red cat"
    with pytest.raises(DataError, match="no text"):
        train_tokenizer([" "], 40)
    with pytest.raises(InvalidParameterError, match="'kind' parameter"):
        train_tokenizer(texts, 40, kind="words")


def test_what_is_no_t5_is_refused(tiny_bert, tmp_path, tokenizer):
    with pytest.raises(CheckpointError, match="is a bert; generative retrieval here reads T5"):
        load_t5(tiny_bert)
    with pytest.raises(CheckpointError, match="no T5 in"):
        load_t5(tmp_path)
    with pytest.raises(InvalidParameterError, match="one of tiny, mini"):
        new_t5(20, "huge")
    with pytest.raises(InvalidParameterError, match="vocabulary of its own"):
        GenerativeModel(new_t5(len(tokenizer), SHAPE), tokenizer, pawa=Pawa(16, 4, 1, 2))
