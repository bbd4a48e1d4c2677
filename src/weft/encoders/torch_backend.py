"""The torch back end: the modules of a sentence-transformers `MultiVectorEncoder`, on weft's own tokens.

Tokenising, scoring masks and salience gates are the same code for both back ends (`text`, `encoder`); here the modules
run from token ids to normalised vectors. `describe` reads from a model how its texts are to be made into tokens.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

import torch
from sentence_transformers import MultiVectorEncoder
from sentence_transformers.base.modules import Transformer
from sentence_transformers.multi_vector_encoder.modules import BaseTokenPooling, MultiVectorMask
from tokenizers import Tokenizer

from weft.encoders.backend import DOCUMENT, QUERY, Batch, Batches, Output
from weft.encoders.salience import Salience
from weft.encoders.settings import Expansion, Settings, Side
from weft.encoders.whole_text import WholeTextProjection
from weft.errors import CheckpointError

UNBOUNDED_LENGTH = 512
"""The maximum number of tokens of a text if neither the checkpoint nor its tokenizer names one (T5)."""

WHOLE_TEXT = "(whole text)"
"""The label of a vector that stands for the text as a whole."""

_DOCUMENT_PROMPTS = ("document", "passage", "corpus")
_threads_lock = Lock()


class TorchBackend:
    """Runs a `MultiVectorEncoder`."""

    kind = "torch"
    batched = True

    def __init__(self, model: MultiVectorEncoder, settings: Settings) -> None:
        self.model = model.eval()
        self.settings = settings

    def run(self, batches: Batches, task: str, threads: int) -> Iterator[Output]:
        """Yield the output of each batch."""
        for batch in batches:
            with _torch_threads(threads):
                output = self._output(batch, task)
            yield output

    def _output(self, batch: Batch, task: str) -> Output:
        device = self.model.device
        with torch.inference_mode():
            vectors, scores = forward(
                self.model, torch.from_numpy(batch.ids).to(device), torch.from_numpy(batch.attention).to(device), task
            )
        return Output(vectors.float().cpu().numpy(), None if scores is None else scores.float().cpu().numpy())

    def fingerprint(self) -> str:
        """Hash the vocabulary, the prefixes and the weights."""
        digest = hashlib.sha256()
        vocabulary = self.model.tokenizer.get_vocab()
        prefixes = [self.settings.query.prefix, self.settings.document.prefix]
        digest.update(json.dumps([prefixes, sorted(vocabulary.items())], ensure_ascii=True).encode())
        for name, tensor in sorted(self.model.state_dict().items()):
            if ".pooler." in name:  # not used, and random where a checkpoint does not have one
                continue
            digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
            digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
        return digest.hexdigest()[:32]


def forward(
    model: MultiVectorEncoder, ids: torch.Tensor, attention: torch.Tensor, task: str | None
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Run the modules: vectors (B, T, dim), and salience scores before the gate (B, T) where there is a head for them.

    Without a task the scores are those of the query head and of the document head, (B, T, 2). The scoring mask is not
    applied: values at masked positions mean nothing.
    """
    features: dict[str, Any] = {"input_ids": ids, "attention_mask": attention}
    scores = None
    for module in model:
        if isinstance(module, Salience):
            hidden = features["token_embeddings"]
            both = [module.scores(hidden, side) for side in ((QUERY, DOCUMENT) if task is None else (task,))]
            scores = torch.stack(both, dim=-1) if task is None else both[0]
        elif not isinstance(module, MultiVectorMask):
            wanted = {"task": task or DOCUMENT} if "task" in getattr(module, "forward_kwargs", ()) else {}
            features = module(features, **wanted)
    return features["token_embeddings"], scores


def prompt_of(model: MultiVectorEncoder, task: str) -> str:
    """Return what stands before the texts of a side: a marker such as ``"[Q] "``, or nothing."""
    names = (QUERY,) if task == QUERY else _DOCUMENT_PROMPTS
    return next((model.prompts[name] or "" for name in names if name in model.prompts), "")


