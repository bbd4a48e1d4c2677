"""Every checkpoint layout against an independent forward pass (`checkpoints.Answer`)."""

import json

import numpy as np
import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch", reason="needs the torch extra: pip install 'weft-search[torch]'")
pytest.importorskip("sentence_transformers", reason="needs the torch extra: pip install 'weft-search[torch]'")

from encoders import checkpoints
from weft import Encoder, WeftError
from weft.encoders import importers

TEXTS = [
    "Which planet is known as the Red Planet?",
    "why?",
    "",
    "The quick, brown fox jumps over the lazy dog. Why does rain fall, and why is the sky blue? Mars is a planet.",
    "a b-c; (d) x1",
]

LAYOUTS = {
    "sentence-transformers": checkpoints.sentence_transformers_6,
    "pylate": checkpoints.pylate,
    "pylate, other class name": lambda folder: checkpoints.pylate(folder, dense="pylate.models.Dense"),
    "pylate, attended expansion": lambda folder: checkpoints.pylate(folder, attend=True),
    "pylate, no expansion, own skip list": lambda folder: checkpoints.pylate(folder, expand=False, skip=["the", ","]),
    "pylate, residual": lambda folder: checkpoints.pylate(folder, residual=True, skip=[]),
    "pylate, before model_type": lambda folder: checkpoints.pylate(folder, model_type=None, safe=False),
    "stanford": checkpoints.stanford,
    "stanford, nested settings, pickled weights": lambda folder: checkpoints.stanford(folder, nested=True, safe=False),
    "stanford, attended masks": lambda folder: checkpoints.stanford(folder, attend=True),
    "stanford, punctuation kept": lambda folder: checkpoints.stanford(folder, nested=True, punctuation=False),
    "xtr": checkpoints.xtr,
    "bert": lambda folder: checkpoints.plain(folder, "bert"),
    "bert, pickled weights": lambda folder: checkpoints.plain(folder, "bert", safe=False),
    "mpnet": lambda folder: checkpoints.plain(folder, "mpnet"),
    "t5": lambda folder: checkpoints.plain(folder, "t5"),
    "mt5": lambda folder: checkpoints.plain(folder, "mt5"),
    "modernbert": lambda folder: checkpoints.plain(folder, "modernbert"),
}


def check(encoder, answer, texts=TEXTS):
    for task, encode in (("query", encoder.encode_query), ("document", encoder.encode_document)):
        found = encode(texts, batch_size=3, threads=1, truncation="ignore")
        for i, text in enumerate(texts):
            vectors, ids = answer(text, task)
            assert found.token_ids[found.offsets[i] : found.offsets[i + 1]].tolist() == ids, (task, text)
            np.testing.assert_allclose(found[i], vectors.numpy(), atol=2e-6, err_msg=f"{task} {text!r}")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_vectors_are_those_of_an_independent_forward_pass(layout, tmp_path):
    answer = LAYOUTS[layout](tmp_path / "model")
    encoder = Encoder.load(tmp_path / "model", device="cpu")
    check(encoder, answer)
    first = layout.partition(",")[0]
    assert encoder.settings.provenance["layout"] == (first if first in importers.LAYOUTS else "plain")
    assert encoder.dim == (checkpoints.HIDDEN if answer.projection is None else checkpoints.DIM)
    assert (encoder.query_length, encoder.document_length) == tuple(answer.lengths.values())


@pytest.mark.parametrize("layout", ["pylate, no expansion, own skip list", "stanford", "sentence-transformers", "xtr"])
def test_masks_agree_with_sentence_transformers_own_encoding(layout, tmp_path):
    LAYOUTS[layout](tmp_path / "model")
    encoder = Encoder.load(tmp_path / "model", device="cpu")
    model = encoder.backend.model
    for ours, theirs in (
        (encoder.encode_query(TEXTS, truncation="ignore"), model.encode_query(TEXTS, convert_to_numpy=True)),
        (encoder.encode_document(TEXTS, truncation="ignore"), model.encode_document(TEXTS, convert_to_numpy=True)),
    ):
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(a, b, atol=2e-6)


def test_a_projection_of_the_callers(tmp_path):
    weight = checkpoints.random_projection(5)
    answer = checkpoints.plain(tmp_path / "model", "bert", weight)
    np.save(tmp_path / "projection.npy", weight.numpy())
    for given in (weight.numpy(), weight, tmp_path / "projection.npy"):
        check(Encoder.load(tmp_path / "model", device="cpu", projection=given), answer, TEXTS[:2])
    with pytest.raises(WeftError, match=r"'projection'.*\(dim, 16\).*\(5, 3\)"):
        Encoder.load(tmp_path / "model", projection=np.ones((5, 3)))
    checkpoints.xtr(tmp_path / "xtr")
    with pytest.raises(WeftError, match="left out for a checkpoint of xtr"):
        Encoder.load(tmp_path / "xtr", projection=weight)


