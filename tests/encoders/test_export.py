"""Two back ends, one result: the exported graph against torch, for every kind of backbone, with saliences and int8."""

import json

import numpy as np
import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch", reason="needs the torch extra: pip install 'weft-search[torch]'")
pytest.importorskip("sentence_transformers", reason="needs the torch extra: pip install 'weft-search[torch]'")

from encoders import checkpoints
from weft import Encoder, WeftError
from weft.encoders.export import export, write_folder, write_graph

TEXTS = [
    "Which planet is known as the Red Planet?",
    "",
    "The quick, brown fox jumps over the lazy dog. Why does rain fall, and why is the sky blue? " * 2,
    "mars",
]

KINDS = {  # an export takes seconds: BERT is exported by the fixture `both`
    "t5 with lower-casing": checkpoints.xtr,
    "the whole text as a vector": lambda folder: whole_text(folder),
    "modernbert with a sliding window": lambda folder: checkpoints.plain(folder, "modernbert"),
}


def whole_text(folder):
    """A BERT whose first and last vectors are those of the whole text."""
    from sentence_transformers import MultiVectorEncoder
    from sentence_transformers.base.modules import Dense

    from weft.encoders.whole_text import WholeTextProjection

    checkpoints.sentence_transformers_6(folder / "plain")
    model = MultiVectorEncoder(str(folder / "plain"), device="cpu")
    torch.manual_seed(5)
    projection = WholeTextProjection(checkpoints.HIDDEN, checkpoints.DIM)
    modules = [projection if isinstance(module, Dense) else module for module in model]
    assert projection in modules
    MultiVectorEncoder(modules=modules, prompts=dict(model.prompts), device="cpu").save_pretrained(str(folder))


def salient(folder, query_gate="lp:0.5,eps=0.02", document_gate="hard:0.4", masked=False):
    """A BERT with trained-like salience heads and query expansion, saved as sentence-transformers does."""
    from sentence_transformers import MultiVectorEncoder

    from weft.encoders.salience import Salience

    checkpoints.sentence_transformers_6(folder)
    model = MultiVectorEncoder(str(folder), device="cpu")
    model[0].query_expansion = {"strategy": "fixed", "attend": False, "length": 12}
    head = Salience(checkpoints.HIDDEN, query_gate, document_gate)
    generator = torch.Generator().manual_seed(3)
    for layer in (head.query, head.document):
        layer.weight.data = torch.randn(layer.weight.shape, generator=generator) * 0.5
    transformer, dense, mask, normalize = model
    modules = [transformer, *([mask, head] if masked else [head]), dense, *([] if masked else [mask]), normalize]
    made = MultiVectorEncoder(modules=modules, prompts=dict(model.prompts), device="cpu")
    made.save_pretrained(str(folder / "salient"))
    return folder / "salient"


def close(a, b, atol=1e-5):
    assert np.array_equal(a.offsets, b.offsets)
    assert np.array_equal(a.token_ids, b.token_ids)
    assert np.array_equal(a.spans, b.spans)
    np.testing.assert_allclose(a.values, b.values, atol=atol)


def test_the_light_form_keeps_the_models_alignment(tmp_path):
    from weft.encoders.own_alignment import write_own_alignment

    checkpoints.sentence_transformers_6(tmp_path / "model")
    write_own_alignment(tmp_path / "model", "top-k:1")
    light = Encoder.load(export(tmp_path / "model", tmp_path / "light", precision="fp32"))
    assert light.alignment == "top-k:1"


@pytest.mark.parametrize("kind", KINDS)
def test_fp32_gives_torchs_vectors(kind, tmp_path):
    KINDS[kind](tmp_path / "model")
    heavy = Encoder.load(tmp_path / "model", device="cpu")
    light = Encoder.load(export(heavy, tmp_path / "light", precision="fp32"))
    close(heavy.encode_query(TEXTS, truncation="ignore"), light.encode_query(TEXTS, truncation="ignore"))
    close(heavy.encode_document(TEXTS, truncation="ignore"), light.encode_document(TEXTS, truncation="ignore"))
    assert light.fingerprint == heavy.fingerprint != ""
    assert (light.query_length, light.document_length) == (heavy.query_length, heavy.document_length)
    if kind == "the whole text as a vector":  # its projection stays fp32
        small = Encoder.load(export(heavy, tmp_path / "int8"))
        a, b = heavy.encode_document(TEXTS, truncation="ignore"), small.encode_document(TEXTS, truncation="ignore")
        assert (a.values * b.values).sum(axis=1).min() > 0.98
    ends = {light.token_label(light.encode_document("mars").token_ids[i]) for i in (0, -1)}
    assert ("(whole text)" in ends) == (kind == "the whole text as a vector")


