"""The loss is the cross-entropy of the formula's own scores, and XTR's differs from ColBERT's where the paper says."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("sentence_transformers")

import weft
from weft.errors import InvalidParameterError
from weft.training.losses import AlignmentLoss, Tokens, embed, salience_module, score_batch
from weft.training.model import build_model
from weft.training.recipes import ModelSettings

pytestmark = pytest.mark.torch

QUERIES = ["red cat", "blue bird round"]
POSITIVES = ["the cat . red cat", "blue bird , small bird round"]
NEGATIVES = ["red dog , large", "green bird"]


def model_of(tiny_bert, **settings):
    settings = {"dim": 8, "projection": "random", "dropout": 0.0} | settings
    torch.manual_seed(1)
    model = build_model(ModelSettings(str(tiny_bert), **settings))
    return model.train()


def features(model, *columns):
    made = []
    for i, texts in enumerate(columns):
        task = "document" if i else "query"
        made.append({**model.preprocess(list(texts), task=task), "task": task})
    return made


def numpy_scores(model, columns, alignment):
    queries, *documents = (embed(model, column) for column in columns)

    def ragged(tokens):
        lists = [v[m].detach().numpy() for v, m in zip(tokens.values, tokens.mask, strict=True)]
        ids = np.concatenate([i[m].numpy() for i, m in zip(tokens.ids, tokens.mask, strict=True)])
        u = None
        if tokens.salience is not None:
            u = np.concatenate([s[m].detach().numpy() for s, m in zip(tokens.salience, tokens.mask, strict=True)])
        plain = weft.TokenVectors.from_list(lists)
        return weft.TokenVectors(plain.values, plain.offsets, token_ids=ids, salience=u)

    merged = weft.TokenVectors.concatenate([ragged(column) for column in documents])
    return weft.score(ragged(queries), merged, alignment)


def cross_entropy(scores):
    logits = np.asarray(scores, np.float64)
    logs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    return -np.mean(np.diagonal(logs))


@pytest.mark.parametrize(
    "alignment",
    ["sum-of-max", "top-k:2", "top-p:0.5", "da:2", "xtr-in-batch:3", "document-to-query", "exact-match"],
)
@pytest.mark.parametrize("gates", [{}, {"query_gate": "lp:0.5", "document_gate": "lp:0.4"}], ids=["plain", "salience"])
def test_is_the_cross_entropy_of_the_scores(tiny_bert, alignment, gates):
    model = model_of(tiny_bert, **gates)
    columns = features(model, QUERIES, POSITIVES, NEGATIVES)
    loss = AlignmentLoss(model, alignment, scale=3.0)(columns)
    expected = cross_entropy(3.0 * numpy_scores(model, columns, alignment))
    assert loss.item() == pytest.approx(expected, rel=1e-4)
    loss.backward()
    assert any(p.grad is not None and p.grad.abs().sum() > 0 for p in model.parameters())


@pytest.mark.parametrize("gates", [{}, {"query_gate": "lp:0.5", "document_gate": "l1:0.1"}], ids=["plain", "salience"])
def test_cached_gradients_are_the_plain_ones(tiny_bert, gates):
    model = model_of(tiny_bert, dropout=0.2, **gates)
    columns = features(model, QUERIES, POSITIVES, NEGATIVES)
    gradients = []
    for size in (None, 2):  # chunks of whole columns draw the same dropout as a plain run, if the replay repeats it
        torch.manual_seed(5)
        model.zero_grad()
        AlignmentLoss(model, "xtr-in-batch:3", scale=5.0, mini_batch_size=size)(columns).backward()
        gradients.append([p.grad.clone() for p in model.parameters() if p.grad is not None])
    for plain, cached in zip(*gradients, strict=True):
        torch.testing.assert_close(plain, cached, rtol=1e-4, atol=1e-6)


def test_cached_in_chunks_of_one(tiny_bert):
    model = model_of(tiny_bert)
    columns = features(model, QUERIES, POSITIVES, NEGATIVES)
    gradients = []
    for size in (None, 1):
        model.zero_grad()
        loss = AlignmentLoss(model, "top-k:2", scale=5.0, mini_batch_size=size)(columns)
        loss.backward()
        gradients.append([p.grad.clone() for p in model.parameters() if p.grad is not None])
    for plain, cached in zip(*gradients, strict=True):
        torch.testing.assert_close(plain, cached, rtol=1e-4, atol=1e-6)


def test_l1_gate_adds_its_penalty(tiny_bert):
    model = model_of(tiny_bert, query_gate="relu", document_gate="l1:0.5")
    columns = features(model, QUERIES, POSITIVES)
    with_penalty = AlignmentLoss(model)(columns)
    documents = embed(model, columns[1])
    salience_module(model).document_gate = "relu"
    without = AlignmentLoss(model)(columns)
    penalty = 0.5 * (documents.salience * documents.mask).sum(1).mean()
    assert (with_penalty - without).item() == pytest.approx(penalty.item(), rel=1e-4)


class TestDistillation:
    def test_from_scores_of_the_rows(self, tiny_bert):
        model = model_of(tiny_bert)
        columns = features(model, QUERIES, POSITIVES, NEGATIVES)
        labels = torch.tensor([[1.0, 0.2], [0.5, 0.4]])
        loss = AlignmentLoss(model, distillation=1.0, teacher_scale=4.0)(columns, labels)
        scores = numpy_scores(model, columns, "sum-of-max")
        own = np.stack([np.diagonal(scores[:, :2]), np.diagonal(scores[:, 2:])], axis=1)
        p = np.exp(4 * labels.numpy())
        p /= p.sum(1, keepdims=True)
        q = np.exp(own) / np.exp(own).sum(1, keepdims=True)
        assert loss.item() == pytest.approx((p * np.log(p / q)).sum(1).mean(), rel=1e-4)

    def test_a_model_that_teaches_itself_has_nothing_to_learn(self, tiny_bert):
        model = model_of(tiny_bert)
        columns = features(model, QUERIES, POSITIVES, NEGATIVES)
        teacher = model_of(tiny_bert)
        alignment = "sum-of-max,z=query"
        loss = AlignmentLoss(model, alignment, scale=2.0, teacher=teacher, teacher_scale=2.0, distillation=1.0)(columns)
        assert loss.item() == pytest.approx(0.0, abs=1e-5)
        assert not any(p.requires_grad for p in teacher.parameters())

    def test_scores_of_the_wrong_shape(self, tiny_bert):
        model = model_of(tiny_bert)
        with pytest.raises(InvalidParameterError, match="one for each document"):
            AlignmentLoss(model, distillation=0.5)(features(model, QUERIES, POSITIVES), torch.ones(2, 3))


class TestTokenDistillation:
    def test_is_the_share_of_variance_that_a_factor_leaves(self, tiny_bert):
        model, teacher = model_of(tiny_bert), model_of(tiny_bert, dim=12)
        columns = features(model, QUERIES, POSITIVES, NEGATIVES)

        def found(by):
            queries, *documents = (
                [v[m] for v, m in zip(t.values, t.mask, strict=True)] for t in (embed(by, column) for column in columns)
            )
            rows = [[(q @ d.T).max(1).values[1:-1] for d in documents[0] + documents[1]] for q in queries]
            return np.concatenate([torch.stack(row, dim=1).detach().numpy() for row in rows]).astype(np.float64)

        s, t = (values - values.mean(axis=1, keepdims=True) for values in (found(model), found(teacher)))
        factor = np.linalg.lstsq(s.reshape(-1, 1), t.ravel(), rcond=None)[0]
        expected = ((factor * s - t) ** 2).sum() / (t**2).sum()
        plain, both = (AlignmentLoss(model, teacher=teacher, token_distillation=w)(columns) for w in (0, 0.5))
        assert (both - plain).item() == pytest.approx(0.5 * expected, rel=1e-4)
        both.backward()
        assert model[-2].linear.weight.grad.abs().sum() > 0

    def test_the_same_vectors_have_nothing_to_learn(self, tiny_bert):
        model, teacher = model_of(tiny_bert), model_of(tiny_bert)
        columns = features(model, QUERIES, POSITIVES, NEGATIVES)
        plain, both = (AlignmentLoss(model, teacher=teacher, token_distillation=w)(columns) for w in (0, 1))
        assert (both - plain).item() == pytest.approx(0.0, abs=1e-5)

    def test_cached_gradients_are_the_plain_ones(self, tiny_bert):
        model, teacher = model_of(tiny_bert), model_of(tiny_bert, dim=12)
        columns = features(model, QUERIES, POSITIVES, NEGATIVES)
        gradients = []
        for size in (None, 1):
            model.zero_grad()
            AlignmentLoss(model, teacher=teacher, token_distillation=2.0, mini_batch_size=size)(columns).backward()
            gradients.append([p.grad.clone() for p in model.parameters() if p.grad is not None])
        for plain, cached in zip(*gradients, strict=True):
            torch.testing.assert_close(plain, cached, rtol=1e-4, atol=1e-6)

    def test_needs_a_teacher(self, tiny_bert):
        with pytest.raises(InvalidParameterError, match="must be a model where token_distillation"):
            AlignmentLoss(model_of(tiny_bert), token_distillation=1.0)


@pytest.mark.parametrize(
    "bad",
    [{"scale": 0}, {"distillation": 2}, {"token_distillation": -1}, {"mini_batch_size": 0}, {"alignment": "top-q"}],
)
def test_bad_settings(bad):
    with pytest.raises(InvalidParameterError):
        AlignmentLoss(None, **bad)


def test_one_column_is_refused(tiny_bert):
    model = model_of(tiny_bert)
    with pytest.raises(InvalidParameterError, match="two columns"):
        AlignmentLoss(model)(features(model, QUERIES))


# -- XTR §3 and appendix A -----------------------------------------------------------------------------


def tokens(values):
    values = torch.tensor(np.array(values), dtype=torch.float64)
    return Tokens(
        values, torch.ones(values.shape[:2], dtype=torch.bool), torch.zeros(values.shape[:2], dtype=int), None
    )


class TestFailureCase:
    """A positive that wins, but whose tokens are never retrieved (§3).

    Every token of D⁺ is fairly similar (0.8), but for each query token a few tokens of *other* documents are more so
    (0.9).
    Sum-of-max is content, D⁺ wins by far; token retrieval never finds a token of D⁺.
    """

    n, k_train = 4, 3

    def batch(self):
        positive = [[0.8] * self.n] * self.n  # S_ij = d_j[i], because the query tokens are the unit vectors
        negatives = [
            [[0.9 if c == i else 0.1 for c in range(self.n)], *[[0.1] * self.n] * (self.n - 1)]
            for i in range(self.n)
            for _ in range(self.k_train)
        ]
        return tokens([np.eye(self.n)]), tokens([positive, *negatives])

    def test_colbert_is_content_and_xtr_is_not(self):
        queries, documents = self.batch()
        colbert = score_batch(queries, documents, "sum-of-max,z=query")[0]
        assert colbert.argmax() == 0
        assert colbert[0] == pytest.approx(0.8)
        assert colbert[1:].max() == pytest.approx((0.9 + 3 * 0.1) / 4)
        xtr = score_batch(queries, documents, f"xtr-in-batch:{self.k_train}")[0]
        assert xtr[0] == 0  # nothing of D⁺ was retrieved
        assert xtr[1:].min() == pytest.approx(0.9)

    def test_the_gradient_sees_it(self):
        """Under sum-of-max the high negatives are left alone (P(D⁻) ≈ 0); under XTR they are pressed down."""
        pressure = {}
        for alignment in ("sum-of-max,z=query", f"xtr-in-batch:{self.k_train}"):
            queries, documents = self.batch()
            documents.values.requires_grad_()
            scores = 20 * score_batch(queries, documents, alignment)
            torch.nn.functional.cross_entropy(scores, torch.tensor([0])).backward()
            pressure[alignment] = documents.values.grad[1, 0, 0].item()  # the 0.9 of the first negative
        colbert, xtr = pressure.values()
        assert 0 < colbert < 1e-3
        assert xtr > 1.0


class TestAppendixA:
    """The derivatives of the cross-entropy by single token similarities."""

    @pytest.mark.parametrize("alignment", ["sum-of-max,z=query", "xtr-in-batch:6"])
    def test_derivatives(self, alignment):
        """−(1 − P(D⁺))/Z⁺ for the maxima of D⁺, P(D⁻)/Z⁻ for those of D⁻ that count, 0 for all else."""
        from weft.alignment.base import Pairs
        from weft.alignment.scoring import evaluate

        generator = torch.Generator().manual_seed(3)
        B, n, m = 5, 4, 6
        S = torch.rand(1, B, n, m, generator=generator, dtype=torch.float64, requires_grad=True)
        mask = torch.ones(1, n, dtype=torch.bool), torch.ones(B, m, dtype=torch.bool)
        terms = evaluate(Pairs(S, *mask), alignment)
        torch.nn.functional.cross_entropy(terms.score, torch.tensor([0])).backward()

        values = S.detach().numpy()[0]
        if alignment.startswith("xtr"):
            best = np.sort(values.transpose(1, 0, 2).reshape(n, -1), axis=1)[
                :, -6
            ]  # the 6th of the batch, by query token
            retrieved = values >= best[None, :, None]
        else:
            retrieved = np.ones_like(values, bool)
        counted = retrieved & (values == np.where(retrieved, values, -1).max(axis=2, keepdims=True))
        z = counted.any(axis=2).sum(axis=1) if alignment.startswith("xtr") else np.full(B, n)
        f = np.where(counted, values, 0).sum(axis=(1, 2)) / np.maximum(z, 1)
        p = np.exp(f) / np.exp(f).sum()
        expected = counted * ((p - np.eye(B)[0]) / np.maximum(z, 1))[:, None, None]
        np.testing.assert_allclose(S.grad.numpy()[0], expected, atol=1e-12)
