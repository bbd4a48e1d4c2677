"""Training examples: token ids of an input and of the target the decoder is to write for it.

Everything is drawn on demand, from the seed and the step alone, so an interrupted run goes on with the same examples.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from weft.errors import DataError
from weft.generative.corpus import Corpus
from weft.generative.recipes import ExampleSettings
from weft.generative.spans import begin_probabilities, span_end, word_tokens

EOS = 1
TITLES = 0.25
"""How often a document's title is the input, among SEAL's examples without a query."""


class Example(NamedTuple):
    """Token ids of an input, with its end, and of the target."""

    input: list[int]
    target: list[int]


class Examples(Protocol):
    """Makes examples of a query with its document, or of a document alone."""

    pairs: int
    """Examples with a query in one epoch."""
    documents: int

    def of_pair(self, number: int, random: np.random.Generator) -> Example:
        """Make the example of a number below `pairs`."""
        ...

    def of_document(self, number: int, random: np.random.Generator) -> Example:
        """Make an example of a document."""
        ...


class Texts:
    """A corpus as token ids; queries are cut to `query_length` and end with `EOS`."""

    def __init__(self, corpus: Corpus, tokenizer: Any, settings: ExampleSettings, query_length: int) -> None:
        self.corpus, self.settings = corpus, settings
        self.documents = len(corpus.documents)
        self.texts = [document.full_text for document in corpus.documents]
        found = [word_tokens(tokenizer, text) for text in self.texts]
        self.tokens = [ids for ids, _ in found]
        self.words = [first for _, first in found]
        for document, ids in zip(corpus.documents, self.tokens, strict=True):
            if not ids:
                raise DataError(f"the document {document.id!r} has no tokens; nothing could identify it")
        self.queries = _ended(tokenizer, [pair.query for pair in corpus.pairs], query_length)
        self.titles = _ended(tokenizer, [document.title for document in corpus.documents], query_length)

    def part(self, document: int, length: int, random: np.random.Generator) -> list[int]:
        """Return some tokens of a document from a random word on, the full length where the document allows."""
        tokens, words = self.tokens[document], self.words[document]
        allowed = words[words <= max(0, len(tokens) - length)]
        begin = int(random.choice(allowed if len(allowed) else words[:1]))
        return tokens[begin : begin + length]


class SpanExamples(Texts):
    """SEAL: query → span of its passage, where it answers; part of a passage (or its title) → another span of it."""

    def __init__(self, corpus: Corpus, tokenizer: Any, settings: ExampleSettings, query_length: int = 64) -> None:
        super().__init__(corpus, tokenizer, settings, query_length)
        self.pairs = len(corpus.pairs) * settings.spans_a_pair
        self._likely: dict[int, np.ndarray[Any, np.dtype[np.float64]]] = {}

    def of_pair(self, number: int, random: np.random.Generator) -> Example:
        number %= len(self.corpus.pairs)
        document = self.corpus.pairs[number].document
        if number not in self._likely:
            query = self.corpus.pairs[number].query
            self._likely[number] = begin_probabilities(query, self.texts[document], self.settings.temperature)
        likely = self._likely[number]
        word, words = int(random.choice(len(likely), p=likely)), self.words[document]
        end = span_end(words, word, self.settings.span, self.settings.span_words)
        return Example(self.queries[number], self.tokens[document][int(words[word]) : end])

    def of_document(self, number: int, random: np.random.Generator) -> Example:
        target = self.part(number, self.settings.span, random)
        if len(self.titles[number]) > 1 and random.random() < TITLES:
            return Example(self.titles[number], target)
        return Example([*self.part(number, self.settings.document_length, random), EOS], target)


class IdentifierExamples(Texts):
    """DSI and GENRE: query → its document's identifier; part of a document → its identifier."""

    def __init__(
        self,
        corpus: Corpus,
        tokenizer: Any,
        settings: ExampleSettings,
        identifiers: Sequence[Sequence[int]],
        query_length: int = 64,
    ) -> None:
        super().__init__(corpus, tokenizer, settings, query_length)
        self.pairs = len(corpus.pairs)
        self.identifiers = identifiers

    def of_pair(self, number: int, random: np.random.Generator) -> Example:  # noqa: ARG002
        return Example(self.queries[number], self._target(self.corpus.pairs[number].document))

    def of_document(self, number: int, random: np.random.Generator) -> Example:
        length = self.settings.document_length
        # DSI found the beginning of a document to be the best single input; random parts make up for short ones.
        chosen = self.tokens[number][:length] if random.random() < 0.5 else self.part(number, length, random)
        return Example([*chosen, EOS], self._target(number))

    def _target(self, document: int) -> list[int]:
        return [*self.identifiers[document], EOS]


def _ended(tokenizer: Any, texts: list[str], length: int) -> list[list[int]]:
    found = tokenizer(texts, add_special_tokens=False)["input_ids"] if texts else []
    return [[*ids[: length - 1], EOS] for ids in found]


class Batches:
    """Cuts an endless shuffled stream of examples into batches, each a function of the seed and its number.

    Parameters
    ----------
    examples : Examples
    batch_size : int
    documents : float
        Share of the rows that are of a document alone.
    seed : int
    """

    def __init__(self, examples: Examples, batch_size: int, documents: float, seed: int) -> None:
        if examples.pairs == 0 and documents == 0:
            raise DataError("no queries to learn from: name splits in [[data]], or set examples.documents above 0")
        self.examples, self.seed = examples, seed
        self.of_documents = batch_size if examples.pairs == 0 else round(batch_size * documents)
        self.of_pairs = batch_size - self.of_documents
        self._orders: dict[int, tuple[int, np.ndarray[Any, np.dtype[np.int64]]]] = {}

    def steps(self, epochs: float) -> int:
        """Return how many batches make that many epochs."""
        examples, rows = (
            (self.examples.pairs, self.of_pairs) if self.of_pairs else (self.examples.documents, self.of_documents)
        )
        return max(1, round(epochs * examples / rows))

    def __getitem__(self, number: int) -> list[Example]:
        """Return batch `number`, from 0 on."""
        random = np.random.default_rng([self.seed, 1, number])
        pairs = [self._at(0, number * self.of_pairs + row) for row in range(self.of_pairs)]
        documents = [self._at(1, number * self.of_documents + row) for row in range(self.of_documents)]
        return [self.examples.of_pair(i, random) for i in pairs] + [
            self.examples.of_document(i, random) for i in documents
        ]

    def _at(self, stream: int, position: int) -> int:
        size = self.examples.documents if stream else self.examples.pairs
        epoch, place = divmod(position, size)
        if self._orders.get(stream, (-1,))[0] != epoch:
            order = np.random.default_rng([self.seed, 2, stream, epoch]).permutation(size)
            self._orders[stream] = (epoch, order)
        return int(self._orders[stream][1][place])
