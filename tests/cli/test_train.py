"""``weft train`` as a person runs it."""

import pytest

from weft.cli.main import main

TEXT = """
[model]
base = "{models}"
dim = 8
document_length = 16
[loss]
alignment = "top-k:2"
scale = 10.0
[training]
output = "OUT"
steps = 2
batch_size = 4
log_every = 1
[[data]]
path = "{data}"
negatives = 1
negatives_from = "bm25"
"""


@pytest.fixture
def recipe(tmp_path):
    path = tmp_path / "recipe.toml"
    path.write_text(TEXT.replace("OUT", str(tmp_path / "out")))
    return path


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning", "ignore::FutureWarning")
class TestTraining:
    def test_check(self, recipe, tiny_bert, beir_folder, tmp_path, capsys):
        assert main(["train", str(recipe), "--check", "--data", str(beir_folder), "--models", str(tiny_bert)]) == 0
        said = capsys.readouterr().out
        assert "63 rows, of 63 documents, 1 negatives each (bm25)" in said
        assert "Transformer → MultiVectorMask → Dense → Normalize" in said
        assert "top-k:2" in said
        assert not (tmp_path / "out").exists()

    def test_in_a_terminal(self, recipe, tiny_bert, beir_folder, session):
        import pexpect

        child = session("train", recipe, "--check", "--data", beir_folder, "--models", tiny_bert)
        child.expect_exact("63 rows, of 63 documents, 1 negatives each (bm25)")
        child.expect(pexpect.EOF)
        child.close()
        assert child.exitstatus == 0

    def test_train(self, recipe, tiny_bert, beir_folder, tmp_path, capsys):
        folders = ["--data", str(beir_folder), "--models", str(tiny_bert)]
        assert main(["train", str(recipe), "training.steps=1", *folders]) == 0
        assert capsys.readouterr().out.strip().splitlines()[-1] == str(tmp_path / "out" / "model")
        assert (tmp_path / "out" / "model" / "model.safetensors").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["training.stepz=1"], "unknown key training.stepz; did you mean 'steps'?"),
        (["loss.alignment=top-q"], "alignment"),
        (["--without", "medquad"], "the recipe has no collection 'medquad' to leave out; it has nowhere"),
        ([], "give --data or set WEFT_DATA"),
    ],
)
def test_mistakes_are_one_line(recipe, capsys, arguments, said):
    folders = ["--data", "/nowhere", "--models", "/nowhere"] if arguments else ["--models", "/nowhere"]
    assert main(["train", str(recipe), *arguments, *folders]) == 1
    error = capsys.readouterr().err
    assert said in error
    assert error.startswith("weft: ")
    assert error.count("\n") == 1


def test_no_such_recipe(tmp_path, capsys):
    assert main(["train", str(tmp_path / "nothing.toml")]) == 1
    assert "no such recipe" in capsys.readouterr().err
