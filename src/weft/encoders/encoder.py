"""`Encoder`: text in, token vectors out, the same from either back end."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from weft._renamed import Renamed
from weft.alignment import Gate
from weft.checks import check_count
from weft.encoders.backend import DOCUMENT, QUERY, Backend, Batches, usable_cpus
from weft.encoders.encoded import EncodedTexts, Truncation
from weft.encoders.query_towers import FULL, QUERIES
from weft.encoders.settings import Settings, Side
from weft.encoders.tokenizing import Reader, Tokens
from weft.errors import TruncatedError, invalid

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from weft.encoders.query_towers import QueryTower

logger = logging.getLogger("weft.encoders")

BACKENDS = ("auto", "light", "torch")
TRUNCATIONS = ("warn", "error", "ignore")
_READ_AT_ONCE = 1024  # the tokenizer's own objects are large: keep few of them


class Encoder:
    """A model that turns texts into token vectors. Make one with `Encoder.load`.

    Safe to share between threads.

    Attributes
    ----------
    name : str
        The model's name.
    dim : int
        Dimension of the token vectors.
    query_length, document_length : int
        The maximum number of tokens of a text, special tokens and markers included.
    has_salience : bool
        Whether texts come with saliences.
    salience_weighs : bool
        Whether its saliences weigh scores, or only tell which tokens can be left out.
    alignment : str
        The default alignment of an index of its vectors: the one the model was trained for, "" if that is not known.
    languages : tuple of str
        The languages that it reads well, as codes of ISO 639-1; empty if that is not known.
    query : str
        What encodes queries: ``"full"``, the model itself, or its query tower, ``"fast"`` or ``"static"``.
    """

    def __init__(
        self, settings: Settings, tokenizer: Tokenizer, backend: Backend, tower: QueryTower | None = None
    ) -> None:
        self.settings = settings
        self.tokenizer = tokenizer
        self.backend = backend
        self.tower = tower
        self._readers = {QUERY: Reader(tokenizer, settings.query), DOCUMENT: Reader(tokenizer, settings.document)}

    @classmethod
    def load(
        cls,
        name_or_path: str | Path | None = None,
        *,
        backend: str = "auto",
        device: str | None = None,
        query_length: int | None = None,
        document_length: int | None = None,
        query: str = FULL,
        projection: ArrayLike | str | Path | None = None,
        trust_remote_code: bool = False,
        revision: str | None = None,
        cache_folder: str | Path | None = None,
        local_files_only: bool = False,
    ) -> Encoder:
        """Load a model.

        Parameters
        ----------
        name_or_path : str or Path, optional
            A folder, the name of a model that is installed as a package (``"weft-multi"``), or one on the Hugging Face
            hub: a light folder (`weft.encoders.export`), or a
            checkpoint of sentence-transformers, PyLate, Stanford ColBERT, XTR or a plain Hugging Face encoder. By
            default the model that comes with weft, ``"weft-small"``.
        backend : str
            ``"light"`` (ONNX Runtime), ``"torch"``, or ``"auto"``: the one that the folder is made for.
        device : str, optional
            For torch, ``"cpu"`` or ``"cuda"``; by default the best there is.
        query_length, document_length : int, optional
            Lengths other than the checkpoint's.
        query : {"full", "fast", "static"}
            What encodes queries: the model itself, or a query tower that lies beside a light model
            (`weft.encoders.query_towers`). Documents are encoded by the model in any case.
        projection : array of shape (dim, hidden), or path of a .npy file, optional
            For a plain Hugging Face encoder, which has none of its own.
        trust_remote_code : bool
            Run Python code that comes with the checkpoint. Never by default.
        revision, cache_folder, local_files_only
            For models of the hub.

        Returns
        -------
        Encoder
        """
        from weft.encoders.loading import load, tower_of

        if backend not in BACKENDS:
            raise invalid("backend", "Encoder.load", f"one of {BACKENDS}", backend)
        if query not in QUERIES:
            raise invalid("query", "Encoder.load", f"one of {QUERIES}", query)
        settings, tokenizer, found = load(
            name_or_path,
            backend=backend,
            device=device,
            projection=projection,
            trust_remote_code=trust_remote_code,
            revision=revision,
            cache_folder=cache_folder,
            local_files_only=local_files_only,
        )
        settings = settings.with_lengths(query_length, document_length)
        return cls(settings, tokenizer, found, tower_of(query, settings, tokenizer, found))

    # -- looking at one --------------------------------------------------------------------------

    @property
    def name(self) -> str:
        return self.settings.name

    @property
    def dim(self) -> int:
        return self.settings.dim

    @property
    def query_length(self) -> int:
        return self.settings.query.length

    @property
    def document_length(self) -> int:
        return self.settings.document.length

    @property
    def has_salience(self) -> bool:
        return self.settings.has_salience

    @property
    def salience_weighs(self) -> bool:
        return self.settings.salience_weighs

    @property
    def alignment(self) -> str:
        return self.settings.alignment

    @property
    def languages(self) -> tuple[str, ...]:
        return self.settings.languages

    @property
    def query(self) -> str:
        return FULL if self.tower is None else self.tower.settings.kind

    weights = Renamed("salience_weighs")

    @cached_property
    def fingerprint(self) -> str:
        """Names the vector space: a hash of the vocabulary, the prefixes and the weights.

        An index remembers it. All forms of one model share it, so that an index made with torch opens with the light
        form, int8 or not. Lengths and scoring masks do not change it, nor do query towers: they have names of their own
        and can be replaced without a new index.
        """
        return self.settings.fingerprint or self.backend.fingerprint()

    def __repr__(self) -> str:
        queries = "" if self.tower is None else f", queries by {self.tower.settings.name!r}"
        return f"Encoder({self.name!r}, {self.backend.kind} {self.settings.precision}, dim {self.dim}{queries})"

    # -- encoding --------------------------------------------------------------------------------

    def encode_query(
        self,
        texts: str | Iterable[str],
        *,
        batch_size: int = 32,
        threads: int | None = None,
        progress: bool | None = None,
        dtype: DTypeLike = np.float32,
        truncation: str = "warn",
        salience: bool | None = None,
    ) -> EncodedTexts:
        """Encode queries; the parameters are those of `encode_document`."""
        return self._encode(texts, QUERY, batch_size, threads, progress, dtype, truncation, salience)

    def encode_document(
        self,
        texts: str | Iterable[str],
        *,
        batch_size: int = 32,
        threads: int | None = None,
        progress: bool | None = None,
        dtype: DTypeLike = np.float32,
        truncation: str = "warn",
        salience: bool | None = None,
    ) -> EncodedTexts:
        """Encode documents.

        Parameters
        ----------
        texts : str or iterable of str
            Any text will do: an empty one has the vectors of its special tokens alone, lone surrogates are read as
            U+FFFD.
        batch_size : int
            Texts at a time on torch. The light back end takes one at a time.
        threads : int, optional
            Processors to use; by default all that this process may use.
        progress : bool, optional
            Show a bar on stderr; by default in a terminal, if there is more than one batch.
        dtype : dtype
            float32, or float16 for half the memory.
        truncation : str
            What to do about texts that are longer than the model reads; the result says which they are. ``"warn"`` logs
            one line for the call, ``"error"`` raises `weft.errors.TruncatedError` before anything is encoded,
            ``"ignore"`` only cuts.
        salience : bool, optional
            Whether texts come with their saliences; by default if those weigh scores (`salience_weighs`). A model
            without saliences gives none.

        Returns
        -------
        EncodedTexts
            `TokenVectors` with one text for each input, in order, with token ids, spans and, where wanted, saliences;
            `truncation` tells which texts were cut, and by how much.
        """
        return self._encode(texts, DOCUMENT, batch_size, threads, progress, dtype, truncation, salience)

    def count_tokens(self, texts: str | Iterable[str], *, query: bool = False) -> NDArray[np.int64]:
        """Return how many tokens each text has in full, special tokens and prefix included, shape (N,)."""
        listed = _texts(texts, "count_tokens")
        parts = [self._readers[QUERY if query else DOCUMENT].counts(part) for part in _parts(listed)]
        return np.concatenate([np.zeros(0, np.int64), *parts])

    def token_spans(self, text: str) -> NDArray[np.int32]:
        """Return where each token of a document of any length stands in it: shape (T, 2), without special tokens."""
        (listed,) = _texts([text], "token_spans")
        return self._readers[DOCUMENT].spans(listed)

    def token_label(self, token: int) -> str:
        """Return the name of a token in explanations: its piece of the vocabulary, or what its vector stands for."""
        piece = self.tokenizer.id_to_token(int(token)) or f"#{token}"
        return self.settings.labels.get(piece, piece)

    def truncation(self, texts: str | Iterable[str], *, query: bool = False) -> Truncation:
        """Tell which texts would be cut, without encoding them."""
        side = self._readers[QUERY if query else DOCUMENT].side
        lost = np.maximum(self.count_tokens(texts, query=query) - side.length, 0)
        return _truncation(lost, side, QUERY if query else DOCUMENT)

    def _encode(
        self,
        texts: str | Iterable[str],
        task: str,
        batch_size: int,
        threads: int | None,
        progress: bool | None,
        dtype: DTypeLike,
        truncation: str,
        salience: bool | None,
    ) -> EncodedTexts:
        owner = f"encode_{task}"
        listed = _texts(texts, owner)
        check_count(batch_size, "batch_size", owner)
        threads = usable_cpus() if threads is None else check_count(threads, "threads", owner)
        try:
            known = np.dtype(dtype) in (np.dtype(np.float32), np.dtype(np.float16))
        except TypeError:
            known = False
        if not known:
            raise invalid("dtype", owner, "float32 or float16", dtype)
        if truncation not in TRUNCATIONS:
            raise invalid("truncation", owner, f"one of {TRUNCATIONS}", truncation)
        reader = self._readers[task]
        tokens = [t for part in _parts(listed) for t in reader.read(part, threads)]
        cut = _truncation(np.array([t.lost for t in tokens], dtype=np.int64), reader.side, task)
        _report(cut, truncation)
        wanted = self.salience_weighs if salience is None else salience
        values, offsets, u = self._forward(tokens, task, batch_size, threads, progress, np.dtype(dtype), wanted)
        ids = np.concatenate([np.zeros(0, np.int32)] + [t.ids[t.scored] for t in tokens])
        spans = np.concatenate([np.zeros((0, 2), np.int32)] + [t.spans[t.scored] for t in tokens])
        if not np.isfinite(values).all():
            return EncodedTexts(values, offsets, ids, u, spans, cut)  # which refuses them
        return EncodedTexts.of(values, offsets, ids, u, spans, cut)

    def _forward(
        self,
        tokens: list[Tokens],
        task: str,
        batch_size: int,
        threads: int,
        progress: bool | None,
        dtype: np.dtype[Any],
        salient: bool,
    ) -> tuple[NDArray[Any], NDArray[np.int64], NDArray[np.float32] | None]:
        """Run the texts, longest first, and write each one's scored vectors to its place; saliences if wanted."""
        side = self._readers[task].side
        backend = self.tower if task == QUERY and self.tower is not None else self.backend
        # A gate keeps few tokens; saliences that only rank tokens are wanted for all of them.
        gate = None if side.gate is None or not salient else Gate.parse(side.gate if self.salience_weighs else "relu")
        kept = np.array([t.scored.sum() for t in tokens], dtype=np.int64)
        offsets = np.concatenate([[0], np.cumsum(kept)]).astype(np.int64)
        values = np.empty((offsets[-1], self.dim), dtype=dtype)
        salience = None if gate is None else np.empty(offsets[-1], dtype=np.float32)
        order = np.argsort([-len(t) for t in tokens], kind="stable")
        order = order[[len(tokens[i]) > 0 for i in order]]
        size = batch_size if backend.batched else 1
        groups = [order[start : start + size] for start in range(0, len(order), size)]
        batches = Batches([[tokens[i] for i in group] for group in groups], self.settings.pad_id)
        with _bar(len(order), len(groups), progress) as shown:
            for group, (vectors, scores) in zip(groups, backend.run(batches, task, threads), strict=True):
                u = None
                if scores is not None and gate is not None:
                    counted = [tokens[i].scored if side.gate_scored else tokens[i].attended for i in group]
                    u = gated(gate, scores, counted)
                for row, i in enumerate(group):
                    scored = tokens[i].scored
                    values[offsets[i] : offsets[i + 1]] = vectors[row, : len(scored)][scored]
                    if salience is not None and u is not None:
                        salience[offsets[i] : offsets[i + 1]] = u[row, : len(scored)][scored]
                shown(len(group))
        return values, offsets, salience


