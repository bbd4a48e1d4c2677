"""A corpus indexed for decoding, as a folder.

index.json         format, method, model, vocabulary
documents.sqlite   ids, texts, metadata
corpus.tokens      all n-grams of the corpus (SEAL)
identifiers.json   token ids of each document's identifier (DSI, GENRE, NP-decoding)
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft.errors import CorruptIndexError, DataError, IndexExistsError, IndexFormatError, NotAnIndexError, invalid
from weft.generative.corpus_index import FMIndex, NGramIndex, TokenTextIndex
from weft.types import Document

if TYPE_CHECKING:
    from weft.generative.model import GenerativeModel

logger = logging.getLogger(__name__)

FORMAT = 1
INFO, DOCUMENTS, TOKENS, IDENTIFIERS = "index.json", "documents.sqlite", "corpus.tokens", "identifiers.json"
FORMS: dict[str, type[NGramIndex]] = {"suffix": TokenTextIndex, "fm": FMIndex}
_AT_ONCE = 1000


class GenerativeIndex:
    """An open folder: documents by id and number, and what makes identifiers valid."""

    def __init__(self, folder: Path, info: dict[str, Any]) -> None:
        self.folder, self.info = folder, info
        self._database = sqlite3.connect(f"file:{folder / DOCUMENTS}?mode=ro", uri=True, check_same_thread=False)

    # -- making one --------------------------------------------------------------------------------

    @classmethod
    def create(
        cls,
        folder: str | Path,
        documents: Iterable[Document],
        model: GenerativeModel,
        *,
        reference: str = "",
        form: str = "suffix",
    ) -> GenerativeIndex:
        """Write a new folder, whole or not at all.

        Parameters
        ----------
        folder : path
        documents : iterable of Document
            ``metadata["title"]``, where there is one, is taken to be the beginning of the text.
        model : GenerativeModel
            A trained one: it says which method, and its tokenizer cuts the texts.
        reference : str
            Where the model is, for `Retriever.open`.
        form : {"suffix", "fm"}
            SEAL: the form of the corpus index, fast or small.
        """
        folder = Path(folder)
        if form not in FORMS:
            raise invalid("form", "GenerativeIndex.create", f"one of {', '.join(FORMS)}", form)
        if folder.exists():
            raise IndexExistsError(f"{folder} is already there: choose another folder, or remove it")
        temporary = folder.with_name(f"{folder.name}.part-{os.getpid()}")
        temporary.mkdir(parents=True)
        try:
            ids, titles, texts = _write_documents(temporary / DOCUMENTS, documents)
            method = str(model.settings.get("method", ""))
            if method == "seal":
                _write_tokens(temporary / TOKENS, ids, texts, model, FORMS[form])
            else:
                found = _identifiers(method, ids, titles, texts, model)
                (temporary / IDENTIFIERS).write_text(json.dumps(found), encoding="utf-8")
            info = {"format": FORMAT, "method": method, "model": reference, "vocabulary": vocabulary_of(model)}
            (temporary / INFO).write_text(json.dumps({**info, "documents": len(ids)}, indent=1), encoding="utf-8")
            os.rename(temporary, folder)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        return cls.open(folder)

    @classmethod
    def open(cls, folder: str | Path) -> GenerativeIndex:
        """Open a folder."""
        folder = Path(folder)
        try:
            info = json.loads((folder / INFO).read_text(encoding="utf-8"))
            version = info["format"]
        except (FileNotFoundError, NotADirectoryError):
            raise NotAnIndexError(f"no generative index at {folder}: weft generative index makes one") from None
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptIndexError(f"{folder / INFO} is not what was written: {error}") from None
        if version != FORMAT:
            raise IndexFormatError(f"{folder} has format {version}; this weft reads {FORMAT}")
        if not (folder / DOCUMENTS).is_file():
            raise CorruptIndexError(f"{folder / DOCUMENTS} is missing: make the index again")
        return cls(folder, info)

    # -- looking at it -----------------------------------------------------------------------------

    @property
    def method(self) -> str:
        """``"seal"``, ``"dsi"`` or ``"genre"``."""
        return str(self.info["method"])

    def __len__(self) -> int:
        return int(self.info["documents"])

    def get(self, id: str) -> Document | None:  # noqa: A002
        """Return a document by its id."""
        row = self._one("SELECT id, text, metadata FROM documents WHERE id = ?", id)
        return None if row is None else Document(row[0], row[1], json.loads(row[2]))

    def ids(self) -> list[str]:
        """Return all ids; their places are the documents' numbers."""
        try:
            return [row[0] for row in self._database.execute("SELECT id FROM documents ORDER BY number")]
        except sqlite3.DatabaseError as error:
            raise CorruptIndexError(f"{self.folder / DOCUMENTS} cannot be read: {error}") from None

    def identifiers(self) -> list[list[int]]:
        """Return the identifier of each document, by number."""
        path = self.folder / IDENTIFIERS
        try:
            found: list[list[int]] = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise CorruptIndexError(f"{path} cannot be read: {error}") from None
        if not isinstance(found, list) or len(found) != len(self):
            raise CorruptIndexError(f"{path} is not what was written: it should have {len(self)} identifiers")
        return found

    def corpus(self, model: GenerativeModel) -> NGramIndex:
        """Open the corpus index of SEAL, made with the tokenizer of `model`."""
        size = int(model.t5.config.vocab_size)
        return NGramIndex.open(self.folder / TOKENS, tokenizer=tokenizer_of(model), vocabulary=size)

    def check_model(self, model: GenerativeModel) -> None:
        """Refuse a model of another method or vocabulary."""
        method = model.settings.get("method")
        if method != self.method:
            raise IndexFormatError(
                f"the index at {self.folder} is for {self.method}; the model was trained for {method}"
            )
        if vocabulary_of(model) != self.info["vocabulary"]:
            raise IndexFormatError(
                f"the index at {self.folder} was made with another vocabulary than the model has: "
                "use the model it was made with, or make the index again"
            )

    def close(self) -> None:
        """Close the files."""
        self._database.close()

    def __enter__(self) -> GenerativeIndex:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _one(self, statement: str, *values: object) -> Any:
        try:
            return self._database.execute(statement, values).fetchone()
        except sqlite3.DatabaseError as error:
            raise CorruptIndexError(f"{self.folder / DOCUMENTS} cannot be read: {error}") from None


