"""`TextIndex`: an index with its encoder. Texts in, answers and their reasons out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple, Self

from weft.encoders import Encoder
from weft.encoders.loading import model_reference
from weft.errors import CheckpointError, DataError, IndexFormatError, InvalidParameterError, NotAnIndexError, invalid
from weft.explain.reading import explain_result
from weft.explain.snippet import Fragment, snippet
from weft.ingest import Summary, as_known, own_metadata, text_source, update
from weft.search import Answer, Index, Searcher
from weft.sources.files import LARGEST, Source, read_sources
from weft.sources.find import STDIN, Found, Selection, find, name_of
from weft.sources.records import Fields
from weft.storage.families import family
from weft.storage.filters import Filter
from weft.storage.folder import CATALOGUE
from weft.storage.store import ALIGNMENT
from weft.types import Document

if TYPE_CHECKING:
    from weft.explain import Explanation
    from weft.storage.check import Report

_OF_MODEL = "model_alignment"
"""The setting that keeps what the model of an index was trained for, whatever the index searches by since."""


class Match(NamedTuple):
    """A document that was found."""

    id: str
    score: float
    text: str
    metadata: dict[str, Any]


class TextIndex:
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
        self.index = index
        if encoder is not None:
            _check_encoder(index, encoder)
            self.encoder = encoder

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        create: bool = False,
        model: str | Path | None = None,
        bits: int = 8,
        beta_d: float | None = None,
        lock: bool = False,
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
        bits, beta_d
            Of a new index, as for `Index.create`.
        lock : bool
            Take the writer's lock now and keep it, before work that would be in vain without it.
        """
        path, wanted = Path(path), None if model is None else str(model)
        made = cls._create(path, wanted, bits, beta_d) if create and not is_taken(path) else cls(_open_index(path))
        try:
            if lock:
                made.lock()
            if wanted and "encoder" not in vars(made):
                made.encoder = _load_encoder(made.index, wanted)
        except BaseException:
            made.close()
            raise
        return made

    @classmethod
    def _create(cls, path: Path, model: str | None, bits: int, beta_d: float | None) -> Self:
        encoder = Encoder.load(model)
        if beta_d is not None and not encoder.has_salience:
            raise InvalidParameterError(f"beta_d must be left out: {encoder.name} has no saliences to choose tokens by")
        index = Index.create(
            path,
            encoder.dim,
            encoder_fingerprint=encoder.fingerprint,
            bits=bits,
            beta_d=beta_d,
            salience_weighs=encoder.salience_weighs,
            model=model_reference(model),
        )
        if encoder.alignment:  # what the model was trained for
            with index.committing() as catalogue:
                for key in ("alignment", _OF_MODEL):
                    catalogue.set(key, encoder.alignment)
        return cls(index, encoder)

    @cached_property
    def encoder(self) -> Encoder:
        """The encoder of the index."""
        return _load_encoder(self.index)

    @cached_property
    def searcher(self) -> Searcher:
        """What searches the index by text."""
        return Searcher(self.index, self.encoder)

    def close(self) -> None:
        """Close the index."""
        self.index.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        return len(self.index)

    def __contains__(self, id: object) -> bool:  # noqa: A002
        return id in self.index

    def __repr__(self) -> str:
        model = self.encoder.name if "encoder" in vars(self) else self.index.model or "the bundled model"
        return f"TextIndex({str(self.index.folder)!r}, {len(self):,} passages, {model})"

    # -- writing -------------------------------------------------------------------------------------

    def add(
        self,
        documents: Mapping[str, str] | Iterable[Document | str],
        *,
        split: bool = True,
        threads: int | None = None,
        progress: bool | None = None,
    ) -> Summary:
        """Add documents; one whose id is there is replaced if it differs, and left alone if not.

        Parameters
        ----------
        documents : mapping of id to text, or iterable of Document or str
            A text alone gets an id that is made from it.
        split : bool
            Split documents that are longer than the model reads into passages ``id##0``, ``id##1``, …; otherwise they
            are cut off.
        threads, progress
            As for `Encoder.encode_document`.

        Returns
        -------
        Summary
            How many were added, updated and unchanged, and the ids of those that were written.
        """
        given: Iterable[Document | str] = documents
        if isinstance(documents, str):
            raise invalid("documents", "add", "a mapping or an iterable of texts", documents)
        if isinstance(documents, Mapping):
            given = (Document(name, text) for name, text in documents.items())
        return self.add_sources(map(text_source, given), split=split, threads=threads, progress=progress)

    def add_files(
        self,
        paths: str | Path | Iterable[str | Path],
        *,
        sync: bool = False,
        selection: Selection | None = None,
        fields: Fields | None = None,
        threads: int | None = None,
        progress: bool | None = None,
    ) -> Summary:
        """Add the files and folders that ``weft index`` takes, encoding only what changed since the last time.

        Parameters
        ----------
        paths : path, or iterable of paths
        sync : bool
            Remove documents whose files under the paths are gone.
        selection : Selection, optional
            Which files of folders to take.
        fields : Fields, optional
            Which fields of rows (JSON lines, CSV, TSV, Parquet) are ids, texts, titles and metadata.
        threads, progress
            As for `Encoder.encode_document`.

        Returns
        -------
        Summary
            With what was `skipped`, and why.
        """
        listed = [str(path) for path in ([paths] if isinstance(paths, (str, Path)) else paths)]
        summary = Summary()
        return self.add_found(
            find(listed, selection or Selection(), summary.skipped.append),
            fields=fields,
            roots=listed if sync else None,
            threads=threads,
            progress=progress,
            summary=summary,
        )

    def add_found(
        self,
        found: Iterable[Found],
        *,
        fields: Fields | None = None,
        roots: Iterable[str] | None = None,
        stdin: IO[bytes] | None = None,
        largest: int = LARGEST,
        split: bool | None = None,
        length: int | None = None,
        threads: int | None = None,
        progress: bool | None = None,
        summary: Summary | None = None,
    ) -> Summary:
        """Add files that `weft.sources.find.find` found; a file that is there under another name keeps that name.

        Parameters
        ----------
        found : iterable of Found
        fields
            As for `add_files`.
        roots : iterable of str, optional
            The paths that were given: remove documents whose files under them are gone.
        stdin : binary stream, optional
            What ``-`` stands for.
        largest : int
            Bytes of a single text at the most.
        split, length, threads, progress, summary
            As for `weft.ingest.update`.
        """
        files, made = as_known(self.index, found), summary or Summary()
        return self.add_sources(
            read_sources(files, fields or Fields(), made.skipped.append, stdin=stdin, largest=largest),
            roots=None if roots is None else [path if path == STDIN else name_of(Path(path)) for path in roots],
            split=split,
            length=length,
            threads=threads,
            progress=progress,
            total=sum(file.size for file in files) or None,
            summary=made,
        )

    def add_sources(self, sources: Iterable[Source], **options: Any) -> Summary:
        """Add documents from any sources, encoding only what changed; the options are those of `weft.ingest.update`."""
        return update(self.index, self.encoder, sources, **options)

    def delete(self, ids: str | Iterable[str]) -> int:
        """Remove documents with all their passages; unknown ids are ignored. Return how many passages were there."""
        wanted = [ids] if isinstance(ids, str) else list(ids)
        return self.index.delete({member.id for name in wanted for member in self.family(name)})

    def compact(self) -> None:
        """Merge all segments now and drop what was deleted: see `Index.compact`."""
        self.index.compact()

    def lock(self) -> None:
        """Take the writer's lock now and keep it until `close`."""
        self.index.lock()

    def remember_model(self, model: str | Path) -> None:
        """Keep where the model is now: a folder or a name, as `open` takes it."""
        self.index.remember_model(model_reference(str(model)))

    def remember_alignment(self, alignment: str | None) -> None:
        """Keep an alignment for searches that name none; None goes back to the model's own, or the sum of max."""
        if alignment is None:
            with self.index.reading_catalogue() as catalogue:
                alignment = catalogue.settings().get(_OF_MODEL, ALIGNMENT)
        self.index.remember_alignment(alignment)

    # -- reading -------------------------------------------------------------------------------------

    def view(self) -> AbstractContextManager[object]:
        """Hold the newest committed state: what is read inside belongs together."""
        return self.index.view()

    def info(self) -> dict[str, Any]:
        """Return sizes and settings: see `Index.info`."""
        return self.index.info()

    def check(self) -> Report:
        """Verify every checksum and every cross-reference."""
        return self.index.check()

    def get(self, id: str) -> Document | None:  # noqa: A002
        """Return the document or passage with this id, or None."""
        return self.index.get(id)

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

    def search(self, query: str, k: int = 10, **options: Any) -> list[Match]:
        """Find the k most relevant documents; the options are those of `search_many`."""
        (found,) = self.search_many([query], k, **options)
        return found

    def search_many(self, queries: Sequence[str], k: int = 10, **options: Any) -> list[list[Match]]:
        """Find the k most relevant documents for each query, all from one committed state.

        Parameters
        ----------
        queries : sequence of str
        k : int
            How many documents at the most.
        **options
            ``alignment``, ``filter``, ``exact``, ``beta_q``, … of `Index.search`, and ``hybrid`` of `Searcher.search`.
        """
        with self.view():
            found = self.answers(queries, k, **{"hits": False, **options}) if len(queries) else []
            return [list(self._matches(answer)) for answer in found]

    def _matches(self, answer: Answer) -> Iterator[Match]:
        for result in answer.ranking:
            document = self.get(result.id)
            assert document is not None
            yield Match(result.id, result.score, document.text, own_metadata(document))

    def answers(self, queries: Sequence[str], k: int = 10, **options: Any) -> list[Answer]:
        """Search as `search_many` does, and return what the scores are made of, for `snippet` and `explain_answer`."""
        return self.searcher.search(queries, k, **options)

    def snippet(self, answer: Answer, document: Document, **options: Any) -> list[Fragment]:
        """Return the part of a result's text that its score came from; the beginning, if BM25 alone found it."""
        why = self.explain_answer(answer, document.id, **options) if answer.behind(document.id) else None
        return [Fragment(document.text[:240], 0.0)] if why is None else snippet(why)

    def explain(self, query: str, k: int = 1, *, id: str | None = None, **options: Any) -> list[Explanation]:  # noqa: A002
        """Explain the k best documents for a query, or the passages of the document `id`, best first.

        Parameters
        ----------
        query : str
        k : int
            How many documents at the most.
        id : str, optional
            A document, found or not; of one that was split, its k best passages.
        **options
            As for `search`, but for ``hybrid``: fused scores are not made of token pairs.

        Returns
        -------
        list of Explanation
            Each prints as text; `weft.explain.to_html` makes a page of them.
        """
        with self.view():
            wanted = None
            if id is not None:
                wanted = [id] if id in self else [passage.id for passage in self.family(id)]
                if not wanted:
                    raise DataError(f"no document {id!r} in {self.index.folder}")
            (answer,) = self.answers([query], k, **options)
            searched = {name: value for name, value in options.items() if name != "alignment"}
            ranks = {name: rank for rank, name in enumerate(answer.ranking.ids, 1)}
            made = (
                self.explain_answer(answer, name, ranks.get(name), **searched)
                for name in (answer.ranking.ids if wanted is None else wanted)
            )
            found = [explanation for explanation in made if explanation is not None]
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
        **options: Any,
    ) -> Explanation | None:
        """Explain one document's score for an answer's query, or return None where it has none.

        Call it inside the `view` that searched, with the options of that search but for the alignment.
        """
        return explain_result(self.searcher, self.encoder, answer, id, rank, **options)


