"""`Retriever`: questions in, rankings out, by decoding identifiers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from weft.errors import CheckpointError, DataError, invalid
from weft.generative.answers import DecodedRanking, Said, digits_of, said_by_ngrams
from weft.generative.beam import Decoded, beam_search
from weft.generative.checkpoints import chosen_device
from weft.generative.model import EOS, GenerativeModel
from weft.generative.products import check_bytes
from weft.generative.seal import SCORINGS, SealSettings, rank_by_ngrams
from weft.generative.store import GenerativeIndex
from weft.generative.trie import ClusterTrie, Trie
from weft.types import Document, Ranking


class Retriever:
    """A model with the index of a corpus.

    Parameters
    ----------
    index : GenerativeIndex
    model : GenerativeModel
        The one the index was made with, or another of the same vocabulary.
    """

    def __init__(self, index: GenerativeIndex, model: GenerativeModel) -> None:
        index.check_model(model)
        self.index, self.model = index, model.eval()
        self._way: _NGrams | _Identifiers = (
            _NGrams(index, model) if index.method == "seal" else _Identifiers(index, model)
        )

    @classmethod
    def open(
        cls, folder: str | Path, model: str | Path | None = None, *, device: str | None = None, precision: str = "fp32"
    ) -> Retriever:
        """Open an index with the model it remembers, or another.

        Parameters
        ----------
        folder : path
        model : path, optional
        device : str, optional
            ``"cpu"``, ``"cuda"``, …; by default an accelerator, if there is one.
        precision : {"fp32", "bf16", "int8"}
            Of the model's weights and products; ``"int8"`` is the decoder's alone, on a CPU.
        """
        if precision not in ("fp32", "bf16", "int8"):
            raise invalid("precision", "Retriever.open", "'fp32', 'bf16' or 'int8'", precision)
        on = chosen_device(device)
        if precision == "int8":
            check_bytes(on)
        index = GenerativeIndex.open(folder)
        try:
            loaded = GenerativeModel.load(model or index.info["model"])
            dtype = torch.bfloat16 if precision == "bf16" else torch.float32
            loaded.decodes_in_bytes = precision == "int8"
            return cls(index, loaded.to(device=on, dtype=dtype))
        except CheckpointError as error:
            index.close()
            if model is not None:
                raise
            raise CheckpointError(f"the model of the index at {folder}: {error}; say where it is (--model)") from None
        except BaseException:
            index.close()
            raise

    def search(
        self,
        queries: Sequence[str],
        k: int = 10,
        *,
        beams: int = 15,
        batch_size: int = 16,
        scoring: str | None = None,
    ) -> list[DecodedRanking]:
        """Return the k best documents for each query, with what was decoded (`DecodedRanking.said`).

        Parameters
        ----------
        queries : texts
        k : int
        beams : int
            Hypotheses kept while decoding. Identifiers that name one document each need at least k.
        batch_size : int
            Queries decoded at a time.
        scoring : {"log-odds", "lm"}, optional
            Of SEAL alone: how n-grams weigh, against their frequency in the corpus (the default) or by the model alone.
        """
        if isinstance(k, bool) or not isinstance(k, int) or k < 1:
            raise invalid("k", "Retriever.search", "an integer >= 1", k)
        for query in queries:
            if not query.strip():
                raise DataError("a query is empty")
        if scoring is not None and self.index.method != "seal":
            raise invalid("scoring", "Retriever.search", f"left out: {self.index.method} ranks by log p", scoring)
        return self._way.search(self.query_ids(queries), k, beams, batch_size, scoring or SCORINGS[0])

    def query_ids(self, queries: Sequence[str]) -> list[list[int]]:
        """Return the token ids that the encoder reads of each query."""
        return self.model.token_ids(queries, int(self.model.settings.get("query_length", 64)))

    def identifier(self, id: str) -> list[int]:  # noqa: A002
        """Return a document's identifier: tokens of its title, or its digits. SEAL has none."""
        if not isinstance(self._way, _Identifiers):
            raise DataError("the documents of SEAL have no identifiers of their own: any n-gram may name them")
        try:
            return self._way.identifiers[self._way.ids.index(id)]
        except ValueError:
            raise DataError(f"the index has no document {id!r}") from None

    def digits(self, identifier: Sequence[int]) -> list[int]:
        """Return the digits of a DSI identifier: a path of clusters, and the document's place in the last."""
        assert isinstance(self._way, _Identifiers)
        return digits_of(identifier, self.model.vocabulary, self._way.positions)

    def get(self, id: str) -> Document | None:  # noqa: A002
        """Return a document."""
        return self.index.get(id)

    def passage(self, ranking: Ranking, rank: int, width: int = 240) -> list[tuple[str, float]]:
        """Return the part of a result's text to show: pieces of it, each with its share (0 to 1) of the score.

        For SEAL these are the n-grams that were found, around the one that adds most; otherwise the text's beginning.
        """
        document = self.get(ranking.ids[rank])
        assert document is not None
        if ranking.hits is None:
            return [(document.text[:width], 0.0)]
        spans = self.model.tokenizer(document.text, add_special_tokens=False, return_offsets_mapping=True)
        adds = np.zeros(len(document.text))
        for token, share in zip(ranking.hits[rank].document_token, ranking.contributions(rank), strict=True):
            begin, end = spans["offset_mapping"][token]
            adds[begin:end] += share
        return _pieces(document.text, adds, width)

    def close(self) -> None:
        """Close the index."""
        self._way.close()
        self.index.close()

    def __enter__(self) -> Retriever:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _pieces(text: str, adds: NDArray[np.float64], width: int) -> list[tuple[str, float]]:
    """Cut the window of `width` characters that adds most into runs of equal strength."""
    total = np.concatenate([[0.0], np.cumsum(adds)])
    width = min(width, len(text))
    begin = int(np.argmax(total[width:] - total[: len(total) - width]))
    # The first such window has its words at its end; let it begin half-way to the first of them.
    inside = np.flatnonzero(adds[begin : begin + width])
    begin = min(begin + (int(inside[0]) // 2 if len(inside) else 0), len(text) - width)
    strength = adds / adds.max(initial=1e-12)
    cuts = [begin, *(begin + 1 + np.flatnonzero(np.diff(strength[begin : begin + width]))).tolist(), begin + width]
    pieces = [(text[a:b], float(strength[a])) for a, b in pairwise(cuts)]
    before, after = begin > 0, begin + width < len(text)
    return [("… ", 0.0)] * before + pieces + [(" …", 0.0)] * after


class _NGrams:
    """SEAL: any n-gram of the corpus, and its documents by their weights."""

    def __init__(self, index: GenerativeIndex, model: GenerativeModel) -> None:
        self.model = model
        self.corpus = index.corpus(model)
        self.constraint = self.corpus.constraint()
        self.length = int(model.settings.get("span", 10))

    def search(self, ids: list[list[int]], k: int, beams: int, batch_size: int, scoring: str) -> list[DecodedRanking]:
        settings = SealSettings(scoring=scoring)
        found = beam_search(self.model, ids, self.constraint, beams=beams, length=self.length, batch_size=batch_size)
        answers = [
            rank_by_ngrams(self.corpus, decoded.keys, decoded.unigrams, k=k, settings=settings) for decoded in found
        ]
        return [said_by_ngrams(answer.ranking, answer.keys, self.model.tokenizer) for answer in answers]

    def close(self) -> None:
        self.corpus.close()


class _Identifiers:
    """DSI, GENRE, NP-decoding: a trie of identifiers, each of one document or of few."""

    def __init__(self, index: GenerativeIndex, model: GenerativeModel) -> None:
        self.model, self.ids = model, index.ids()
        self.dsi = index.method == "dsi"
        identifiers = self.identifiers = index.identifiers()
        learnt = model.settings.get("identifiers") or {}
        self.positions = max(map(len, learnt.values()), default=1)
        self.documents: dict[tuple[int, ...], list[int]] = {}
        for number, identifier in enumerate(identifiers):
            self.documents.setdefault(tuple(identifier), []).append(number)
        trie = Trie(identifiers)
        self.depth = trie.depth
        self.token_of = None if model.token_of is None else model.token_of.cpu().numpy()
        self.constraint: Any = trie if self.token_of is None else ClusterTrie(trie, self.token_of)

    def search(self, ids: list[list[int]], k: int, beams: int, batch_size: int, scoring: str) -> list[DecodedRanking]:  # noqa: ARG002
        found = beam_search(
            self.model,
            ids,
            self.constraint,
            beams=max(beams, k),
            length=self.depth,
            end=EOS,
            says=self.token_of,
            batch_size=batch_size,
        )
        return [self._ranking(decoded, k) for decoded in found]

    def close(self) -> None:
        """Nothing is open."""

    def _ranking(self, decoded: Decoded, k: int) -> DecodedRanking:
        names: dict[int, Said] = {}
        for key, log_p in decoded.keys.items():  # best first, no two of them for one identifier
            tokens = key if self.token_of is None else tuple(self.token_of[list(key)].tolist())
            for number in self.documents[tokens]:
                names.setdefault(number, Said(self._text(tokens), log_p, key))
        best = list(names.items())[:k]
        return DecodedRanking(
            [self.ids[number] for number, _ in best],
            np.array([said.score for _, said in best], np.float32),
            said=[[said] for _, said in best],
        )

    def _text(self, identifier: Sequence[int]) -> str:
        if self.dsi:
            return "-".join(map(str, digits_of(identifier, self.model.vocabulary, self.positions)))
        text: str = self.model.tokenizer.decode(list(identifier))
        return text
