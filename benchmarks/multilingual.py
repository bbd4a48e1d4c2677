"""Does token retrieval transfer to other languages? XQuAD's twelve, by models that were trained on English alone.

    python benchmarks/multilingual.py --data FOLDER --cache FOLDER --write

``FOLDER/xquad`` holds 240 parallel paragraphs and 1,190 questions in each of twelve languages. Each question is asked
of the paragraphs of its own language; top-1 is the share of questions whose paragraph comes first, with a 95 % interval
of a bootstrap over questions. Every paragraph is scored exactly, as passages that the model reads whole. Encodings are
kept in ``--cache``: stopped, it goes on where it was. ``--base`` is the untrained base, exported without a projection.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from weft import Encoder, TokenVectors
from weft.encoders import parent_id, split_passages
from weft.evaluation.pools import Encoded
from weft.evaluation.scoring import score_all
from weft.sources.beir import Collection
from weft.types import Document

sys.path.insert(0, str(Path(__file__).parent))
from results_file import write_section
from whole import digest

ALIGNMENTS = ("sum-of-max", "xtr")
STEMMERS = {
    "ar": "arabic", "de": "german", "el": "greek", "en": "english", "es": "spanish", "hi": "hindi", "ro": "romanian",
    "ru": "russian", "tr": "turkish",
}  # fmt: skip
"""Languages that have a stemmer of Snowball's."""
GRAM = {"zh": 2, "th": 3}
"""Characters of the n-grams of a language; of all others, `GRAM_ELSEWHERE`, within words."""
GRAM_ELSEWHERE = 4
FIELDS = ("values", "offsets", "token_ids")


def words(language: str) -> Callable[[str], list[str]]:
    """Return what cuts a text into stemmed words."""
    import Stemmer

    stem = Stemmer.Stemmer(STEMMERS[language]).stemWords if language in STEMMERS else list
    return lambda text: list(stem(re.findall(r"[\w\u0300-\u036f\u0900-\u0963\u0e00-\u0e4e]+", text.lower())))


def grams(language: str) -> Callable[[str], list[str]]:
    """Return what cuts a text into the n-grams of its words; a shorter word is one of them."""
    n = GRAM.get(language, GRAM_ELSEWHERE)

    def cut(text: str) -> list[str]:
        runs = re.findall(r"[\w\u0300-\u036f\u0900-\u0963\u0e00-\u0e4e]+", text.lower())
        return [run[i : i + n] for run in runs for i in range(max(1, len(run) - n + 1))]

    return cut


def bm25(documents: list[str], queries: list[str], cut: Callable[[str], list[str]]) -> NDArray[np.float32]:
    """Return BM25's scores (queries, documents): k1 0.9, b 0.4."""
    import bm25s

    retriever = bm25s.BM25(k1=0.9, b=0.4)
    retriever.index([cut(text) for text in documents], show_progress=False)
    known = set(retriever.vocab_dict)
    asked = [[word for word in cut(query) if word in known] for query in queries]
    nothing = np.zeros(len(documents), np.float32)
    return np.stack([retriever.get_scores(one) if one else nothing for one in asked])


def encoded(
    encoder: Encoder, cache: Path, name: str, texts: list[str], query: bool, threads: int, prefix: str = ""
) -> TokenVectors:
    """Return the vectors of texts, kept in a file that knows which texts they are of."""
    lengths = f"{encoder.query_length}-{encoder.document_length}"
    path = cache / f"{encoder.name}-{encoder.fingerprint[:8]}-{lengths}" / f"{name}.npz"
    mark = digest([prefix, *texts])
    if path.exists():
        with np.load(path, allow_pickle=False) as file:
            if str(file["mark"]) == mark:
                return TokenVectors.trusted(**{field: file[field] for field in FIELDS})
    encode = encoder.encode_query if query else encoder.encode_document
    found = encode([prefix + text for text in texts], truncation="ignore", dtype=np.float16, threads=threads)
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays = {field: getattr(found, field) for field in FIELDS}
    with open(path.with_suffix(".part"), "wb") as file:
        np.savez(file, mark=np.array(mark), **arrays)
    path.with_suffix(".part").rename(path)
    return TokenVectors.trusted(**arrays)


def passages(encoder: Encoder, documents: list[Document]) -> tuple[list[str], NDArray[np.int64]]:
    """Return the passages of documents, and which document each is of."""
    place = {document.id: i for i, document in enumerate(documents)}
    split = list(split_passages(documents, encoder))
    return [one.text for one in split], np.array([place[parent_id(one.id)] for one in split])