@pytest.fixture(scope="module", params=["before the mask", "after the mask"])
def both(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("salient")
    if request.param == "after the mask":  # where training puts the heads: budgets count what is scored
        heavy = Encoder.load(salient(folder / "model", "hard:0.5", "hard:0.2", masked=True), device="cpu")
        kinds = [type(module).__name__ for module in heavy.backend.model]
        assert kinds.index("MultiVectorMask") < kinds.index("Salience")
        assert len(heavy.settings.document.skip_ids) > 0
    else:
        heavy = Encoder.load(salient(folder / "model"), device="cpu")
    write_graph(heavy, folder / "graph")
    lights = {p: write_folder(heavy, folder / "graph", folder / p, precision=p, name="mine") for p in ("fp32", "int8")}
    return heavy, {p: Encoder.load(light) for p, light in lights.items()}, folder


def test_saliences_agree_and_are_those_of_the_module(both):
    heavy, lights, _ = both
    for task in ("query", "document"):
        a = getattr(heavy, f"encode_{task}")(TEXTS, truncation="ignore")
        b = getattr(lights["fp32"], f"encode_{task}")(TEXTS, truncation="ignore")
        close(a, b)
        np.testing.assert_allclose(a.salience, b.salience, atol=1e-4)
        assert 0 < (a.salience > 0.1).sum() < len(a.salience)
        # The module's own gates, run by sentence-transformers on torch.
        for text, row in zip(TEXTS, range(len(TEXTS)), strict=True):
            out = getattr(heavy.backend.model, f"encode_{task}")(text, output_value=None)
            theirs = out["salience"][out["attention_mask"].bool()].numpy()
            np.testing.assert_allclose(a.salience[a.offsets[row] : a.offsets[row + 1]], theirs, atol=1e-4)


def test_int8_is_near(both):
    heavy, lights, folder = both
    light = lights["int8"]
    assert light.settings.precision == "int8"
    assert light.name == "mine"
    assert light.fingerprint == heavy.fingerprint
    a, b = heavy.encode_document(TEXTS, truncation="ignore"), light.encode_document(TEXTS, truncation="ignore")
    assert np.array_equal(a.token_ids, b.token_ids)
    cosine = (a.values * b.values).sum(axis=1)
    assert 0.98 < cosine.min() < 0.9999999  # near, and really another precision
    one = np.concatenate([light.encode_document(text, truncation="ignore").values for text in TEXTS])
    assert np.array_equal(one, b.values)  # neighbours do not change a text's scales
    import onnx

    graph = onnx.load(str(folder / "int8" / "model.onnx")).graph
    assert sum(node.op_type == "MatMulInteger" for node in graph.node) == 12  # 6 products a layer, 2 layers
    words = heavy.tokenizer.get_vocab_size()
    (table,) = [t for t in graph.initializer if list(t.dims) == [words, checkpoints.HIDDEN]]
    assert table.data_type == onnx.TensorProto.INT8


def test_fingerprints_tell_models_apart_and_survive_saving(both, tmp_path):
    heavy, _, folder = both
    again = Encoder.load(folder / "model" / "salient", device="cpu", query_length=5)
    assert again.fingerprint == heavy.fingerprint
    checkpoints.plain(tmp_path / "a", "bert")
    a = Encoder.load(tmp_path / "a", device="cpu")
    b = Encoder.load(tmp_path / "a", device="cpu", projection=checkpoints.random_projection())
    assert len({a.fingerprint, b.fingerprint, heavy.fingerprint}) == 3


def test_what_export_writes_and_refuses(both, tmp_path):
    heavy, lights, folder = both
    settings = json.loads((folder / "fp32" / "weft_encoder.json").read_text())
    assert settings["format"] == 1
    assert settings["files"]["model.onnx"] == (folder / "fp32" / "model.onnx").stat().st_size
    assert not [path for path in folder.iterdir() if path.name.startswith(".")]  # no leavings
    with pytest.raises(WeftError, match="overwrite=True"):
        export(heavy, folder / "fp32")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("precious")
    with pytest.raises(WeftError, match="empty or new"):
        export(heavy, tmp_path / "mine", overwrite=True)
    with pytest.raises(WeftError, match="a folder"):
        export(heavy, tmp_path / "mine" / "thesis.txt")
    with pytest.raises(WeftError, match="'precision'"):
        export(heavy, tmp_path / "new", precision="int4")
    with pytest.raises(WeftError, match="'model'"):
        export(lights["fp32"], tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_bad_input_on_torch(both, caplog):
    heavy, lights, _ = both
    texts = ["", "mars \ud800 fox", "x" * 100_000, "red planet " * 10_000, " \n\t "]
    close(heavy.encode_document(texts), lights["fp32"].encode_document(texts))
    assert "documents are longer than 16 tokens" in caplog.text
    with pytest.raises(WeftError, match="'texts'"):
        heavy.encode_query([1])


def test_batches_do_not_change_torchs_vectors(both):
    heavy, _, _ = both
    together = heavy.encode_query(TEXTS, batch_size=4, truncation="ignore")
    close(together, heavy.encode_query(TEXTS, batch_size=1, truncation="ignore"), atol=1e-6)
    before = torch.get_num_threads()
    heavy.encode_query("mars", threads=1)
    assert torch.get_num_threads() == before


def test_the_command_writes_and_compares(tmp_path, capsys):
    from weft.cli.main import main

    checkpoints.stanford(tmp_path / "model")
    arguments = ["--queries", "5", "--documents", "12", "--name", "tiny"]
    assert main(["export", str(tmp_path / "model"), str(tmp_path / "light"), *arguments]) == 0
    out, err = capsys.readouterr()
    assert "tiny, int8, 8 dimensions" in err
    rows = [line.split(" | ") for line in out.splitlines() if line.startswith(("| torch", "| light"))]
    assert [row[0] for row in rows] == ["| torch fp32", "| light fp32", "| light int8"]
    cosines = [float(row[3].split()[0]) for row in rows]
    assert cosines[0] == cosines[1] == 1
    assert 0.95 < cosines[2] < 1
    assert Encoder.load(tmp_path / "light").name == "tiny"
