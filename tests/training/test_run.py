"""Whole training runs of a tiny model: they learn, they resume to the same losses, frozen layers change nothing."""

import json
import re
import shutil

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("sentence_transformers")

from safetensors.torch import load_file, save_file

from weft import Encoder, TextIndex
from weft.encoders.importers import import_checkpoint
from weft.encoders.salience import Salience
from weft.errors import CheckpointError, DataError
from weft.training import run as run_module
from weft.training.data import Row
from weft.training.recipes import build_recipe
from weft.training.run import assemble, check, columns, train

pytestmark = [
    pytest.mark.torch,
    # The trainer's own: no accelerator here, and what its dependencies deprecate.
    pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning", "ignore::FutureWarning"),
]


@pytest.fixture
def recipe(tiny_bert, beir_folder, tmp_path):
    def make(output="run", data=None, **tables):
        training = {
            "output": str(tmp_path / output),
            "steps": 6,
            "batch_size": 4,
            "learning_rate": 1e-3,
            "log_every": 1,
            "save_every": 3,
        }
        settings = {
            "model": {"base": str(tiny_bert), "dim": 8, "query_length": 8, "document_length": 16},
            "training": training,
            "loss": {"alignment": "xtr-in-batch:8", "scale": 10.0},
            "data": [{"path": str(beir_folder)} | (data or {})],
        }
        for name, table in tables.items():
            settings[name] = settings[name] | table
        return build_recipe(settings)

    return make


def losses(folder):
    entries = [json.loads(line) for line in (folder.parent / "log.jsonl").read_text().splitlines()]
    return {entry["step"]: entry["loss"] for entry in entries if "loss" in entry}


def test_learns(recipe):
    loss = {"alignment": "sum-of-max,z=query", "scale": 30.0}
    found = losses(
        train(recipe(loss=loss, training={"steps": 60, "learning_rate": 1e-3, "save_every": 500}), progress=False)
    )
    assert sum(found[i] for i in range(51, 61)) < 0.85 * sum(found[i] for i in range(1, 11))


@pytest.mark.parametrize("whole_text", [False, True])
def test_no_steps_save_the_model_as_it_begins(recipe, whole_text):
    start = recipe(model={"projection": "fitted", "whole_text": whole_text}, training={"steps": 0})
    folder = train(start, progress=False)
    begun, saved = assemble(start).model, import_checkpoint(folder, "saved")[0]
    for (name, expected), (_, found) in zip(begun.named_parameters(), saved.named_parameters(), strict=True):
        if "pooler" not in name:
            assert torch.allclose(found.detach(), expected.detach(), atol=1e-6), name
    assert Encoder.load(folder).encode_document(["red cat"]).values.shape[1] == 8
    assert losses(folder) == {}


def test_saves_a_model_that_loads_with_its_salience_heads(recipe):
    gates = {"query_gate": "lp:0.5", "document_gate": "lp:0.4"}
    folder = train(recipe(model=gates, training={"head_learning_rate": 1e-2}), progress=False)
    model, layout = import_checkpoint(folder, "trained")
    assert layout == "sentence-transformers"
    heads = [module for module in model if isinstance(module, Salience)]
    assert len(heads) == 1
    assert heads[0].document_gate == "lp:0.4"
    assert not torch.equal(heads[0].document.weight, torch.zeros(1, 16))
    assert model[0].document_length == 16
    assert model.encode_document("red cat").shape[1] == 8


@pytest.mark.parametrize(
    ("trained", "searched"),
    [("top-k:1", "top-k:1"), ("sum-of-max,z=query", "sum-of-max,z=query"), ("xtr-in-batch:8", "xtr")],
)
def test_the_model_keeps_the_alignment_it_was_trained_with(recipe, tmp_path, trained, searched):
    """An index of a model trained with top-k:1 and saliences was searched by the sum of max."""
    folder = train(recipe(loss={"alignment": trained}, training={"steps": 1}), progress=False)
    assert Encoder.load(folder).alignment == searched
    with TextIndex.open(tmp_path / "own.weft", create=True, model=folder) as index:
        index.add({"a": "red cat", "b": "blue bird round"})
        assert index.index.alignment == searched
        assert index.search("red")[0].score == pytest.approx(index.search("red", alignment=searched)[0].score)
    (folder / "weft_alignment.json").write_text('{"search": "top"}')
    with pytest.raises(CheckpointError, match=r"weft_alignment.json does not name an alignment"):
        Encoder.load(folder)


