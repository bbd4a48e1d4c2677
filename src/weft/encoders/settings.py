"""How a model reads texts, as plain data: both back ends use it, and a light folder keeps it as JSON."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from weft.alignment import Alignment, Gate
from weft.checks import check_count
from weft.errors import CheckpointError, WeftError, invalid

FORMAT = 1
"""Version of the light folder; a folder of another version is refused."""

SETTINGS_FILE = "weft_encoder.json"
TOKENIZER_FILE = "tokenizer.json"
MODEL_FILE = "model.onnx"

PRECISIONS = ("fp32", "int8")
STRATEGIES = ("fixed", "min")


@dataclass(frozen=True)
class Expansion:
    """ColBERT's query expansion: short queries are filled up with a token, [MASK] as a rule, which is scored too.

    Parameters
    ----------
    length : int
        Tokens of a query after filling up.
    token_id : int
        The token to fill up with.
    attend : bool
        Whether the model attends to these tokens.
    strategy : str
        ``"fixed"`` cuts longer queries to `length`; ``"min"`` leaves them as they are.
    """

    length: int
    token_id: int
    attend: bool = False
    strategy: str = "fixed"

    def __post_init__(self) -> None:
        check_count(self.length, "length", "Expansion")
        if self.strategy not in STRATEGIES:
            raise invalid("strategy", "Expansion", f"one of {STRATEGIES}", self.strategy)


@dataclass(frozen=True)
class Side:
    """How one side, queries or documents, is read.

    Parameters
    ----------
    length : int
        The maximum number of tokens of a text, special tokens and prefix included.
    prefix : str
        What stands before every text: a marker such as ``"[Q] "`` or a prompt.
    expansion : Expansion, optional
    skip_ids : tuple of int
        Tokens that take no part in scoring, punctuation as a rule. The model still reads them.
    keep_ids : tuple of int, optional
        If given, only these tokens take part in scoring.
    gate : str, optional
        The salience gate (`weft.alignment.Gate`) of a model with saliences.
    gate_scored : bool
        Whether the gate's budget ⌈α·m⌉ counts the tokens that take part in scoring, or all that the model attends to:
        whether the salience heads stand after the scoring mask.
    """

    length: int
    prefix: str = ""
    expansion: Expansion | None = None
    skip_ids: tuple[int, ...] = ()
    keep_ids: tuple[int, ...] | None = None
    gate: str | None = None
    gate_scored: bool = False

    def __post_init__(self) -> None:
        check_count(self.length, "length", "Side")
        if self.gate is not None:
            Gate.parse(self.gate)
        if self.expansion is not None:
            fixed = self.expansion.strategy == "fixed"
            length = self.expansion.length if fixed else max(self.length, self.expansion.length)
            object.__setattr__(self, "length", length)


@dataclass(frozen=True)
class Settings:
    """Everything about an encoder except its weights and its vocabulary.

    Parameters
    ----------
    name : str
        What to call the model.
    dim : int
        Dimension of the token vectors.
    query, document : Side
    pad_id : int
        The token that fills up batches; masked, so that it never changes a vector.
    max_length : int, optional
        Tokens the model can read at all; None where it has no such bound.
    fingerprint : str
        See `Encoder.fingerprint`; empty until it is known.
    precision : str
        ``"fp32"`` or ``"int8"``.
    files : mapping
        Bytes of each file of a light folder, so that an incomplete copy is noticed.
    provenance : mapping
        Where the model comes from: free JSON.
    salience_weighs : bool
        Whether its saliences weigh scores (ALIGNER eq. 2), or only tell which tokens may be left out.
    labels : mapping
        The names in explanations of tokens whose vectors stand for something else.
    alignment : str
        The default alignment of an index of the model's vectors; "" for the sum of max.
    languages : tuple of str
        The languages that the model reads well, as codes of ISO 639-1; empty if that is not known.
    """

    name: str
    dim: int
    query: Side
    document: Side
    pad_id: int = 0
    max_length: int | None = None
    fingerprint: str = ""
    precision: str = "fp32"
    files: Mapping[str, int] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)
    salience_weighs: bool = True
    labels: Mapping[str, str] = field(default_factory=dict)
    alignment: str = ""
    languages: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_count(self.dim, "dim", "Settings")
        if self.alignment:
            Alignment.parse(self.alignment)
        if self.precision not in PRECISIONS:
            raise invalid("precision", "Settings", f"one of {PRECISIONS}", self.precision)

    @property
    def has_salience(self) -> bool:
        """Whether the model was trained with saliences."""
        return self.document.gate is not None

    def with_lengths(self, query_length: int | None, document_length: int | None) -> Settings:
        """Return the same settings with other lengths, where given."""
        sides = {"query": self.query, "document": self.document}
        for name, length in (("query", query_length), ("document", document_length)):
            if length is None:
                continue
            check_count(length, f"{name}_length", "Encoder.load")
            if self.max_length is not None and length > self.max_length:
                limit = f"at most {self.max_length}, the tokens that this model can read"
                raise invalid(f"{name}_length", "Encoder.load", limit, length)
            expansion = sides[name].expansion
            if expansion is not None and expansion.strategy == "fixed":
                expansion = dataclasses.replace(expansion, length=length)
            sides[name] = dataclasses.replace(sides[name], length=length, expansion=expansion)
        return dataclasses.replace(self, query=sides["query"], document=sides["document"])

    # -- as JSON ---------------------------------------------------------------------------------

    def to_json(self) -> str:
        """Return the text of ``weft_encoder.json``."""
        fields = dataclasses.asdict(self)
        for name in ("alignment", "languages"):
            if not fields[name]:  # earlier versions do not know the key
                del fields[name]
        return json.dumps({"format": FORMAT} | fields, indent=2, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str, source: Path) -> Settings:
        """Read what `to_json` wrote; `source` is named in errors."""
        try:
            data = json.loads(text)
        except ValueError as error:
            raise CheckpointError(f"{source} is not JSON: {error}") from None
        if not isinstance(data, dict):
            raise CheckpointError(f"{source} must hold a JSON object")
        version = data.pop("format", None)
        if version != FORMAT:
            raise CheckpointError(f"{source} has format {version!r}; this version of weft reads format {FORMAT}")
        if "weights" in data:  # what the field was called at first
            data["salience_weighs"] = data.pop("weights")
        try:
            for name in ("query", "document"):
                side = dict(data[name])
                if side.get("expansion") is not None:
                    side["expansion"] = Expansion(**side["expansion"])
                side["skip_ids"] = tuple(side.get("skip_ids", ()))
                side["keep_ids"] = None if side.get("keep_ids") is None else tuple(side["keep_ids"])
                data[name] = Side(**side)
            data["languages"] = tuple(map(str, data.get("languages", ())))
            return cls(**data)
        except (TypeError, KeyError, ValueError, WeftError) as error:
            raise CheckpointError(f"{source} does not describe an encoder: {error}") from None