def tokenizer_of(model: GenerativeModel) -> str:
    """Name a tokenizer by its tokens."""
    return hashlib.sha256(json.dumps(sorted(model.tokenizer.get_vocab().items())).encode()).hexdigest()[:16]


def vocabulary_of(model: GenerativeModel) -> str:
    """Name the decoder's vocabulary: the tokenizer, the identifiers it learnt, the clusters."""
    digest = hashlib.sha256(tokenizer_of(model).encode())
    digest.update(str(model.vocabulary).encode())
    digest.update(json.dumps(model.settings.get("identifiers"), sort_keys=True).encode())
    if model.token_of is not None:
        digest.update(model.token_of.cpu().numpy().tobytes())
    return digest.hexdigest()[:16]


def _write_documents(path: Path, documents: Iterable[Document]) -> tuple[list[str], list[str], list[str]]:
    ids, titles, texts = [], [], []
    database = sqlite3.connect(path)
    try:
        with database:
            database.execute(
                "CREATE TABLE documents (number INTEGER PRIMARY KEY, id TEXT UNIQUE, text TEXT, metadata TEXT)"
            )
            for number, document in enumerate(documents):
                title = document.metadata.get("title")
                title = title if isinstance(title, str) else ""
                text = document.text if document.text.startswith(title) else f"{title} {document.text}"
                if not text.strip():
                    raise DataError(f"the document {document.id!r} is empty: nothing could identify it")
                row = (number, document.id, text, json.dumps(dict(document.metadata), ensure_ascii=False))
                try:
                    database.execute("INSERT INTO documents VALUES (?, ?, ?, ?)", row)
                except sqlite3.IntegrityError:
                    raise DataError(f"two documents have the id {document.id!r}") from None
                ids.append(document.id)
                titles.append(title)
                texts.append(text)
    finally:
        database.close()
    if not ids:
        raise DataError("no documents to index")
    return ids, titles, texts


def _write_tokens(
    path: Path, ids: Sequence[str], texts: Sequence[str], model: GenerativeModel, form: type[NGramIndex]
) -> None:
    tokens: list[list[int]] = []
    for start in range(0, len(texts), _AT_ONCE):
        tokens += model.tokenizer(list(texts[start : start + _AT_ONCE]), add_special_tokens=False)["input_ids"]
    own = (model.tokenizer.pad_token_id, model.tokenizer.eos_token_id, model.tokenizer.unk_token_id)
    built = form.build(
        tokens,
        ids,
        vocabulary=int(model.t5.config.vocab_size),
        tokenizer=tokenizer_of(model),
        breaks=[token for token in own if token is not None],
    )
    built.save(path)


def _identifiers(
    method: str, ids: Sequence[str], titles: Sequence[str], texts: Sequence[str], model: GenerativeModel
) -> list[list[int]]:
    from weft.generative.methods import title_identifiers

    if method == "dsi":
        known = model.settings["identifiers"]
        missing = [name for name in ids if name not in known]
        if missing:
            raise DataError(
                f"{len(missing):,} of {len(ids):,} documents, as {missing[0]!r}, have no identifier in this model: "
                "DSI knows only the documents it was trained with"
            )
        return [known[name] for name in ids]
    if method == "multi-vector":
        raise DataError("a multi-vector model decodes nothing: index with it by weft index --model FOLDER")
    if method != "genre":
        raise DataError(f"the model says no method that can be indexed: {method!r}")
    found, _ = title_identifiers(model.tokenizer, titles, texts)
    if model.token_of is not None:
        sayable = set(model.token_of.tolist())
        lost = sum(any(token not in sayable for token in identifier) for identifier in found)
        if lost:
            logger.warning("%d documents cannot be found: the model has no vector for a token of theirs", lost)
    return found
