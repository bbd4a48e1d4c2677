"""Index files of released format versions still open, check and answer as they did."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from weft import Document, Index, TokenVectors

GOLDEN = Path(__file__).parent / "golden"
KEPT = sorted(path.stem for path in GOLDEN.glob("*.json"))


def test_the_present_version_is_kept():
    from weft.storage.schema import FORMAT_VERSION

    assert any(name.startswith(f"v{FORMAT_VERSION}-") for name in KEPT)


@pytest.mark.parametrize("name", KEPT)
def test_still_opens_and_answers(name, tmp_path):
    expected = json.loads((GOLDEN / f"{name}.json").read_text())
    path = tmp_path / name
    shutil.copytree(GOLDEN / f"{name}.weft", path)
    with Index.open(path, encoder_fingerprint="golden", dim=8) as index:
        assert index.check().sound
        assert len(index) == expected["documents"]
        assert index.get("d7") == Document("d7", "passage number 7", {"n": 7, "tags": ["ä", "b"]})
        query = np.array(expected["query"], dtype=np.float32)
        for alignment, answers in expected["answers"].items():
            (ranking,) = index.search(query, k=7, alignment=alignment, exact=True, filter="n > 20 or n missing")
            assert ranking.scores == pytest.approx([score for _, score in answers], abs=2e-3)
            assert [r.id for r in ranking] == [id for id, _ in answers]  # noqa: A001
        stored = index.reading("d7")
        if name.startswith("v1-"):
            assert stored.spans is None
        else:
            assert stored.spans.tolist() == [[3 * i, 3 * i + 2] for i in range(stored.n_tokens)]
        index.add(["later"], TokenVectors.from_list([np.ones((2, 8))]))  # and can still be written
        index.compact()
        assert index.check().sound
        assert len(index) == expected["documents"] + 1
