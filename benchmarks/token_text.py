"""The corpus index of generative retrieval: building, opening, counting, and a constrained step of beam search.

    python benchmarks/token_text.py --tokenizer tokenizer.json --data FOLDER … [--write]

FOLDERs are collections in BEIR's layout, of which about --tokens are taken. Beams are those of a search without a
model: a token's log-probability is its frequency's, plus a bonus if the passage that the query stands for has it, plus
noise, so that beams hold the mixture of frequent and rare n-grams that decoding meets. CPU time, one thread.
The bars are the figures of a prototype on 8.4 M tokens of English, 32k BPE, and the demands of the project.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "RAYON_NUM_THREADS"):
    os.environ[variable] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import numpy as np

from maxsim import machine
from results_file import write_section
from weft.generative.corpus_index import FMIndex, NGramIndex, TokenTextIndex
from weft.generative.seal import rank_by_ngrams
from weft.sources.beir import read_corpus

QUERIES, BEAMS, LENGTH = 20, 15, 10
BARS = {  # CPU; count and next token in µs
    TokenTextIndex: {"build": 2.0, "count": 5.5, "next": 33.0},
    FMIndex: {"build": 2.8, "count": 10.0, "next": 52.0},
}


def cpu(act: Callable[[], object], repeats: int = 1) -> float:
    """Median CPU seconds of a call."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        act()
        times.append(time.process_time() - start)
    return statistics.median(times)


def tokenise(folders: list[Path], tokenizer: Path, wanted: int) -> tuple[np.ndarray, np.ndarray, int]:
    """Return tokens and lengths of about so many tokens from all folders alike, and the vocabulary's size."""
    from tokenizers import Tokenizer

    model = Tokenizer.from_file(str(tokenizer))
    model.no_truncation()
    model.no_padding()
    texts = [document.full_text for folder in folders for document in read_corpus(folder)]
    share = wanted * 4.2 / sum(len(text) for text in texts)  # about 4.2 characters a token
    kept = np.flatnonzero(np.random.default_rng(0).random(len(texts)) < share).tolist()
    parts = []
    for start in range(0, len(kept), 1000):
        batch = [texts[i] for i in kept[start : start + 1000]]
        parts += [np.array(e.ids, np.int32) for e in model.encode_batch(batch, add_special_tokens=False) if e.ids]
    return np.concatenate(parts), np.array([len(part) for part in parts]), model.get_vocab_size()


def sampled(tokens: np.ndarray, lengths: np.ndarray, count: int) -> list[list[int]]:
    """n-grams of one to five tokens from anywhere in the corpus."""
    rng = np.random.default_rng(0)
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    made = []
    for document in rng.integers(0, len(lengths), count).tolist():
        size = int(min(rng.integers(1, 6), lengths[document]))
        at = int(starts[document] + rng.integers(0, lengths[document] - size + 1))
        made.append(tokens[at : at + size].tolist())
    return made


def decode(index: NGramIndex, seed: int) -> tuple[list[tuple[int, int, float]], dict[tuple[int, ...], float]]:
    """One search of 20 queries × 15 beams: (beams, tokens allowed, CPU seconds) a step; and the first query's keys."""
    rng = np.random.default_rng(seed)
    grams = index.constraint()
    _, tokens, counts = index.continuations(index.start(1))
    frequency = np.full(index.vocabulary, -30.0)
    frequency[tokens] = np.log(counts / counts.sum())
    passages = rng.integers(0, len(index), QUERIES)
    liked = np.zeros((QUERIES, index.vocabulary), np.float32)
    for query, passage in enumerate(passages.tolist()):
        text = index.read([passage])[1]
        liked[query, text[text >= 0]] = 4.0
    state, score, owner = grams.start(QUERIES), np.zeros(QUERIES), np.arange(QUERIES)
    prefixes: list[tuple[int, ...]] = [()] * QUERIES
    steps, keys = [], {}
    clock = time.process_time()
    offsets, allowed = grams.continuations(state)
    spent = time.process_time() - clock
    for _ in range(LENGTH):
        steps.append((len(owner), len(allowed), spent))
        beam = np.repeat(np.arange(len(owner)), np.diff(offsets))
        noise = rng.gumbel(size=len(allowed))
        gain = np.minimum(0.7 * frequency[allowed] + liked[owner[beam], allowed] + noise - 4.0, -0.01)
        total = score[beam] + gain
        chosen = np.concatenate([_best(total, owner[beam] == query) for query in range(QUERIES)])
        beams, picked, score = beam[chosen], allowed[chosen], total[chosen]
        prefixes = [(*prefixes[b], t) for b, t in zip(beams.tolist(), picked.tolist(), strict=True)]
        owner = owner[beams]
        keys |= {p: s for p, s, o in zip(prefixes, score.tolist(), owner.tolist(), strict=True) if o == 0}
        clock = time.process_time()
        state = grams.advance(state, beams, picked)
        offsets, allowed = grams.continuations(state)
        spent = time.process_time() - clock
    return steps, keys


def _best(total: np.ndarray, mine: np.ndarray) -> np.ndarray:
    where = np.flatnonzero(mine)
    return where[np.argsort(-total[where], kind="stable")[:BEAMS]]