def test_a_single_vector_model_gives_its_token_vectors(tmp_path):
    answer = checkpoints.plain(tmp_path / "model", "bert")
    modules = [
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    ]
    checkpoints.write_json(tmp_path / "model" / "modules.json", modules)
    checkpoints.write_json(
        tmp_path / "model" / "config_sentence_transformers.json", {"model_type": "SentenceTransformer"}
    )
    checkpoints.write_json(tmp_path / "model" / "sentence_bert_config.json", {"max_seq_length": 10})
    answer.lengths = {"query": 10, "document": 10}
    check(Encoder.load(tmp_path / "model", device="cpu"), answer)


def test_a_name_of_the_hub_is_found_in_its_cache(tmp_path):
    commit = "0123456789012345678901234567890123456789"
    repository = tmp_path / "cache" / "models--some--model"
    answer = checkpoints.stanford(repository / "snapshots" / commit)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(commit)
    encoder = Encoder.load("some/model", device="cpu", cache_folder=tmp_path / "cache", local_files_only=True)
    assert encoder.name == "model"
    check(encoder, answer, TEXTS[:2])
    with pytest.raises(WeftError, match="some/other is neither a folder nor"):
        Encoder.load("some/other", cache_folder=tmp_path / "cache", local_files_only=True)


# -- what is refused ---------------------------------------------------------------------------------


def without(folder, *names):
    from safetensors.torch import load_file, save_file

    tensors = load_file(folder / "model.safetensors")
    save_file({k: v for k, v in tensors.items() if k not in names}, folder / "model.safetensors")


def damage_truncated(folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


def damage_emptied(folder):
    (folder / "model.safetensors").write_bytes(b"")


def damage_weights_gone(folder):
    (folder / "model.safetensors").unlink()


def damage_missing_tensor(folder):
    without(folder, "bert.encoder.layer.1.output.dense.weight", "bert.encoder.layer.1.output.dense.bias")


def damage_missing_projection(folder):
    without(folder, "linear.weight")


def damage_config_torn(folder):
    (folder / "config.json").write_text('{"model_type": "be')


def damage_config_list(folder):
    (folder / "config.json").write_text("[]")


def damage_config_gone(folder):
    (folder / "config.json").unlink()
    (folder / "artifact.metadata").unlink()


def damage_tokenizer_gone(folder):
    (folder / "tokenizer.json").unlink()


def damage_metadata_torn(folder):
    (folder / "artifact.metadata").write_text("{")


def damage_modules_torn(folder):
    (folder / "modules.json").write_text("[{]")


def damage_unknown_kind(folder):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"model_type": "no-such-model"}))


def damage_other_similarity(folder):
    settings = json.loads((folder / "artifact.metadata").read_text())
    (folder / "artifact.metadata").write_text(json.dumps(settings | {"similarity": "l2"}))


DAMAGES = {name.removeprefix("damage_"): f for name, f in globals().items() if name.startswith("damage_")}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_broken_checkpoint_is_one_clear_line(damage, tmp_path):
    checkpoints.stanford(tmp_path / "broken")
    DAMAGES[damage](tmp_path / "broken")
    with pytest.raises(WeftError, match="broken") as error:
        Encoder.load(tmp_path / "broken", device="cpu")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["~nosuchuser/x", "x" * 5000, "a\0b"])
def test_names_that_can_be_none(name):
    with pytest.raises(WeftError):
        Encoder.load(name)


def test_wrong_folders(tmp_path):
    with pytest.raises(WeftError, match="there is no folder"):
        Encoder.load(tmp_path / "nothing")
    with pytest.raises(WeftError, match=r"no config\.json"):
        Encoder.load(tmp_path)
    (tmp_path / "file").write_text("x")
    with pytest.raises(WeftError, match="a model is a folder"):
        Encoder.load(tmp_path / "file")
    checkpoints.plain(tmp_path / "model", "bert")
    with pytest.raises(WeftError, match="weft export"):
        Encoder.load(tmp_path / "model", backend="light")
    with pytest.raises(WeftError, match=r"'query_length'.*at most 64.*100"):
        Encoder.load(tmp_path / "model", query_length=100)


def test_weights_that_want_to_run_code_are_refused(tmp_path):
    class Evil:
        def __reduce__(self):
            return (open, (str(tmp_path / "ran"), "w"))

    checkpoints.xtr(tmp_path / "model")
    torch.save(
        {"linear.weight": torch.ones(8, 16), "evil": Evil()}, tmp_path / "model" / "2_Dense" / "pytorch_model.bin"
    )
    with pytest.raises(WeftError, match="cannot be read as weights"):
        Encoder.load(tmp_path / "model")
    assert not (tmp_path / "ran").exists()


def test_code_of_a_checkpoint_does_not_run(tmp_path):
    checkpoints.plain(tmp_path / "model", "bert")
    path = tmp_path / "model" / "config.json"
    config = json.loads(path.read_text())
    code = {"AutoConfig": "evil.Config", "AutoModel": "evil.Model"}
    path.write_text(json.dumps(config | {"model_type": "evil", "auto_map": code}))
    (tmp_path / "model" / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    with pytest.raises(WeftError, match="could not be loaded"):
        Encoder.load(tmp_path / "model")
    assert not (tmp_path / "ran").exists()
