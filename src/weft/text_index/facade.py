"""`TextIndex`: an index with its encoder. Texts in, answers and their reasons out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self, Unpack

from weft.alignment import Alignment
from weft.encoders import Encoder
from weft.encoders.loading import model_reference
from weft.encoders.query_towers import FULL
from weft.errors import DataError, IndexStateError, InvalidParameterError, counted, invalid
from weft.explain.reading import explain_result
from weft.explain.snippet import Fragment, fragments, snippet
from weft.ingest import own_metadata, whole
from weft.ingest.languages import other_languages
from weft.search import Answer, Index, Searcher
from weft.search.encoder_of import check_encoder, load_encoder
from weft.search.options import SearchOptions, VectorOptions
from weft.storage.families import family
from weft.storage.filters import Filter
from weft.storage.shown import Shown, shown
from weft.text_index.asynchronous import Asynchronous
from weft.text_index.opening import is_taken, open_index
from weft.text_index.writing import OF_MODEL, Writing
from weft.types import Document, Ranking

if TYPE_CHECKING:
    from weft.explain import Explanation
    from weft.storage.check import Report


EVERYTHING = '@id != ""'
"""The filter that lets every document through."""


class Match(NamedTuple):
    """A document that was found."""

    id: str
    score: float
    text: str
    metadata: dict[str, Any]


class TextIndex(Writing, Asynchronous):
    """An index together with the encoder that it was made with. Make or open one with `TextIndex.open`.

    The encoder is loaded when it is first needed: what reads or removes documents works without the model.

    Parameters
    ----------
    index : Index
    encoder : Encoder, optional
        Refused if its vectors are not those of the index. By default the one that the index remembers.

    Examples
    --------
    >>> import tempfile
    >>> from weft import TextIndex
    >>> with TextIndex.open(tempfile.mkdtemp(), create=True) as notes:  # doctest: +SKIP
    ...     _ = notes.add({"mars": "Mars looks red because of the rust in its dust.", "sea": "Why the sea is salt."})
    ...     [match.id for match in notes.search("the red planet", k=1)]
    ['mars']
    """

    def __init__(self, index: Index, encoder: Encoder | None = None) -> None:
        self._index: Index | None = index
        if encoder is not None:
            check_encoder(index, encoder)
            self.encoder = encoder

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        create: bool = False,
        model: str | Path | None = None,
        query: str = FULL,
        bits: int = 8,
        beta_d: float | None = None,
        keep: float | None = None,
        find_by: float | None = None,
        lock: bool = False,
        on_damage: str = "raise",
    ) -> Self:
        """Open an index.

        Parameters
        ----------
        path : path
            The index's folder.
        create : bool
            Make it if it is not there.
        model : str or Path, optional
            A model's folder or name, loaded at once. By default the one that the index remembers, loaded when it is
            needed; of a new index, the one that comes with weft.
        query : {"full", "fast", "static"}
            What encodes queries: the model itself, or its query tower, as for `Encoder.load`. The index is the same.
        bits, beta_d, keep, find_by
            Of a new index, as for `Index.create`.
        lock : bool
            Take the writer's lock now and keep it, so that no work is lost to another writer.
        on_damage : {"raise", "skip"}
            As for `Index.open`: with "skip", searches go on without damaged segments, and their rankings say how many
            documents could not be looked at (`answers(…)[0].ranking.missing`).
        """
        path, wanted = Path(path), None if model is None else str(model)
        new = create and not is_taken(path)
        made = (
            cls._create(path, wanted, query, bits, beta_d, keep, find_by) if new else cls(open_index(path, on_damage))
        )
        try:
            if lock:
                made.lock()
            if (wanted or query != FULL) and "encoder" not in vars(made):
                made.encoder = load_encoder(made.index, wanted, query)
        except BaseException:
            made.close()
            raise
        return made

    @classmethod
    def _create(
        cls,
        path: Path,
        model: str | None,
        query: str,
        bits: int,
        beta_d: float | None,
        keep: float | None,
        find_by: float | None,
    ) -> Self:
        encoder = Encoder.load(model, query=query)
        for name, value in (("beta_d", beta_d), ("find_by", find_by)):
            if value is not None and not encoder.has_salience:
                raise InvalidParameterError(
                    f"{name} must be left out: {encoder.name} has no saliences to choose tokens by"
                )
        index = Index.create(
            path,
            encoder.dim,
            encoder_fingerprint=encoder.fingerprint,
            bits=bits,
            beta_d=beta_d,
            keep=keep,
            find_by=find_by,
            salience_weighs=encoder.salience_weighs,
            model=model_reference(model),
        )
        if encoder.alignment:  # what the model was trained for
            with index.committing() as catalogue:
                for key in ("alignment", OF_MODEL):
                    catalogue.set(key, encoder.alignment)
        return cls(index, encoder)

    @cached_property
    def encoder(self) -> Encoder:
        """The encoder of the index."""
        return load_encoder(self.index)

    @cached_property
    def searcher(self) -> Searcher:
        """What searches the index by text."""
        return Searcher(self.index, self.encoder)

    @property
    def index(self) -> Index:
        """The index below; `IndexStateError` once this is closed."""
        if self._index is None:
            raise IndexStateError("the index is closed: open it again with TextIndex.open")
        return self._index

    def close(self) -> None:
        """Close the index; a second call does nothing."""
        if self._index is not None:
            self._index.close()
            self._index = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        return len(self.index)

    def __iter__(self) -> Iterator[str]:
        """Yield the ids of all documents and passages, in the order of the ids."""
        return iter(sorted(self.index.matching(EVERYTHING)))

    def __contains__(self, id: object) -> bool:  # noqa: A002
        return isinstance(id, str) and (id in self.index or bool(self.family(id)))

    def __repr__(self) -> str:
        if self._index is None:
            return "TextIndex(closed)"
        model = self.encoder.name if "encoder" in vars(self) else self.index.model or "the bundled model"
        return f"TextIndex({str(self.index.folder)!r}, {counted(len(self), 'passage')}, {model})"

    # -- reading -------------------------------------------------------------------------------------

    def view(self) -> AbstractContextManager[object]:
        """Hold the newest committed state: what is read inside belongs together."""
        return self.index.view()

    def info(self) -> dict[str, Any]:
        """Return sizes and settings: see `Index.info`; and passages in languages that the model does not read."""
        return {**self.index.info(), "other_languages": other_languages(self.index)}

    def check(self) -> Report:
        """Verify every checksum and every cross-reference."""
        return self.index.check()

    def get(self, id: str) -> Document | None:  # noqa: A002
        """Return the document or passage with this id, or None; a document that was split is put together again."""
        found = self.index.get(id)
        return whole(id, self.family(id)) if found is None else found

    def family(self, id: str) -> list[Document]:  # noqa: A002
        """Return the document with this id, if it is there whole, and its passages, in order."""
        return family(self.index, id)

    def matching(self, filter: Filter | str) -> list[str]:  # noqa: A002
        """Return the ids of all documents that a filter lets through."""
        return self.index.matching(filter)

    def value_counts(
        self,
        filter: Filter | str | None = None,  # noqa: A002
        most: int = 20,
    ) -> dict[str, list[tuple[Any, int]]]:
        """Return the commonest values of each metadata field: see `Index.value_counts`."""
        return self.index.value_counts(filter, most)

    def search(self, query: str, k: int = 10, **options: Unpack[SearchOptions]) -> list[Match]:
        """Find the k most relevant documents; the options are those of `search_many`."""
        if not isinstance(query, str):
            raise invalid("query", "search", "a text (search_many takes several)", query)
        (found,) = self.search_many([query], k, **options)
        return found

    def search_many(self, queries: Sequence[str], k: int = 10, **options: Unpack[SearchOptions]) -> list[list[Match]]:
        """Find the k most relevant documents for each query, all from one committed state.

        Parameters
        ----------
        queries : sequence of str
        k : int
            The maximum number of documents.
        **options
            ``alignment``, ``filter``, ``exact``, ``beta_q``, … of `Index.search`, and ``hybrid`` and ``weights`` of
            `Searcher.search`.
        """
        if isinstance(queries, str):
            raise invalid("queries", "search_many", "a sequence of texts (search takes one)", queries)
        options.setdefault("hits", False)
        options.setdefault("documents", True)
        with self.view():
            found = self.answers(queries, k, **options) if len(queries) else []
            return [list(self._matches(answer)) for answer in found]

    def _matches(self, answer: Answer) -> Iterator[Match]:
        for result, (document, _) in zip(answer.ranking, self.shown(answer.ranking, spans=False), strict=True):
            yield Match(result.id, result.score, document.text, own_metadata(document))

    def shown(self, ranking: Ranking, *, spans: bool = True) -> list[Shown]:
        """Return the documents of results, and where their tokens stand: see `weft.storage.shown.shown`."""
        return shown(self.index, ranking.ids, spans=spans, documents=ranking.documents, places=ranking.places)

    def answers(self, queries: Sequence[str], k: int = 10, **options: Unpack[SearchOptions]) -> list[Answer]:
        """Search as `search_many` does, and return what the scores are made of, for `snippet` and `explain_answer`."""
        self._notice_queries(queries, self.encoder)
        return self.searcher.search(queries, k, **options)

    def snippet(
        self, answer: Answer, document: Document, *, width: int | None = 240, **options: Unpack[VectorOptions]
    ) -> list[Fragment]:
        """Return the part of a result's text that its score came from; the beginning, if BM25 alone found it.

        About `width` characters on one line; with None, the whole text unchanged.
        """
        why = self.explain_answer(answer, document.id, **options) if answer.behind(document.id) else None
        if why is None:
            return [Fragment(document.text[:width], 0.0)]
        return fragments(why) if width is None else snippet(why, width)

    def explain(
        self,
        query: str,
        k: int = 1,
        *,
        id: str | None = None,  # noqa: A002
        alignment: Alignment | str | None = None,
        hybrid: bool | str | None = None,
        weights: tuple[float, float] | None = None,
        **options: Unpack[VectorOptions],
    ) -> list[Explanation]:
        """Explain the k best documents for a query, or the passages of the document `id`, best first.

        Parameters
        ----------
        query : str
        k : int
            The maximum number of documents.
        id : str, optional
            A document, found or not; of one that was split, its k best passages.
        hybrid, weights
            As for `search`. The pairs are those of the score by token vectors; `Explanation.parts` says what a blended
            score is made of.
        **options
            As for `search`.

        Returns
        -------
        list of Explanation
            Each prints as text; `weft.explain.to_html` makes a page of them.
        """
        with self.view():
            wanted = None
            if id is not None:
                wanted = [id] if id in self.index else [passage.id for passage in self.family(id)]
                if not wanted:
                    raise DataError(f"no document {id!r} in {self.index.folder}")
            (answer,) = self.answers([query], k, alignment=alignment, hybrid=hybrid, weights=weights, **options)
            ranks = {name: rank for rank, name in enumerate(answer.ranking.ids, 1)}
            made = (
                self.explain_answer(answer, name, ranks.get(name), **options)
                for name in (answer.ranking.ids if wanted is None else wanted)
            )
            found = [_with_parts(explanation, answer) for explanation in made if explanation is not None]
        if wanted is None:
            return found
        if not found:
            xtr = str(answer.alignment).startswith("xtr")
            why = "no query token retrieved one of its tokens" if xtr else "it has no tokens"
            raise DataError(f"{id!r} has no score under {answer.alignment}: {why}")
        return sorted(found, key=lambda explanation: -explanation.score)[:k]

    def explain_answer(
        self,
        answer: Answer,
        id: str,  # noqa: A002
        rank: int | None = None,
        **options: Unpack[VectorOptions],
    ) -> Explanation | None:
        """Explain one document's score for an answer's query; None if it has no score.

        Call it inside the `view` that searched, with the options of that search except the alignment.
        """
        return explain_result(self.searcher, self.encoder, answer, id, rank, **options)


def _with_parts(explanation: Explanation, answer: Answer) -> Explanation:
    parts = answer.parts.get(explanation.id)
    return explanation if parts is None else replace(explanation, parts=tuple(parts._asdict().items()))