def test_resumes_to_the_same_losses(recipe):
    gates = {"query_gate": "lp:0.5", "document_gate": "lp:0.4"}
    whole = losses(train(recipe("whole", model=gates), progress=False))
    half = recipe("half", model=gates)
    train(half, progress=False)
    for part in ("model", "checkpoints/checkpoint-6"):  # as if the power had gone after step 3
        folder = half.training.output
        shutil.rmtree(f"{folder}/{part}")
    resumed = losses(train(half, progress=False))
    assert {step: resumed[step] for step in (4, 5, 6)} == pytest.approx(
        {step: whole[step] for step in (4, 5, 6)}, rel=1e-5
    )


def test_another_recipe_does_not_go_on_from_these_checkpoints(recipe):
    train(recipe(), progress=False)
    other = recipe(loss={"scale": 20.0})
    with pytest.raises(DataError, match="checkpoints of another recipe"):
        train(other, progress=False)
    assert set(losses(train(other, resume=False, progress=False))) == {1, 2, 3, 4, 5, 6}
    longer = train(recipe(loss={"scale": 20.0}, training={"steps": 8}), progress=False)
    assert set(losses(longer)) == {1, 2, 3, 4, 5, 6, 7, 8}
    with pytest.raises(DataError, match="8 steps already"):
        check(other)
    (longer.parent / "recipe.json").write_text("{torn")
    with pytest.raises(DataError, match="checkpoints of another recipe"):
        check(recipe(loss={"scale": 20.0}, training={"steps": 8}))


def test_a_finished_run_takes_no_further_step(recipe):
    """With a constant rate one more step would be seen."""
    settings = {"steps": 3, "scheduler": "constant", "warmup": 0.0}
    first = load_file(train(recipe(training=settings), progress=False) / "model.safetensors")
    folder = train(recipe(training=settings), progress=False)
    second = load_file(folder / "model.safetensors")
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert set(losses(folder)) == {1, 2, 3}


@pytest.mark.parametrize("projection", ["pca", "random"])
def test_more_dimensions_than_the_base_has_are_refused(recipe, projection):
    with pytest.raises(DataError, match=r"model.dim must be at most 16, the width of .*; got 4000"):
        check(recipe(model={"dim": 4000, "projection": projection}))


def test_a_random_projection_is_the_seed_s(recipe):
    models = [assemble(recipe(model={"projection": "random"}, training={"seed": s})).model for s in (3, 3, 4)]
    a, b, c = (dict(model.named_parameters())["2.linear.weight"] for model in models)
    assert torch.equal(a, b)
    assert not torch.equal(a, c)


def test_distillation_needs_somebody_to_learn_from(recipe, tmp_path):
    with pytest.raises(DataError, match=r"needs one score in every row"):
        check(recipe(loss={"distillation": 0.5}))
    rows = [{"query": f"red {x}", "positive": f"a red {x}", "scores": [1.0]} for x in ("cat", "dog", "tree", "car")]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    scored = {"path": str(tmp_path / "rows.jsonl"), "format": "jsonl"}
    *_, loss, memory, _ = check(recipe(loss={"distillation": 0.5}, data=scored))
    assert loss.startswith("loss")
    assert re.fullmatch(r"memory +0.00 GiB for the scores of 4 queries with 4 documents", memory)


def test_a_base_s_markers_are_trained_with(recipe, tmp_path, monkeypatch):
    first = train(recipe("first", model={"query_prefix": "red ", "document_prefix": "the "}), progress=False)
    seen = []
    arguments = run_module._arguments
    monkeypatch.setattr(run_module, "_arguments", lambda *a: seen.append(arguments(*a)) or seen[-1])
    second = train(recipe("second", model={"base": str(first)}), progress=False)
    assert seen[-1].prompts == {"query": "red ", "positive": "the "}
    assert Encoder.load(second).settings.query.prefix == "red "
    third = train(recipe("third", model={"base": str(first), "query_prefix": "blue "}), progress=False)
    assert seen[-1].prompts == {"query": "blue ", "positive": ""}
    assert Encoder.load(third).settings.query.prefix == "blue "


def test_negatives_that_fill_up_are_never_relevant():
    known = frozenset({"a", "b"})
    rows = [Row("q", "pa", positive_id="a", known=known), Row("q", "pb", positive_id="b", known=known)]
    other = Row("r", "pc", positive_id="c", known=frozenset({"c"}))
    found = columns([*rows, other], 1, seed=0)
    assert found["negative_1"][:2] == ["pc", "pc"]
    with pytest.raises(DataError, match="too few"):
        columns(rows, 1, seed=0)


