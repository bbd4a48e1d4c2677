"""Recipes of generative retrievers: TOML files that say everything about a training run.

    [model]         a T5 to start from, or the size of one from scratch
    [identifiers]   what the decoder writes: n-grams (seal), digits (dsi), titles (genre); PAWA; NP-decoding; or
                    nothing: T5-ColBERT (multi-vector), which they are compared with
    [examples]      what it learns from: spans, documents, how many of which
    [training]      steps, batches, learning rate, output
    [[data]]        one table for each collection, a BEIR folder

Unknown keys are errors. Any key can be set on the command line: ``weft generative train recipe.toml
training.steps=100``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from weft.errors import invalid
from weft.training.recipes import trainable
from weft.training.tables import RecipeError, at_least, list_of, positive, read_tables, reject_unknown, settings

METHODS = ("seal", "dsi", "genre", "multi-vector")
OWNER = "the recipe"


@dataclass(frozen=True)
class ModelSettings:
    """The ``[model]`` table."""

    base: str = ""
    """A folder or hub name: a T5, or a generative model trained before. Without it the model starts from scratch."""
    size: str = "tiny"
    """From scratch: ``"tiny"`` (128 × 2 layers) or ``"mini"`` (256 × 4)."""
    vocabulary: int = 8000
    """From scratch: tokens of the tokenizer, which is trained on the corpus and the training queries."""
    start: str = "corpus"
    """From scratch: ``"corpus"`` sets embeddings and cross-attention by which tokens share documents
    (`weft.generative.start`), ``"random"`` leaves T5's own."""
    tokenizer: str = "bpe"
    lowercase: bool = True
    query_length: int = 64
    dropout: float = 0.1

    def __post_init__(self) -> None:
        if self.tokenizer not in ("bpe", "unigram"):
            raise invalid("model.tokenizer", OWNER, "'bpe' or 'unigram'", self.tokenizer)
        if self.start not in ("corpus", "random"):
            raise invalid("model.start", OWNER, "'corpus' or 'random'", self.start)
        if not 0 <= self.dropout < 1:
            raise invalid("model.dropout", OWNER, "at least 0 and below 1", self.dropout)
        at_least(16, "model.vocabulary", self.vocabulary)
        at_least(2, "model.query_length", self.query_length)


_DEFAULTS = {"alignment": "sum-of-max", "dim": 128, "document_length": 256, "fill_queries": False}
"""Settings that only T5-ColBERT uses."""


@dataclass(frozen=True)
class IdentifierSettings:
    """The ``[identifiers]`` table."""

    method: str
    k: int = 10
    """DSI: clusters of a level. NCI takes 30."""
    c: int = 100
    """DSI: the maximum number of documents in a leaf. NCI takes 30."""
    embedding: str = "lsa"
    """DSI: the document vectors to cluster: ``"lsa"`` (TF-IDF, 128 singular vectors), or an encoder (a folder, a name,
    ``"weft-small"`` for the bundled one), whose token vectors are averaged."""
    pawa: bool = False
    """DSI: prefix-aware weight-adaptive decoding (eq. 17-19)."""
    pawa_layers: int = 4
    pawa_heads: int = 8
    additive_table: bool = True
    """PAWA: keep the plain table beside the adapted one, as NCI does; eq. 17 leaves it out."""
    np: str = "none"
    """GENRE: NP-decoding, ``"base"`` (the table stays) or ``"async"`` (made anew every `np_every` steps)."""
    np_clusters: int = 5
    """NP-decoding: contextual vectors kept of each token type."""
    np_every: int = 1000
    np_context: int = 64
    """NP-decoding: tokens of "title text" that are encoded for the title's vectors."""
    alignment: str = "sum-of-max"
    """T5-ColBERT: ``"sum-of-max"`` is MVDR(q→d), ``"document-to-query:0.1"`` MVDR(q←d); others will do."""
    dim: int = 128
    """T5-ColBERT: of the token vectors."""
    document_length: int = 256
    """T5-ColBERT: the maximum number of tokens of a document."""
    fill_queries: bool = False
    """T5-ColBERT: fill queries up to `model.query_length` with a mask token (T5's ``<extra_id_0>``), which is encoded
    and scored like their own, as ColBERT does."""

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise invalid("identifiers.method", OWNER, f"one of {', '.join(METHODS)}", self.method)
        if self.np not in ("none", "base", "async"):
            raise invalid("identifiers.np", OWNER, "'none', 'base' or 'async'", self.np)
        if self.pawa and self.method != "dsi":
            raise invalid("identifiers.pawa", OWNER, "false unless the method is dsi", True)
        if self.np != "none" and self.method != "genre":
            raise invalid("identifiers.np", OWNER, "'none' unless the method is genre", self.np)
        if self.method != "multi-vector":
            changed = [key for key, default in _DEFAULTS.items() if getattr(self, key) != default]
            if changed:
                key = changed[0]
                raise invalid(
                    f"identifiers.{key}", OWNER, "left out unless the method is multi-vector", getattr(self, key)
                )
        trainable(self.alignment, "identifiers.alignment")
        at_least(2, "identifiers.k", self.k)
        for key in (
            "c",
            "pawa_layers",
            "pawa_heads",
            "np_clusters",
            "np_every",
            "np_context",
            "dim",
            "document_length",
        ):
            at_least(1, f"identifiers.{key}", getattr(self, key))


