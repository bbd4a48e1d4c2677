"""`TextIndex`: an index with its encoder. Texts in, answers and their reasons out."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from weft.encoders import Encoder
from weft.errors import CheckpointError, DataError, IndexFormatError, NotAnIndexError, invalid
from weft.explain.reading import explain_result
from weft.ingest import Summary, update
from weft.ingest.updating import MARK
from weft.search import Answer, Index, Searcher
from weft.sources.files import Source, content_hash, read_sources
from weft.sources.find import Selection, find, name_of
from weft.sources.records import Fields
from weft.storage.families import family
from weft.types import Document

if TYPE_CHECKING:
    from weft.explain import Explanation


class Match(NamedTuple):
    """A document that was found."""

    id: str
    score: float
    text: str
    metadata: dict[str, Any]


class TextIndex:
    """An index together with the encoder that it was made with. Make or open one with `TextIndex.open`.

    Parameters
    ----------
    index : Index
    encoder : Encoder
        Refused if its vectors are not those of the index.

    Examples
    --------
    >>> import tempfile
    >>> from weft import TextIndex
    >>> with TextIndex.open(tempfile.mkdtemp(), create=True) as notes:  # doctest: +SKIP
    ...     _ = notes.add({"mars": "Mars looks red because of the rust in its dust.", "sea": "Why the sea is salt."})
    ...     [match.id for match in notes.search("the red planet", k=1)]
    ['mars']
    """

    def __init__(self, index: Index, encoder: Encoder) -> None:
        check_encoder(index, encoder)
        self.index = index
        self.encoder = encoder
        self.searcher = Searcher(index, encoder)

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        create: bool = False,
        model: str | Path | None = None,
        bits: int = 8,
        beta_d: float | None = None,
    ) -> Self:
        """Open an index and load its encoder.

        Parameters
        ----------
        path : path
            The index's folder.
        create : bool
            Make it if it is not there.
        model : str or Path, optional
            A model's folder or name. By default the one that the index remembers; of a new index, the one that comes
            with weft.
        bits, beta_d
            Of a new index, as for `Index.create`.
        """
        path = Path(path)
        wanted = None if model is None else str(model)
        if not create or (path.is_dir() and any(path.iterdir())) or path.is_file():
            index = open_index(path)
        else:
            encoder = Encoder.load(wanted)
            if beta_d is not None and not encoder.has_salience:
                raise invalid("beta_d", "TextIndex.open", f"left out: {encoder.name} has no saliences", beta_d)
            reference = model_reference(wanted)
            index = Index.create(
                path,
                encoder.dim,
                encoder_fingerprint=encoder.fingerprint,
                bits=bits,
                beta_d=beta_d,
                salience_weighs=encoder.salience_weighs,
                model=reference,
            )
            return cls(index, encoder)
        try:
            return cls(index, encoder_of(index, wanted))
        except BaseException:
            index.close()
            raise

    def close(self) -> None:
        """Close the index."""
        self.index.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        return len(self.index)

    def __repr__(self) -> str:
        return f"TextIndex({str(self.index.folder)!r}, {len(self):,} passages, {self.encoder.name})"

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
            Split documents that are longer than the model reads into passages ``id#0``, ``id#1``, …; otherwise they
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
        sources = (text_source(one) for one in given)
        return update(self.index, self.encoder, sources, split=split, threads=threads, progress=progress)

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
        found = find(listed, selection or Selection(), summary.skipped.append)
        sources = read_sources(found, fields or Fields(), summary.skipped.append)
        return update(
            self.index,
            self.encoder,
            sources,
            roots=[name_of(Path(path)) for path in listed] if sync else None,
            threads=threads,
            progress=progress,
            total=sum(file.size for file in found) or None,
            summary=summary,
        )

    def delete(self, ids: str | Iterable[str]) -> int:
        """Remove documents with all their passages; unknown ids are ignored. Return how many passages were there."""
        wanted = [ids] if isinstance(ids, str) else list(ids)
        return self.index.delete({member.id for name in wanted for member in family(self.index, name)})

    # -- reading -------------------------------------------------------------------------------------

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
        with self.index.view():
            answers = self.searcher.search(queries, k, **{"hits": False, **options}) if len(queries) else []
            return [list(self._matches(answer)) for answer in answers]

    def _matches(self, answer: Answer) -> Iterator[Match]:
        for result in answer.ranking:
            document = self.index.get(result.id)
            assert document is not None
            yield Match(result.id, result.score, document.text, own_metadata(document))

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
        with self.index.view():
            wanted = None
            if id is not None:
                wanted = [id] if id in self.index else [passage.id for passage in family(self.index, id)]
                if not wanted:
                    raise DataError(f"no document {id!r} in {self.index.folder}")
            (answer,) = self.searcher.search([query], k, **options)
            searched = {name: value for name, value in options.items() if name != "alignment"}
            ranks = {name: rank for rank, name in enumerate(answer.ranking.ids, 1)}
            made = (
                explain_result(self.searcher, self.encoder, answer, name, ranks.get(name), **searched)
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


def open_index(path: Path) -> Index:
    """Open an index, or say in one line why there is none."""
    if not path.exists():
        raise NotAnIndexError(f"no such index: {path}; weft index PATH -o {path} makes one")
    if not path.is_dir():
        raise NotAnIndexError(f"{path} is not an index: an index is a folder, this is a file")
    return Index.open(path)


def encoder_of(index: Index, model: str | None = None) -> Encoder:
    """Load the encoder of an index: the one named, else the one it remembers, else the bundled one."""
    try:
        encoder = Encoder.load(model or index.model or None)
    except CheckpointError as error:
        if model:
            raise
        raise CheckpointError(f"the model of the index at {index.folder}: {error}; say where it is (--model)") from None
    check_encoder(index, encoder)
    return encoder


def check_encoder(index: Index, encoder: Encoder) -> None:
    """Refuse an encoder whose vectors are not those of the index."""
    if encoder.dim != index.dim or (index.encoder_fingerprint and encoder.fingerprint != index.encoder_fingerprint):
        was = f"the model {index.model}" if index.model else "another model"
        why = f"{encoder.dim} dimensions, not {index.dim}" if encoder.dim != index.dim else "other vectors"
        raise IndexFormatError(
            f"the index at {index.folder} was made with {was}; {encoder.name} has {why}: name the right one (--model)"
        )


def model_reference(model: str | None) -> str:
    """Return what an index is to remember of a model: a folder's full path, a name as it is, "" for the bundled one."""
    if not model:
        return ""
    folder = Path(model).expanduser()
    return os.path.abspath(folder) if folder.is_dir() else model


def text_source(given: Document | str) -> Source:
    """Return a text as a source of no file, so that ``weft index --sync`` leaves it alone."""
    named = given if isinstance(given, Document) else None
    text = named.text if named else given
    if not isinstance(text, str):
        raise invalid("documents", "add", "texts or Documents", given)
    if not text.strip():
        raise DataError(f"nothing to add: the text{f' of {named.id!r}' if named and named.id else ''} is empty")
    metadata = dict(named.metadata) if named else {}
    digest = content_hash(text.encode("utf-8", "surrogateescape"), json.dumps(metadata, sort_keys=True).encode())
    document = Document(named.id if named and named.id else f"text:{digest[:16]}", text, metadata)
    return Source(document.id, "", digest, 0, partial(_same, document))


def _same(document: Document) -> Document:
    return document


def own_metadata(document: Document) -> dict[str, Any]:
    """Return a document's metadata without weft's own notes."""
    return {key: value for key, value in document.metadata.items() if key != MARK}
