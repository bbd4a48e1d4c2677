"""Writes an index of the present format version into this folder, with the answers it gives.

    python tests/storage/golden/make.py

Run once per format version, and once more under another name when segments come to hold other arrays; never to make a
failing test pass: the point of the files is that later versions still read them.
"""

import json
from pathlib import Path

import numpy as np

from weft import Document, Index, TokenVectors
from weft.storage import merger
from weft.storage.schema import FORMAT_VERSION

HERE = Path(__file__).parent
DIM = 8


def main() -> None:
    merger.CODED_TOKENS = 600
    rng = np.random.default_rng(42)
    for bits, name in ((8, "8bit-sums"), (4, "4bit-sums")):
        path = HERE / f"v{FORMAT_VERSION}-{name}.weft"
        with Index.create(path, DIM, encoder_fingerprint="golden", bits=bits) as index:
            texts = [rng.standard_normal((int(rng.integers(0, 12)), DIM)).astype(np.float16) for _ in range(150)]
            documents = [Document(f"d{i}", f"passage number {i}", {"n": i, "tags": ["ä", "b"]}) for i in range(150)]
            spans = [np.stack([3 * np.arange(len(t)), 3 * np.arange(len(t)) + 2], axis=1) for t in texts]
            index.add(documents, TokenVectors.from_list(texts, spans=spans))  # coded
            index.add(
                ["d3", "flat"], TokenVectors.from_list([np.eye(DIM)[:2], np.eye(DIM)[2:]], salience=[[1, 0.5], [1] * 6])
            )
            index.delete(["d5", "d149"])
            query = np.round(rng.standard_normal((4, DIM)), 3).astype(np.float32)
            answers = {}
            for alignment in ("sum-of-max", "top-k:2", "xtr:50"):
                (ranking,) = index.search(query, k=7, alignment=alignment, exact=True, filter="n > 20 or n missing")
                answers[alignment] = [[r.id, round(r.score, 4)] for r in ranking]
        expected = {"query": query.tolist(), "documents": 149, "answers": answers}
        (HERE / f"{path.stem}.json").write_text(json.dumps(expected, indent=1))


if __name__ == "__main__":
    main()