def by_document(scores: NDArray[np.float32], owners: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return the best score of each document's passages."""
    starts = np.flatnonzero(np.r_[True, owners[1:] != owners[:-1]])
    return np.maximum.reduceat(scores, starts, axis=1)


def first(scores: NDArray[np.float32], right: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return for which queries the right document has the best score; of equals the first counts."""
    return np.asarray(scores.argmax(axis=1) == right)


def share(found: NDArray[np.bool_], other: NDArray[np.bool_] | None = None) -> str:
    """Return a percentage with its interval, or the difference of two in points."""
    values = found.astype(float) - (0 if other is None else other)
    draws = np.random.default_rng(0).integers(0, len(values), (2000, len(values)))
    low, high = np.quantile(values[draws].mean(axis=1), [0.025, 0.975])
    return f"{100 * values.mean():{'' if other is None else '+'}.1f} [{100 * low:.1f}, {100 * high:.1f}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="a folder of collections in BEIR's layout")
    parser.add_argument("--cache", type=Path, required=True, help="where encodings are kept")
    parser.add_argument("--models", nargs="+", default=["weft-multi", "weft-small"], help="names or light folders")
    parser.add_argument("--base", type=Path, help="light folder of the base without a projection")
    parser.add_argument("--queries", type=int, default=1190, help="queries of each language, taken evenly")
    parser.add_argument("--languages", nargs="+", help="all by default")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--write", action="store_true", help="write the table to RESULTS.md")
    options = parser.parse_args()
    encoders = {Encoder.load(model).name: (Encoder.load(model), ("", "")) for model in options.models}
    if options.base:
        encoders["base"] = (Encoder.load(options.base, document_length=256), ("query: ", "passage: "))
    folder = options.data / "xquad"
    splits = sorted(path.stem for path in (folder / "qrels").glob("test-*.tsv"))
    systems = ["BM25, words", "BM25, n-grams", *(f"{name}, {a}" for name in encoders for a in ALIGNMENTS)]
    rows, differences = [], []
    for language in options.languages or [split.removeprefix("test-") for split in splits]:
        collection = Collection.read(folder, f"test-{language}")
        documents = [Document(d.id, d.text) for d in collection.documents if d.id.startswith(f"{language}-")]
        place = {document.id: i for i, document in enumerate(documents)}
        names = list(collection.queries)
        names = [names[i] for i in np.unique(np.linspace(0, len(names) - 1, options.queries).astype(int))]
        queries = [collection.queries[name] for name in names]
        right = np.array([place[next(iter(collection.qrels[name]))] for name in names])
        texts = [document.text for document in documents]
        found = {
            "BM25, words": first(bm25(texts, queries, words(language)), right),
            "BM25, n-grams": first(bm25(texts, queries, grams(language)), right),
        }
        for name, (encoder, prefixes) in encoders.items():
            parts, owners = passages(encoder, documents)
            q = encoded(
                encoder, options.cache, f"{language}-q{len(queries)}", queries, True, options.threads, prefixes[0]
            )
            d = encoded(encoder, options.cache, f"{language}-d", parts, False, options.threads, prefixes[1])
            for alignment in ALIGNMENTS:
                scores = score_all(Encoded(q, d, False), alignment, threads=options.threads)
                found[f"{name}, {alignment}"] = first(by_document(scores, owners), right)
        rows.append(f"| {language} | " + " | ".join(share(found[system]) for system in systems) + " |")
        better = max(systems[:2], key=lambda system: found[system].mean())
        shown = systems[2 : 2 + len(ALIGNMENTS)]
        differences.append(
            f"| {language} | {better} | " + " | ".join(share(found[s], found[better]) for s in shown) + " |"
        )
        print(rows[-1], differences[-1], sep="\n", flush=True)
    command = f"python benchmarks/multilingual.py --data FOLDER --cache FOLDER --queries {options.queries}"
    lines = [
        f"`{command}{' --base FOLDER' if options.base else ''} --write`",
        "",
        f"XQuAD, 240 paragraphs of each language, {options.queries:,} questions; top-1 in per cent, 95 % intervals.",
        "",
        "| language | " + " | ".join(systems) + " |",
        "| --- |" + " ---: |" * len(systems),
        *rows,
        "",
        "Less the better BM25 of the language, in points:",
        "",
        f"| language | better BM25 | {' | '.join(systems[2 : 2 + len(ALIGNMENTS)])} |",
        "| --- | --- |" + " ---: |" * len(ALIGNMENTS),
        *differences,
    ]
    if options.write:
        write_section("multilingual", "Transfer to other languages", lines)


if __name__ == "__main__":
    main()