def describe(model: MultiVectorEncoder, name: str, provenance: dict[str, Any] | None = None) -> Settings:
    """Read from a model's modules how it reads texts."""
    transformer = model[0]
    if not isinstance(transformer, Transformer):
        raise CheckpointError(f"{name} begins with a {type(transformer).__name__} module instead of a Transformer")
    for module in model:
        if isinstance(module, BaseTokenPooling):
            raise CheckpointError(f"{name} pools tokens ({type(module).__name__}), which weft does not do")
    tokenizer = model.tokenizer
    if not getattr(tokenizer, "is_fast", False):
        raise CheckpointError(f"{name} has no fast tokenizer (tokenizer.json), which spans and the light form need")
    dim = model.get_embedding_dimension()
    if dim is None:
        raise CheckpointError(f"{name} does not tell the dimension of its vectors")
    limit = tokenizer.model_max_length if tokenizer.model_max_length < 10**6 else None
    positions = getattr(transformer.config, "max_position_embeddings", None)
    most = min((n for n in (limit, positions) if n is not None and n > 0), default=None)
    modules = list(model)
    heads = [module for module in modules if isinstance(module, Salience)]
    before = modules[: modules.index(heads[0])] if heads else []
    sides = {}
    for task in (QUERY, DOCUMENT):
        skip_ids, keep_ids = _masks(model, task)
        sides[task] = Side(
            length=(transformer.query_length if task == QUERY else transformer.document_length)
            or most
            or UNBOUNDED_LENGTH,
            prefix=prompt_of(model, task),
            expansion=_expansion(transformer) if task == QUERY else None,
            skip_ids=skip_ids,
            keep_ids=keep_ids,
            gate=str(heads[0].gate(task)) if heads else None,
            gate_scored=any(isinstance(module, MultiVectorMask) for module in before),
        )
    return Settings(
        name=name,
        dim=int(dim),
        query=sides[QUERY],
        document=sides[DOCUMENT],
        pad_id=tokenizer.pad_token_id if tokenizer.pad_token_id is not None else 0,
        max_length=most,
        provenance=provenance or {},
        salience_weighs=heads[0].weights if heads else True,
        labels=_labels(model),
    )


def _labels(model: MultiVectorEncoder) -> dict[str, str]:
    """Return what the first and the last token of a text are called where they stand for all of it."""
    if not any(isinstance(module, WholeTextProjection) for module in model):
        return {}
    ends = (model.tokenizer.cls_token, model.tokenizer.sep_token)
    return {token: WHOLE_TEXT for token in ends if token is not None}


def plain_tokenizer(model: MultiVectorEncoder) -> Tokenizer:
    """Return a copy of the model's tokenizer that neither cuts nor fills up."""
    tokenizer = Tokenizer.from_str(model.tokenizer.backend_tokenizer.to_str())
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _expansion(transformer: Transformer) -> Expansion | None:
    given = transformer.query_expansion
    if given is None:
        return None
    tokenizer: Any = transformer.tokenizer
    if given.get("token") is not None:
        token_id = tokenizer.convert_tokens_to_ids(given["token"])
    else:
        token_id = tokenizer.mask_token_id if tokenizer.mask_token_id is not None else tokenizer.eos_token_id
    if token_id is None:
        raise CheckpointError(
            "query expansion needs a token to fill up with: this tokenizer has no mask and no eos token"
        )
    return Expansion(given["length"], int(token_id), given.get("attend", False), given["strategy"])


def _masks(model: MultiVectorEncoder, task: str) -> tuple[tuple[int, ...], tuple[int, ...] | None]:
    """Return the tokens to leave out of scoring, and the only ones to keep."""
    skip: set[int] = set()
    keep: set[int] | None = None
    unknown = model.tokenizer.unk_token_id
    for module in model:
        if not isinstance(module, MultiVectorMask):
            continue
        if task in module.skiplist_tasks:
            found = {word: model.tokenizer.convert_tokens_to_ids(word) for word in module.skiplist_words}
            # A word that the vocabulary does not have must not take every unknown token with it.
            skip |= {
                i for word, i in found.items() if i is not None and (i != unknown or word == model.tokenizer.unk_token)
            }
        if task != QUERY and module.keep_only_token_ids:
            chosen = set(module.keep_only_token_ids)
            keep = chosen if keep is None else keep & chosen
    return tuple(sorted(skip)), None if keep is None else tuple(sorted(keep))


@contextmanager
def _torch_threads(threads: int) -> Iterator[None]:
    """Have torch use that many threads. The setting is the process's, so callers take turns."""
    with _threads_lock:
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            yield
        finally:
            torch.set_num_threads(before)
