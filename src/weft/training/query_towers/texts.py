"""Short texts like queries, from collections: their training queries, titles, sentences, spans, keywords, questions.

A query tower learns to give a model's own vectors, so it needs texts and no judgements.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from weft.errors import DataError, invalid
from weft.sources.beir import objects, read_corpus, read_qrels, read_queries

KINDS = ("queries", "titles", "sentences", "spans", "keywords", "questions", "swapped", "passages")
"""The kinds of texts made from a collection; all but the queries come from its documents."""

SHARES = {
    "titles": 0.06, "sentences": 0.24, "spans": 0.2, "keywords": 0.14, "questions": 0.16, "swapped": 0.15,
    "passages": 0.05,
}  # fmt: skip
"""The shares of the kinds, if a collection has enough of each."""

LONGEST = 200
"""The maximum number of characters of a text that is no passage: most queries are short, and long texts cost most."""

SWAPPED = 0.3
"""The share of a sentence's words that words of the vocabulary take the place of: the model says what they mean there,
so a tower learns words in context that its collections do not have."""

_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z0-9\"(])")
_WORD = re.compile(r"[^\s,;:()\[\]\"]+")
_QUESTIONS = (
    "what is {}", "what are {}", "how does {} work", "how to {}", "why {}", "when was {}", "who is {}", "where is {}",
    "what causes {}", "is {} safe", "does {} help", "what is the difference between {} and {}", "{} vs {}",
    "definition of {}", "{} meaning", "symptoms of {}", "how is {} diagnosed", "how many {}", "effects of {} on {}",
    "what did {} do", "which {}", "{} example", "how do I {} in python", "can {} cause {}", "should we {}",
    "what is the role of {} in {}", "tell me about {}", "best {} for {}",
)  # fmt: skip
_FUNCTION_WORDS = """
    a an and are as at be been but by can could did do does for from had has have he her his how if in into is it its
    may might more most no nor not of on or our over she should so some such than that the their them then there these
    they this those to under up us was we were what when where which while who whom whose why will with would you your
