"""The light back end: ONNX Runtime and tokenizers, no torch.

A light folder holds three files: ``weft_encoder.json`` (`weft.encoders.settings`), ``tokenizer.json`` and
``model.onnx``, a graph from ``input_ids`` and ``attention_mask`` (B, T) to ``vectors`` (B, T, dim) and, for models with
saliences, ``salience`` (B, T, 2): the scores s of the query head and of the document head, before the gate.

Texts run one at a time. On a CPU that is as fast as batches (a document is a large enough matrix, and nothing is
padded), and it makes the vectors of a text a function of that text alone: an int8 graph takes the scale of its
activations from all tokens it is given.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from weft import _telemetry
from weft.encoders.backend import QUERY, Batch, Batches, Output
from weft.encoders.settings import MODEL_FILE, SETTINGS_FILE, TOKENIZER_FILE, Settings
from weft.errors import CheckpointError

if TYPE_CHECKING:
    from onnxruntime import InferenceSession
    from tokenizers import Tokenizer

_telemetry.switch_off()  # set now: ONNX Runtime reads this switch when it is loaded

SHORT = 128
"""A single text of at most this many tokens runs on one thread: more would save little and need a second session."""


def is_light_folder(folder: Path) -> bool:
    """Whether the folder holds the light form of a model."""
    return (folder / SETTINGS_FILE).is_file()


def read_light_folder(folder: Path) -> tuple[Settings, Tokenizer, LightBackend]:
    """Load a light folder."""
    source = folder / SETTINGS_FILE
    try:
        settings = Settings.from_json(source.read_text(encoding="utf-8"), source)
    except (OSError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{source} cannot be read: {error}") from None
    for name in (TOKENIZER_FILE, MODEL_FILE):
        path = folder / name
        if not path.is_file():
            raise CheckpointError(f"{folder} is an incomplete light model: {name} is missing")
        size, expected = path.stat().st_size, settings.files.get(name)
        if expected is not None and size != expected:
            raise CheckpointError(f"{path} has {size:,} bytes instead of {expected:,}: the copy is incomplete")
    return settings, read_tokenizer(folder / TOKENIZER_FILE), LightBackend(folder / MODEL_FILE, settings)


def read_tokenizer(path: Path) -> Tokenizer:
    """Load ``tokenizer.json`` without the truncation and padding that may be saved in it."""
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises bare Exception
        raise CheckpointError(f"{path} is not a tokenizer: {error}") from None
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


class LightBackend:
    """Runs a light folder's graph."""

    kind = "light"
    batched = False

    def __init__(self, path: Path, settings: Settings) -> None:
        self.path = path
        self.settings = settings
        self._sessions: dict[int, InferenceSession] = {}
        self._lock = Lock()
        session = self._session(1)
        outputs = {output.name: output.shape for output in session.get_outputs()}
        expected = {"vectors"} | ({"salience"} if settings.has_salience else set())
        if not expected <= set(outputs) or outputs["vectors"][-1] != settings.dim:
            found = f"the graph gives {', '.join(f'{name} {shape}' for name, shape in outputs.items())}"
            raise CheckpointError(f"{path} does not fit its {SETTINGS_FILE} (dim {settings.dim}): {found}")
        self._outputs = sorted(expected, reverse=True)  # vectors, salience

    def fingerprint(self) -> str:
        """Return the fingerprint of the exported model: all forms of one model share a vector space."""
        return self.settings.fingerprint

    def run(self, batches: Batches, task: str, threads: int) -> Iterator[Output]:
        """Yield the output of each batch: several texts at a time on `threads` threads, or one long text on all."""
        if threads == 1 or len(batches) == 1:
            for batch in batches:
                session = self._session(threads if batch.ids.size > SHORT else 1)
                yield self._output(session, batch, task)
            return
        session = self._session(1)
        pool = ThreadPoolExecutor(threads, thread_name_prefix="weft-encoder")
        try:
            # A few batches ahead are enough to keep the threads busy; more would pile up vectors.
            ahead: list[Future[Output]] = []
            for batch in batches:
                if len(ahead) >= 4 * threads:
                    yield ahead.pop(0).result()
                ahead.append(pool.submit(self._output, session, batch, task))
            while ahead:
                yield ahead.pop(0).result()
        finally:
            pool.shutdown(cancel_futures=True)

    def _output(self, session: InferenceSession, batch: Batch, task: str) -> Output:
        found: list[Any] = session.run(self._outputs, {"input_ids": batch.ids, "attention_mask": batch.attention})
        scores = found[1][..., 0 if task == QUERY else 1] if self.settings.has_salience else None
        return Output(found[0], scores)

    def _session(self, threads: int) -> InferenceSession:
        """Return a session with that many threads; the one for a single thread is kept, and one other."""
        with self._lock:
            if threads not in self._sessions:
                for other in [n for n in self._sessions if n != 1]:
                    del self._sessions[other]
                self._sessions[threads] = open_session(self.path, threads)
            return self._sessions[threads]


def open_session(path: Path, threads: int = 1) -> InferenceSession:
    """Open an ONNX graph on the CPU."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    options.enable_mem_pattern = False  # a pattern for every length of text would never be freed
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # waiting must not cost processor time
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # a dozen classes, all derived from Exception alone
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise CheckpointError(f"{path} is not a graph that ONNX Runtime can open: {reason}") from None