@dataclass(frozen=True)
class ExampleSettings:
    """The ``[examples]`` table."""

    span: int = 10
    """SEAL: tokens of a span."""
    span_words: int = 0
    """SEAL: words of a span, in place of so many tokens; the paper has 10."""
    spans_a_pair: int = 5
    """SEAL: spans drawn for each (query, passage) pair in an epoch."""
    temperature: float = 1.0
    documents: float = 0.0
    """Share of the rows of a batch whose input is the document itself, not a query: for SEAL a random span of it (or
    its title) with another span as target, for DSI and GENRE a part of its text with its identifier. DSI's paper has 32
    such rows for one query: 0.97."""
    document_length: int = 32
    """Tokens of a document as input."""

    def __post_init__(self) -> None:
        if not 0 <= self.documents <= 1:
            raise invalid("examples.documents", OWNER, "a share, between 0 and 1", self.documents)
        positive("examples.temperature", self.temperature)
        for key in ("span", "spans_a_pair", "document_length"):
            at_least(1, f"examples.{key}", getattr(self, key))
        at_least(0, "examples.span_words", self.span_words)


@dataclass(frozen=True)
class TrainingSettings:
    """The ``[training]`` table; `steps` or `epochs`, not both. In an epoch every query comes once for each target."""

    output: str
    steps: int = 0
    epochs: float = 0.0
    batch_size: int = 32
    learning_rate: float = 1e-3
    embedding_rate: float = 1.0
    """The embeddings' learning rate, as a multiple of the others'. T5 draws them with a standard deviation of 1, some
    ten times that of other weights, but Adam's steps do not depend on the size of weights. From scratch, 10 moves both
    equally."""
    warmup: int = 0
    """Steps over which the learning rate rises."""
    scheduler: str = "constant"
    """``"constant"``, or ``"linear"`` down to 0 at the last step."""
    weight_decay: float = 0.0
    clip: float = 1.0
    """Gradients are scaled down to this norm; 0 leaves them."""
    precision: str = "fp32"
    """``"fp32"``, or ``"bf16"``: products in half precision, weights in full."""
    seed: int = 17
    save_every: int = 500
    log_every: int = 50

    def __post_init__(self) -> None:
        if (self.steps > 0) == (self.epochs > 0):
            raise RecipeError("training needs steps or epochs, above 0, and not both")
        if self.scheduler not in ("constant", "linear"):
            raise invalid("training.scheduler", OWNER, "'constant' or 'linear'", self.scheduler)
        if self.precision not in ("fp32", "bf16"):
            raise invalid("training.precision", OWNER, "'fp32' or 'bf16'", self.precision)
        positive("training.learning_rate", self.learning_rate)
        positive("training.embedding_rate", self.embedding_rate)
        for key in ("clip", "weight_decay", "warmup"):
            if getattr(self, key) < 0:
                raise invalid(f"training.{key}", OWNER, "at least 0", getattr(self, key))
        at_least(0, "training.seed", self.seed)
        for key in ("batch_size", "save_every", "log_every"):
            at_least(1, f"training.{key}", getattr(self, key))


@dataclass(frozen=True)
class DataSettings:
    """A ``[[data]]`` table: one BEIR folder, whose documents are indexed and whose judged queries are learnt from."""

    path: str
    splits: str = "train"
    """Splits of judgements, separated by commas; ``""`` for documents only."""
    documents: int = 0
    """Take this many documents, the judged ones first, then others at random; 0 takes all."""
    heldout: float = 0.0
    """Share of the queries kept out of training and written to ``<output>/collection`` as its test split."""

    def __post_init__(self) -> None:
        if not 0 <= self.heldout < 1:
            raise invalid("data.heldout", OWNER, "a share, at least 0 and below 1", self.heldout)
        at_least(0, "data.documents", self.documents)


@dataclass(frozen=True)
class Recipe:
    """A whole recipe."""

    identifiers: IdentifierSettings
    training: TrainingSettings
    data: tuple[DataSettings, ...]
    model: ModelSettings = field(default_factory=ModelSettings)
    examples: ExampleSettings = field(default_factory=ExampleSettings)
    notes: str = ""

    def __post_init__(self) -> None:
        if not self.data:
            raise RecipeError("a recipe needs at least one [[data]] table")

    def as_dict(self) -> dict[str, Any]:
        """Return plain tables, as in the TOML file."""
        return asdict(self)


def read_recipe(path: str | Path, changes: Sequence[str] = (), folders: Mapping[str, str] | None = None) -> Recipe:
    """Read and check a recipe; see `weft.training.recipes.read_recipe` for `changes` and `folders`."""
    return build_recipe(read_tables(path, changes, folders))


def build_recipe(tables: Mapping[str, Any]) -> Recipe:
    """Turn tables into a checked `Recipe`.

    Examples
    --------
    >>> build_recipe({"identifiers": {"method": "seal"}, "training": {"output": "out", "step": 3}})
    Traceback (most recent call last):
    ...
    weft.training.tables.RecipeError: unknown key training.step; did you mean 'steps'?
    """
    reject_unknown(tables, Recipe)
    return Recipe(
        settings(tables, "identifiers", IdentifierSettings),
        settings(tables, "training", TrainingSettings),
        list_of(tables, "data", DataSettings),
        settings(tables, "model", ModelSettings),
        settings(tables, "examples", ExampleSettings),
        str(tables.get("notes", "")),
    )