"""
_COMMON = frozenset(_FUNCTION_WORDS.split())


@dataclass(frozen=True)
class TextSource:
    """One collection to make texts of, as a recipe's ``[[data]]`` table names it.

    `path` is a BEIR folder, or a file of JSON lines with ``query`` and ``positive``. `documents` is a regular
    expression that the ids of documents must match (and of the documents that training queries are judged for);
    `split` names the judgements whose queries may be used, "" for none. At most `queries` queries are taken, and
    `limit` texts are made from the documents.
    """

    path: str
    limit: int = 50_000
    queries: int = 15_000
    documents: str = ""
    split: str = "train"

    @property
    def label(self) -> str:
        """A short name."""
        return Path(self.path).name

    def __post_init__(self) -> None:
        for key in ("limit", "queries"):
            if getattr(self, key) < 0:
                raise invalid(key, "data", "at least 0", getattr(self, key))
        try:
            re.compile(self.documents)
        except re.error as error:
            raise invalid("documents", "data", f"a regular expression ({error})", self.documents) from None


def make_texts(sources: Sequence[TextSource], vocabulary: Iterable[str] = (), seed: int = 17) -> list[str]:
    """Return the texts of all sources, each once, shuffled, and the words of a vocabulary each by itself."""
    found: dict[str, None] = {}
    words = sorted(word for word in vocabulary if len(word) > 2 and word.isalpha() and word not in _COMMON)
    for source in sources:
        found.update(dict.fromkeys(texts_of(source, seed, words)))
    found.update(dict.fromkeys(words))
    texts = list(found)
    random.Random(seed).shuffle(texts)
    return texts


def texts_of(source: TextSource, seed: int = 17, words: Sequence[str] = ()) -> list[str]:
    """Return the texts of one source: its training queries and `limit` texts made of its documents.

    Without `words` to swap for others, there are no texts of that kind.
    """
    queries, documents = _read(source)
    if not documents and not queries:
        raise DataError(f"no texts in {source.path!r}")
    chance = random.Random(seed)
    titles = [title for title, _ in documents if title]
    counts = Counter(word.lower() for _, text in documents for word in set(_WORD.findall(text)))
    makers = {
        "sentences": lambda text: _sentence(text, chance),
        "spans": lambda text: _span(text, chance),
        "keywords": lambda text: _keywords(text, counts, chance),
        "questions": lambda text: _question(text, chance),
        "swapped": lambda text: _swapped(_sentence(text, chance), words, chance) if words else "",
        "passages": lambda text: _passage(text, chance),
    }
    made = chance.sample(queries, min(len(queries), source.queries))
    made += chance.sample(titles, min(len(titles), round(SHARES["titles"] * source.limit)))
    for kind, maker in makers.items():
        for _ in range(round(SHARES[kind] * source.limit) if documents else 0):
            text = maker(chance.choice(documents)[1])
            if text and (len(text) <= LONGEST or kind == "passages"):
                made.append(text)
    return made


def _read(source: TextSource) -> tuple[list[str], list[tuple[str, str]]]:
    """Return training queries, and documents as (title, text)."""
    folder = Path(source.path)
    if not folder.exists():
        raise DataError(f"no such file or folder: {source.path!r}")
    if not folder.is_dir():
        rows = list(objects(folder))
        return [str(row["query"]) for row in rows], [("", str(row["positive"])) for row in rows]
    wanted = re.compile(source.documents)
    documents = [(d.title, d.text) for d in read_corpus(folder) if wanted.search(d.id)]
    queries: list[str] = []
    if source.split:
        judged = {query for query, document, _ in read_qrels(folder, source.split) if wanted.search(document)}
        queries = [text for name, text in read_queries(folder) if name in judged]
    return queries, documents


def _sentence(text: str, chance: random.Random) -> str:
    sentence = chance.choice(_SENTENCE.split(text)).split()
    return " ".join(sentence[:28]) if len(sentence) > 2 else ""


def _span(text: str, chance: random.Random, least: int = 2, most: int = 10) -> str:
    """Return a run of words that, like a noun phrase, neither begins nor ends with a common word."""
    words = text.split()
    if len(words) < least:
        return ""
    start = chance.randrange(len(words))
    span = [word.strip(".,;:()[]\"'") for word in words[start : start + chance.randint(least, most)]]
    while span and span[0].lower() in _COMMON:
        span.pop(0)
    while span and span[-1].lower() in _COMMON:
        span.pop()
    found = " ".join(span)
    return found.lower() if chance.random() < 0.5 else found


def _keywords(text: str, counts: Counter[str], chance: random.Random) -> str:
    """Return some of the document's rarer words, as people type them."""
    words = [word for word in dict.fromkeys(_WORD.findall(text.lower().replace(".", " "))) if word not in _COMMON]
    if len(words) < 2:
        return ""
    pool = sorted(chance.sample(words, min(len(words), 24)), key=lambda word: counts[word])
    return " ".join(chance.sample(pool[:12], min(len(pool), 12, chance.randint(1, 6))))


def _swapped(sentence: str, words: Sequence[str], chance: random.Random) -> str:
    """Put words of the vocabulary in the place of some that are not common."""
    return " ".join(
        chance.choice(words) if word.lower() not in _COMMON and chance.random() < SWAPPED else word
        for word in sentence.split()
    )


def _passage(text: str, chance: random.Random, least: int = 25, most: int = 100) -> str:
    words = text.split()
    start = chance.randrange(max(len(words) - least, 1))
    return " ".join(words[start : start + chance.randint(least, most)])


def _question(text: str, chance: random.Random) -> str:
    template = chance.choice(_QUESTIONS)
    spans: Iterator[str] = (_span(text, chance, 1, 4) for _ in range(20))
    parts = [next((span for span in spans if span), "") for _ in range(template.count("{}"))]
    if not all(parts):
        return ""
    asked = template.format(*parts)
    return asked + "?" if chance.random() < 0.5 else asked