def is_index(path: str | Path) -> bool:
    """Tell whether there is an index at a path."""
    return (Path(path) / CATALOGUE).is_file()


def is_taken(path: str | Path) -> bool:
    """Tell whether there is anything at a path but an empty folder: a new index has no place there."""
    path = Path(path)
    return path.exists() and not (path.is_dir() and not any(path.iterdir()))


def _open_index(path: Path) -> Index:
    if not path.exists():
        raise NotAnIndexError(f"no such index: {path}; weft index PATH -o {path} makes one")
    if not path.is_dir():
        raise NotAnIndexError(f"{path} is not an index: an index is a folder, this is a file")
    return Index.open(path)


def _load_encoder(index: Index, model: str | None = None) -> Encoder:
    """Load the encoder of an index: the one named, else the one it remembers, else the bundled one."""
    try:
        encoder = Encoder.load(model or index.model or None)
    except CheckpointError as error:
        if model:
            raise
        raise CheckpointError(f"the model of the index at {index.folder}: {error}; say where it is (--model)") from None
    _check_encoder(index, encoder)
    return encoder


def _check_encoder(index: Index, encoder: Encoder) -> None:
    """Refuse an encoder whose vectors are not those of the index."""
    if encoder.dim != index.dim or (index.encoder_fingerprint and encoder.fingerprint != index.encoder_fingerprint):
        was = f"the model {index.model}" if index.model else "another model"
        why = f"{encoder.dim} dimensions, not {index.dim}" if encoder.dim != index.dim else "other vectors"
        raise IndexFormatError(
            f"the index at {index.folder} was made with {was}; {encoder.name} has {why}: name the right one (--model)"
        )