def test_interpolation_goes_a_part_of_the_way(recipe):
    """The weights lie between those of no training and of all of it, and a finished run gives another part at once."""
    weights = {}
    for share in (1.0, 0.25):
        folder = train(recipe(training={"interpolation": share, "steps": 3}), progress=False)
        weights[share] = load_file(folder / "model.safetensors") | load_file(folder / "2_Dense" / "model.safetensors")
    still = recipe("still", training={"steps": 1, "learning_rate": 1e-12})
    begun = train(still, progress=False)
    start = load_file(begun / "model.safetensors") | load_file(begun / "2_Dense" / "model.safetensors")
    moved = 0
    for name, before in start.items():
        expected = before + 0.25 * (weights[1.0][name] - before)
        assert torch.allclose(weights[0.25][name], expected, atol=1e-6), name
        moved += int(not torch.equal(weights[1.0][name], weights[0.25][name]))
    assert moved > 10


def test_bf16_needs_no_gpu(recipe):
    assert all(np.isfinite(list(losses(train(recipe(training={"precision": "bf16"}), progress=False)).values())))


def test_frozen_layers_are_remembered_and_change_nothing(recipe, tmp_path):
    model = {"frozen_layers": 2, "dropout": 0.0}
    loss = {"teacher": "base", "distillation": 0.5, "token_distillation": 0.5}
    plain = losses(train(recipe("plain", model=model, loss=loss), progress=False))
    remembering = {"remember_frozen": str(tmp_path / "states")}
    for output in ("first", "second"):  # computed, then read
        found = losses(train(recipe(output, model=model, loss=loss, training=remembering), progress=False))
        assert found == pytest.approx(plain, rel=1e-2)  # the states are kept in half precision
    assert next((tmp_path / "states").glob("*/states.f16")).stat().st_size > 0


@pytest.mark.parametrize("key", ["optimizer", "scheduler"])
def test_check_refuses_what_the_trainer_does_not_know(recipe, key):
    with pytest.raises(DataError, match=r"\[training\] is refused.*nonsense"):
        check(recipe(training={key: "nonsense"}))


def test_check_refuses_a_base_that_is_not_whole(recipe, tiny_bert, tmp_path):
    broken = shutil.copytree(tiny_bert, tmp_path / "broken")
    weights = load_file(broken / "model.safetensors")
    some = {name: tensor for name, tensor in weights.items() if ".layer.1." not in f".{name}"}
    assert len(some) < len(weights)
    save_file(some, broken / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match="incomplete"):
        check(recipe(model={"base": str(broken)}))
    whole = (tiny_bert / "model.safetensors").read_bytes()
    (broken / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(CheckpointError, match="could not be loaded"):
        check(recipe(model={"base": str(broken)}))


def test_goes_on_from_a_checkpoint_with_new_heads(recipe):
    first = train(recipe("first", model={"whole_text": True}, training={"steps": 2}), progress=False)
    gates = {"base": str(first), "query_gate": "relu", "document_gate": "hard:0.5"}
    second = train(recipe("second", model=gates, training={"steps": 1}), progress=False)
    modules = [type(module).__name__ for module in import_checkpoint(second, "second")[0]]
    assert modules == ["Transformer", "MultiVectorMask", "Salience", "WholeTextProjection", "Normalize"]


def test_whole_texts_are_put_beside_a_trained_projection(recipe):
    first = train(recipe("first", training={"steps": 1}), progress=False)
    still = {"steps": 1, "learning_rate": 1e-12}
    second = train(recipe("second", model={"base": str(first), "whole_text": True}, training=still), progress=False)
    plain, whole = Encoder.load(first), Encoder.load(second)
    texts = ["Why is the sky blue, and rain wet?", "mars"]
    for before, after in zip(plain.encode_document(texts), whole.encode_document(texts), strict=True):
        assert np.allclose(before[1:-1], after[1:-1], atol=1e-5)
        assert not np.isclose(before[[0, -1]], after[[0, -1]], atol=0.1).all(axis=1).any()


@pytest.mark.parametrize("miner", ["bm25", "index"])
def test_mined_negatives(recipe, miner):
    folder = train(recipe(data={"negatives": 2, "negatives_from": miner}, training={"steps": 2}), progress=False)
    assert set(losses(folder)) == {1, 2}


def test_missing_data(recipe, tmp_path):
    with pytest.raises(DataError, match="no such folder"):
        train(recipe(data={"path": str(tmp_path / "nowhere")}), progress=False)


def test_missing_base(recipe, tmp_path):
    with pytest.raises(DataError, match="no such model folder"):
        train(recipe(model={"base": str(tmp_path / "nowhere")}), progress=False)