def measure(form: type[NGramIndex], documents: list[np.ndarray], vocabulary: int, grams: list[list[int]], folder: Path):
    """Return figures of one form."""
    ids = [str(i) for i in range(len(documents))]
    clock = time.process_time()
    index = form.build(documents, ids, vocabulary=vocabulary, breaks=[0, 1, 2])
    built = time.process_time() - clock
    path = folder / form.kind
    index.save(path)
    clock = time.process_time()
    opened = form.open(path)
    opening = time.process_time() - clock
    clock = time.process_time()
    opened.count([5])
    first = time.process_time() - clock

    single = cpu(lambda: [opened.count(gram) for gram in grams], 5) / len(grams)
    batch = cpu(lambda: opened.find(grams), 5) / len(grams)
    states = [opened.find([gram]) for gram in grams]
    following = cpu(lambda: [opened.continuations(state) for state in states], 5) / len(grams)
    runs = [decode(opened, seed) for seed in range(5)]
    steps = np.array([run[0] for run in runs])  # (seeds, steps, 3)
    scoring = statistics.median(cpu(lambda keys=keys: rank_by_ngrams(opened, keys), 3) for _, keys in runs)
    return {
        "build": built,
        "bytes": path.stat().st_size,
        "open": opening * 1e3,
        "first": first * 1e3,
        "count": single * 1e6,
        "batch": batch * 1e6,
        "next": following * 1e6,
        "steps": np.median(steps, axis=0),
        "seal": scoring * 1e3,
    }


def report(tokens: np.ndarray, lengths: np.ndarray, vocabulary: int) -> list[str]:
    documents = np.split(tokens, np.cumsum(lengths)[:-1])
    grams = sampled(tokens, lengths, 2000)
    with tempfile.TemporaryDirectory() as folder:
        found = {form: measure(form, documents, vocabulary, grams, Path(folder)) for form in BARS}
    million = len(tokens) / 8.4e6
    lines = [
        f"{machine()}. {len(documents):,} documents, {len(tokens):,} tokens, vocabulary {vocabulary:,}; CPU time, one "
        f"thread, load average {os.getloadavg()[0]:.1f}. Command: `python benchmarks/token_text.py --write`. The bar "
        "of the build is scaled to the number of tokens.",
        "",
        "| what | suffix array | bar | FM-index | bar |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]

    def line(name: str, key: str, digits: int, bars: tuple[object, object]) -> None:
        figures = [f"{found[form][key]:.{digits}f}" for form in BARS]
        lines.append(f"| {name} | {figures[0]} | {bars[0]} | {figures[1]} | {bars[1]} |")

    for form in BARS:
        found[form]["size"] = found[form]["bytes"] / len(tokens)
        step = found[form]["steps"][1:, 2] * 1e3
        found[form]["mean"], found[form]["worst"] = step.mean(), step.max()
    bar = list(BARS.values())
    line("build, s", "build", 2, (f"{bar[0]['build'] * million:.1f}", f"{bar[1]['build'] * million:.1f}"))
    line("file, bytes a token", "size", 1, ("", 3))
    line("open, ms", "open", 1, (50, 50))
    line("first question (verifies the file), ms", "first", 0, ("", ""))
    line("count of an n-gram, one call, µs", "count", 1, (bar[0]["count"], bar[1]["count"]))
    line("count, many in one call, µs each", "batch", 2, ("", ""))
    line("next tokens with counts, one call, µs", "next", 1, (bar[0]["next"], bar[1]["next"]))
    line(f"step of {QUERIES * BEAMS} beams, mean of steps 2–{LENGTH}, ms", "mean", 2, (1, 1))
    line(f"the slowest of steps 2–{LENGTH}, ms", "worst", 2, ("", ""))
    line("SEAL's scoring of one query's keys, ms", "seal", 1, ("", ""))
    lines += ["", "Steps of the suffix array / the FM-index: beams, tokens allowed in all, ms:", ""]
    for i, (one, two) in enumerate(zip(found[TokenTextIndex]["steps"], found[FMIndex]["steps"], strict=True)):
        lines.append(
            f"- {i + 1}: {int(one[0])} beams, {int(one[1]):,} tokens, {one[2] * 1e3:.2f} / {two[2] * 1e3:.2f} ms"
        )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, nargs="+", default=[], help="collections in BEIR's layout")
    parser.add_argument("--tokenizer", type=Path, help="a tokenizer.json, T5's")
    parser.add_argument("--tokens", type=int, default=10_000_000)
    parser.add_argument("--cache", type=Path, help="an .npz that keeps the tokens for the next run")
    parser.add_argument("--write", action="store_true", help="put the table into RESULTS.md")
    arguments = parser.parse_args()
    if arguments.cache and arguments.cache.exists():
        with np.load(arguments.cache) as kept:
            tokens, lengths, vocabulary = kept["tokens"], kept["lengths"], int(kept["vocabulary"])
    elif arguments.data and arguments.tokenizer:
        tokens, lengths, vocabulary = tokenise(arguments.data, arguments.tokenizer, arguments.tokens)
        if arguments.cache:
            np.savez(arguments.cache, tokens=tokens, lengths=lengths, vocabulary=vocabulary)
    else:
        parser.error("--data and --tokenizer, or a --cache of an earlier run, are needed")
    lines = report(tokens, lengths, vocabulary)
    print("\n".join(lines))
    if arguments.write:
        write_section("token-text", "Corpus index of generative retrieval", lines)


if __name__ == "__main__":
    main()
