"""Query towers are trained by `weft train`: texts, the model's vectors, a student, the files beside the model."""

import json
import shutil

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from training.checkpoints_of_towers import bert_model
from weft import Encoder
from weft.cli.main import main
from weft.encoders.query_towers import WORDS
from weft.errors import CheckpointError, InvalidParameterError
from weft.training.query_towers.beginning import PRIOR, regress
from weft.training.query_towers.fitting import fit, losses
from weft.training.query_towers.recipes import TowerTraining, build_tower_recipe
from weft.training.query_towers.run import prepare
from weft.training.query_towers.students import Layered, Static
from weft.training.query_towers.teacher import PART, teach
from weft.training.query_towers.texts import LONGEST, TextSource, make_texts, texts_of
from weft.training.query_towers.weights import Weights
from weft.training.tables import RecipeError


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return bert_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A small collection whose test queries must not be learnt from."""
    folder = tmp_path_factory.mktemp("data") / "notes"
    (folder / "qrels").mkdir(parents=True)
    line = "the red planet mars is known as a quick brown fox why does rain fall over lazy dog sky blue"
    words = line.split()
    chance = np.random.default_rng(3)
    rows = [
        {"_id": f"d{i}", "title": f"title {i}", "text": " ".join(chance.choice(words, 30)) + ". The end."}
        for i in range(20)
    ]
    (folder / "corpus.jsonl").write_text("\n".join(map(json.dumps, rows)))
    queries = [{"_id": f"q{i}", "text": f"learnt {i}" if i < 5 else f"kept aside {i}"} for i in range(10)]
    (folder / "queries.jsonl").write_text("\n".join(map(json.dumps, queries)))
    header = "query-id\tcorpus-id\tscore\n"
    for split, numbers in (("train", range(5)), ("test", range(5, 10))):
        lines = "".join(f"q{i}\td{i}\t1\n" for i in numbers)
        (folder / "qrels" / f"{split}.tsv").write_text(header + lines)
    return folder


def recipe(model, data, output, kind, **training):
    return {
        "tower": {"kind": kind, "model": str(model), "layers": "0 2", "intermediate": 16, "heads": 2},
        "training": {"output": str(output), "passes": 3, "tokens": 256, "learning_rate": 3e-3, "warmup": 2, **training},
        "data": [{"path": str(data), "limit": 300}],
    }


def write_recipe(path, tables):
    lines = []
    for name in ("tower", "training"):
        lines += [f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in tables[name].items())]
    for table in tables["data"]:
        lines += ["[[data]]", *(f"{key} = {json.dumps(value)}" for key, value in table.items())]
    path.write_text("\n".join(lines))
    return str(path)


def test_texts_are_made_of_training_queries_and_documents_alone(data):
    texts = texts_of(TextSource(str(data), limit=300))
    assert {f"learnt {i}" for i in range(5)} <= set(texts)
    assert not any("aside" in text for text in texts)
    assert any(text.startswith("title ") for text in texts)
    assert any("?" in text for text in texts)
    assert all(len(text) <= LONGEST for text in texts if len(text.split()) < 30)
    assert not any("learnt" in text for text in texts_of(TextSource(str(data), limit=50, split="")))
    assert {f"learnt {i}" for i in (1, 2)} == {
        text for text in texts_of(TextSource(str(data), limit=0, documents="^d[12]$")) if "learnt" in text
    }
    assert not any("zeppelin" in text for text in texts)
    swapped = [text for text in texts_of(TextSource(str(data), limit=300), words=["zeppelin"]) if "zeppelin" in text]
    assert len(swapped) > 10
    assert all(set(text.split()) - {"zeppelin"} for text in swapped)
    both = make_texts([TextSource(str(data), limit=50)] * 2, ["fox", "##x", "an", "7up", "and"])
    assert len(set(both)) == len(both)
    assert "fox" in both
    assert "and" not in both
    assert both == make_texts([TextSource(str(data), limit=50)] * 2, ["fox", "##x", "an", "7up", "and"])


def test_the_weights_are_the_models_whatever_form_the_graph_has(model, tmp_path):
    """All layers of it are the model: fp32 exactly, int8 nearly."""
    for precision, least in (("fp32", 1 - 1e-5), ("int8", 0.99)):
        encoder = Encoder.load(model.parent / precision)
        weights = Weights(encoder.backend.path)
        assert weights[WORDS].shape == (encoder.tokenizer.get_vocab_size(), 16)
        student = Layered(weights, range(3), 24, 2).eval()
        for text in ("the red planet", "why does rain fall? mars"):
            found = encoder.encode_query(text, salience=True)
            with torch.inference_mode():
                vectors, scores = student(torch.from_numpy(found.token_ids.astype(np.int64))[None])
            assert ((vectors[0].numpy() * found.values).sum(1)).min() > least
            assert scores.shape == (1, len(found.values))


def test_a_tower_is_no_wider_than_its_model(model):
    with pytest.raises(InvalidParameterError, match=r"'tower\.intermediate' .* at most the model's 24"):
        Layered(Weights(Encoder.load(model).backend.path), [0], 32, 2)
    with pytest.raises(CheckpointError, match=r"no weights called layer\.7\."):
        Layered(Weights(Encoder.load(model).backend.path), [7], 16, 2)


def test_the_models_vectors_are_kept_and_taken_from_where_they_are(model, data, tmp_path):
    encoder = Encoder.load(model)
    texts = texts_of(TextSource(str(data), limit=40))
    (part,) = teach(encoder, texts, tmp_path)
    assert len(part) == len(texts) <= PART
    found = encoder.encode_query(texts)
    np.testing.assert_array_equal(part.ids, found.token_ids)
    np.testing.assert_array_equal(part.offsets, found.offsets)
    np.testing.assert_allclose(part.vectors, found.values, atol=0.05)  # int8 takes its scales from what runs together
    (kept,) = tmp_path.iterdir()
    before = kept.stat().st_mtime_ns
    list(teach(encoder, texts, tmp_path))
    assert kept.stat().st_mtime_ns == before


def test_a_fast_tower_begins_with_its_heads_and_its_table_fitted(model, data, tmp_path):
    encoder = Encoder.load(model)
    parts = list(teach(encoder, texts_of(TextSource(str(data), limit=200)), tmp_path))
    student = Layered(Weights(encoder.backend.path), [0], 16, 2).eval()

    @torch.no_grad()
    def left(by_token):
        """1 − cosine, and what the head alone leaves of each token."""
        loss = []
        split = (np.split(a, parts[0].offsets[1:-1]) for a in (parts[0].ids, parts[0].vectors))
        for ids, target in zip(*split, strict=True):
            ids, target = torch.from_numpy(ids.astype(np.int64)), torch.from_numpy(target.astype(np.float32))
            loss.append(1 - (student(ids[None])[0][0] * target).sum(-1))
            states = student.states((student.words[ids] + student.positions[: len(ids)])[None])[0, 1:-1]
            for token, residual in zip(ids[1:-1].tolist(), target[1:-1] - student.token(states), strict=True):
                by_token.setdefault(token, []).append(residual)
        return float(torch.cat(loss).mean())

    before = left({})
    regress(student, lambda: parts)
    by_token = {}
    assert left(by_token) < 0.5 * before
    for token, residuals in by_token.items():
        mean = torch.stack(residuals).sum(0) / (len(residuals) + PRIOR)
        np.testing.assert_allclose(student.table[token].detach(), mean, atol=2e-3)


def test_threads_do_not_change_what_is_learnt(model, data, tmp_path):
    encoder = Encoder.load(model)
    texts = texts_of(TextSource(str(data), limit=200))
    learnt = []
    for threads in (1, 3):
        torch.manual_seed(7)
        student = Static(encoder.tokenizer.get_vocab_size(), encoder.dim)
        torch.nn.init.normal_(student.table)
        settings = TowerTraining(str(tmp_path / str(threads)), 1, taught=str(tmp_path / "taught"), threads=threads)
        fit(student, encoder, texts, settings)
        learnt.append(student.table.detach())
    torch.testing.assert_close(*learnt, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("kind", ["fast", "static"])
def test_weft_train_makes_a_tower_that_comes_nearer_and_goes_on(model, data, tmp_path, capsys, kind):
    def train(**training):
        path = write_recipe(tmp_path / "recipe.toml", recipe(model, data, tmp_path / "out", kind, **training))
        assert main(["train", path]) == 0
        return [json.loads(line) for line in (tmp_path / "out" / "log.jsonl").read_text().splitlines()]

    first = train(passes=6)
    assert first[-1]["token"] < first[0]["token"]
    if kind == "static":  # an export is slow
        capsys.readouterr()
        assert len(train(passes=7)) == 7  # one more pass, not seven
    assert capsys.readouterr().out.strip().endswith(str(tmp_path / "out" / f"query-{kind}.json"))

    home = shutil.copytree(model, tmp_path / "model")
    for file in (tmp_path / "out").glob(f"query-{kind}.*"):
        shutil.copy(file, home)
    full, tower = Encoder.load(home), Encoder.load(home, query=kind)
    assert tower.fingerprint == full.fingerprint
    texts = ["the red planet", "why does rain fall over a quick fox"]
    near = [(full.encode_query(t).values * tower.encode_query(t).values).sum(1).mean() for t in texts]
    assert min(near) > 0.8

    other = write_recipe(tmp_path / "other.toml", recipe(model, data, tmp_path / "out", kind, learning_rate=1e-3))
    assert main(["train", other]) != 0
    assert "holds a checkpoint of another recipe" in capsys.readouterr().err


def test_the_static_solution_needs_no_steps(model, data, tmp_path):
    path = write_recipe(tmp_path / "recipe.toml", recipe(model, data, tmp_path / "out", "static", passes=0))
    assert main(["train", path]) == 0
    home = shutil.copytree(model, tmp_path / "model")
    for file in (tmp_path / "out").glob("query-static.*"):
        shutil.copy(file, home)
    text = "the red planet mars is blue"
    found, wanted = (Encoder.load(home, query=q).encode_query(text).values for q in ("static", "full"))
    assert (found * wanted).sum(1).mean() > 0.8


def test_the_losses_are_what_they_say():
    chance = torch.Generator().manual_seed(1)
    target = torch.nn.functional.normalize(torch.randn(4, 3, 5, generator=chance), dim=-1)
    vectors = torch.nn.functional.normalize(torch.randn(4, 3, 5, generator=chance), dim=-1)
    scores, salience = torch.rand(4, 3, generator=chance), torch.rand(4, 3, generator=chance)
    token, text, sal = losses(vectors, scores, target, salience)
    assert token == pytest.approx(1 - float((vectors * target).sum(-1).mean()))
    assert sal == pytest.approx(float(((scores - salience) ** 2).mean()))
    divergences = []
    for i in range(4):
        p, q = [], []
        for j in range(4):
            if j != i:
                p.append(20 * (target[i] @ target[j].T).max(1).values.mean())
                q.append(20 * (vectors[i] @ target[j].T).max(1).values.mean())
        p, q = torch.stack(p).log_softmax(0), torch.stack(q).log_softmax(0)
        divergences.append(float((p.exp() * (p - q)).sum()))
    assert float(text) == pytest.approx(np.mean(divergences), rel=1e-4)
    assert float(losses(target, salience, target, salience)[1]) == pytest.approx(0, abs=1e-5)


@pytest.mark.parametrize(
    ("table", "key", "value", "word"),
    [
        ("tower", "kind", "quick", "tower.kind"),
        ("tower", "layers", "0 x", "tower.layers"),
        ("tower", "intermediate", 0, "tower.intermediate"),
        ("training", "decay", 0.0, "training.decay"),
        ("training", "precision", "int4", "training.precision"),
        ("training", "learning_rate", -1.0, "training.learning_rate"),
        ("training", "passses", 1, "did you mean 'passes'"),
    ],
)
def test_bad_recipes_are_refused(table, key, value, word):
    tables = recipe("model", "data", "out", "fast")
    tables[table][key] = value
    with pytest.raises(Exception, match=word.replace(".", r"\.")) as caught:
        build_tower_recipe(tables)
    assert "\n" not in str(caught.value)


def test_a_recipe_without_data_and_a_check(model, data, tmp_path, capsys):
    with pytest.raises(RecipeError, match="at least one"):
        build_tower_recipe(recipe("m", "d", "o", "fast") | {"data": []})
    path = write_recipe(tmp_path / "recipe.toml", recipe(model, data, tmp_path / "out", "fast"))
    assert main(["train", path, "--check"]) == 0
    assert "tower     fast" in capsys.readouterr().out
    assert not (tmp_path / "out").exists()
    assert TowerTraining(output="o").passes > 0
    made, texts = prepare(build_tower_recipe(recipe(model, data, tmp_path / "out", "fast")))
    assert made.name
    assert len(texts) > 100
