"""Models that are trained on one frozen base share what it gives for a text, and where they begin."""

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the train extra: pip install 'weft-search[train]'")
pytest.importorskip("datasets", reason="needs the train extra: pip install 'weft-search[train]'")

from weft.analysis.lab import Lab, Options
from weft.analysis.variants import train_variants

pytestmark = [
    pytest.mark.torch,
    # The trainer's own: no accelerator here, and what its dependencies deprecate.
    pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning", "ignore::FutureWarning"),
]
FROZEN = {"model.frozen_layers": 2, "training.remember_frozen": "anywhere", "training.steps": 2}


def test_a_frozen_base_is_computed_once_for_all(tmp_path):
    lab = Lab(Options(work=tmp_path, quick=True))
    variants = {name: FROZEN | {"loss.alignment": name} for name in ("top-k:1", "top-k:4")}
    first, second = train_variants(lab, variants, "models").values()
    assert len(list((tmp_path / "trained").glob("base-*"))) == 1
    assert not list((tmp_path / "trained").glob("*/checkpoints"))
    (pool,) = lab.pools
    encoded = lab.encoded(first, pool)
    (records,) = (tmp_path / "frozen").glob("*/records.bin")
    known = records.stat().st_size
    lab.encoded(second, pool)
    assert records.stat().st_size == known > 0  # nothing was computed for the second
    # States are kept in half precision; else they are what the model computes by itself.
    plain = first.encoder.encode_document(pool.documents.values(), truncation="ignore", salience=True)
    np.testing.assert_allclose(encoded.documents.values.astype(np.float32), plain.values, atol=0.02)
    assert not np.allclose(
        encoded.documents.values.astype(np.float32), lab.encoded(second, pool).documents.values.astype(np.float32)
    )


def test_the_same_recipe_under_another_name_is_not_trained_again(tmp_path, monkeypatch):
    lab = Lab(Options(work=tmp_path, quick=True))
    (first,) = train_variants(lab, {"one": {"training.steps": 1}}, "models").values()
    monkeypatch.setattr("weft.analysis.variants._train", None)
    (again,) = train_variants(lab, {"another": {"training.steps": 1}}, "models").values()
    assert first.folder == again.folder