def gated(gate: Gate, scores: NDArray[np.float32], counted: Sequence[NDArray[np.bool_]]) -> NDArray[np.float32]:
    """Return u = λ · s (ALIGNER eq. 3), shape (B, T); the gate chooses among the tokens counted of each text."""
    mask = np.zeros(scores.shape, dtype=bool)
    for row, tokens in enumerate(counted):
        mask[row, : len(tokens)] = tokens
    s = np.where(mask, scores, 0).astype(np.float32)
    return np.asarray(gate(s, mask) * s, dtype=np.float32)


@contextmanager
def _bar(texts: int, groups: int, progress: bool | None) -> Iterator[Callable[[int], object]]:
    """Show a progress bar if one is wanted; yield a function that tells it how many texts are done.

    Making a bar costs as much as tokenising a query, so a single text gets none.
    """
    if groups < 2 and not progress:
        yield int
        return
    from tqdm import tqdm  # slow to import

    hidden = None if progress is None else not progress  # None: tqdm asks for a terminal
    with tqdm(total=texts, unit=" texts", smoothing=0.1, disable=hidden) as bar:
        yield bar.update


def _texts(texts: str | Iterable[str], owner: str) -> list[str]:
    if isinstance(texts, str):
        return [texts]
    if isinstance(texts, (bytes, dict)) or not isinstance(texts, Iterable):
        raise invalid("texts", owner, "a str or an iterable of str", texts)
    listed = list(texts)
    for position, text in enumerate(listed):
        if not isinstance(text, str):
            raise invalid("texts", owner, "a str or an iterable of str", f"{type(text).__name__} at {position}")
    return listed


def _parts(texts: list[str]) -> Iterator[list[str]]:
    return (texts[start : start + _READ_AT_ONCE] for start in range(0, len(texts), _READ_AT_ONCE))


def _truncation(lost: NDArray[np.int64], side: Side, task: str) -> Truncation:
    texts = np.flatnonzero(lost)
    return Truncation(texts, lost[texts], side.length, len(lost), "queries" if task == QUERY else "documents")


def _report(found: Truncation, how: str) -> None:
    if not found or how == "ignore":
        return
    if how == "error":
        raise TruncatedError(f"{found} (the first is text {found.texts[0]}; split_passages keeps them)")
    logger.warning("%s", found)
