"""Encoder-decoders for generative retrieval: a T5 whose decoder may have another vocabulary than its encoder.

The encoder reads the query. The decoder writes an identifier, in one of three vocabularies:

- T5's own tokens (SEAL's n-grams, GENRE's titles);
- a small table of digits by position (DSI, with or without PAWA);
- a table of contextual token vectors (NP-decoding), which is both the decoder's input and its head.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import T5ForConditionalGeneration

from weft.errors import CheckpointError, invalid
from weft.generative.checkpoints import load_t5, load_tokenizer
from weft.generative.pawa import Pawa

EOS = 1
"""The end of an identifier, in every vocabulary here (T5's own has it there too)."""
START = 0
"""What the decoder begins with: T5's padding token."""
IGNORED = -100
SETTINGS = "weft_generative.json"
EXTRA = "decoder_vocabulary.safetensors"


@dataclass(frozen=True)
class Encoded:
    """Queries after the encoder: hidden states (B, N, d) and the mask of their tokens (B, N)."""

    hidden: Tensor
    mask: Tensor


class GenerativeModel(nn.Module):
    """A T5 with its tokenizer and the vocabulary its decoder writes in.

    Parameters
    ----------
    t5 : T5ForConditionalGeneration
    tokenizer : a fast tokenizer of transformers
    table : (V′, d) tensor, optional
        The decoder's own vocabulary: input embedding and head. Without it the decoder writes T5's tokens.
    frozen_table : bool
        The table is data, not a parameter (NP-decoding).
    token_of : array of int64, shape (V′,), optional
        The token each row of the table stands for, -1 for none.
    pawa : Pawa, optional
        Makes the head depend on the prefix (eq. 17).
    settings : dict, optional
        What the retriever needs: the method and its identifiers. Kept beside the weights.
    """

    table: nn.Embedding | None
    token_of: Tensor | None
    """NP-decoding: the token of T5's vocabulary each row of the table belongs to, -1 for none."""
    decodes_in_bytes: bool = False
    """Whether `weft.generative.decoder` rounds the decoder's weights and states to bytes."""

    def __init__(
        self,
        t5: T5ForConditionalGeneration,
        tokenizer: Any,
        *,
        table: Tensor | None = None,
        frozen_table: bool = False,
        token_of: NDArray[np.int64] | None = None,
        pawa: Pawa | None = None,
        settings: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        if pawa is not None and table is None:
            raise invalid("pawa", "GenerativeModel", "used with a decoder vocabulary of its own", "T5's vocabulary")
        self.t5 = t5
        self.tokenizer = tokenizer
        self.pawa = pawa
        self.settings = dict(settings or {})
        self.table = None
        self.register_buffer("token_of", None)
        if table is not None:
            self.set_table(table, frozen_table, token_of)

    def set_table(self, table: Tensor, frozen: bool = False, token_of: NDArray[np.int64] | None = None) -> None:
        """Give the decoder a vocabulary of its own, (V′, d), and say which token each row stands for, if any."""
        if table.ndim != 2 or table.shape[1] != self.dim:
            raise invalid("table", "GenerativeModel", f"of shape (any, {self.dim})", tuple(table.shape))
        self.table = nn.Embedding.from_pretrained(table.detach().clone().to(self.device), freeze=frozen)
        self.token_of = None if token_of is None else torch.as_tensor(token_of)

    @property
    def dim(self) -> int:
        """The width d of hidden states."""
        return int(self.t5.config.d_model)

    @property
    def vocabulary(self) -> int:
        """How many tokens the decoder chooses from."""
        return int(self.t5.config.vocab_size if self.table is None else self.table.num_embeddings)

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.t5.shared.weight.device

    # -- the forward pass --------------------------------------------------------------------------

    def token_ids(self, texts: Sequence[str], length: int, *, end: bool = True) -> list[list[int]]:
        """Tokenise texts, cut to `length` tokens, with the end token of T5 after each."""
        found: list[list[int]] = self.tokenizer(list(texts), add_special_tokens=False)["input_ids"]
        return [[*ids[: length - 1], EOS] if end else ids[:length] for ids in found]

    def encode(self, ids: Sequence[Sequence[int]]) -> Encoded:
        """Run the encoder over token ids of unequal lengths."""
        batch, mask = (tensor.to(self.device) for tensor in padded(ids, START))
        hidden = self.t5.encoder(input_ids=batch, attention_mask=mask).last_hidden_state
        return Encoded(hidden, mask)

    def embed(self, tokens: Tensor) -> Tensor:
        """Return the decoder's input vectors for its own tokens, (…, d); `START` is T5's padding token everywhere."""
        if self.table is None:
            embedded: Tensor = self.t5.shared(tokens)
            return embedded
        start = self.t5.shared.weight[START]
        return torch.where((tokens == START).unsqueeze(-1), start, self.table(tokens))

    def logits(self, hidden: Tensor, prefix: Tensor) -> Tensor:
        """Return the logits of the next token.

        Parameters
        ----------
        hidden : (B, T, d)
            The decoder's states after its last layer, for the last T positions.
        prefix : (B, L)
            What the decoder has read so far, L >= T; only PAWA looks at it.
        """
        if self.table is None:
            scaled = hidden * self.dim**-0.5 if self.t5.config.scale_decoder_outputs else hidden
            found: Tensor = self.t5.lm_head(scaled)
            return found
        scaled = hidden * self.dim**-0.5
        if self.pawa is not None:
            return self.pawa(scaled, self.embed(prefix), self.table.weight)
        return scaled @ self.table.weight.T

    def forward(self, ids: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> Tensor:
        """Return the mean cross-entropy of the targets' tokens, teacher-forced (eq. 10)."""
        encoded = self.encode(ids)
        labels, mask = (tensor.to(self.device) for tensor in padded(targets, IGNORED))
        known = labels.masked_fill(labels == IGNORED, START)
        prefix = torch.cat([torch.full_like(known[:, :1], START), known[:, :-1]], 1)  # right-shifted
        # Padding is on the right and attention causal, so no mask is needed on the decoder's side.
        hidden = self.t5.decoder(
            inputs_embeds=self.embed(prefix),
            encoder_hidden_states=encoded.hidden,
            encoder_attention_mask=encoded.mask,
            use_cache=False,
        ).last_hidden_state
        logits = self.logits(hidden, prefix)
        return nn.functional.cross_entropy(logits[mask.bool()], labels[mask.bool()])

    # -- on disk -----------------------------------------------------------------------------------

    def save(self, folder: str | Path) -> None:
        """Write a folder: the T5 and its tokenizer as transformers does, and weft's own files beside them."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        self.t5.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)
        settings = dict(self.settings)
        extra = {f"pawa.{name}": value for name, value in (self.pawa.state_dict() if self.pawa else {}).items()}
        if self.pawa is not None:
            settings["pawa"] = self.pawa.settings
        if self.table is not None:
            extra["table"] = self.table.weight.detach()
            settings["frozen_table"] = not self.table.weight.requires_grad
        if self.token_of is not None:
            extra["token_of"] = self.token_of
        if extra:
            save_file({name: value.contiguous() for name, value in extra.items()}, folder / EXTRA)
        (folder / SETTINGS).write_text(json.dumps(settings, indent=1, ensure_ascii=False), encoding="utf-8")

    @classmethod
    def load(cls, folder: str | Path) -> GenerativeModel:
        """Open a folder written by `save`."""
        folder = Path(folder)
        settings = read_settings(folder)
        if cls is GenerativeModel and settings.get("method") == "multi-vector":
            raise CheckpointError(f"{str(folder)!r} is a multi-vector model: it decodes nothing (weft index --model)")
        t5, tokenizer = load_t5(folder), load_tokenizer(folder)
        shape = settings.pop("pawa", None)
        frozen = settings.pop("frozen_table", None)
        if frozen is None:
            return cls(t5, tokenizer, settings=settings).eval()
        try:
            extra = load_file(folder / EXTRA)
            table, token_of = extra.pop("table"), extra.pop("token_of", None)
            pawa = None if shape is None else Pawa(**shape)
            if pawa is not None:
                pawa.load_state_dict({name.removeprefix("pawa."): value for name, value in extra.items()})
        except Exception as error:
            raise CheckpointError(f"{str(folder / EXTRA)!r} cannot be read: {' '.join(str(error).split())}") from None
        made = cls(t5, tokenizer, table=table, frozen_table=frozen, pawa=pawa, settings=settings).eval()
        made.token_of = token_of
        return made


def read_settings(folder: Path) -> dict[str, Any]:
    """Return the settings in a model's folder: method, lengths and others."""
    try:
        found: dict[str, Any] = json.loads((folder / SETTINGS).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(f"no generative model in {str(folder)!r}: it has no {SETTINGS}") from None
    except ValueError as error:
        raise CheckpointError(f"{str(folder / SETTINGS)!r} is not JSON: {error}") from None
    return found


def padded(rows: Sequence[Sequence[int]], value: int) -> tuple[Tensor, Tensor]:
    """Return rows as one (B, longest) tensor, padded on the right, and its mask.

    Examples
    --------
    >>> padded([[5, 6], [7]], 0)[0].tolist()
    [[5, 6], [7, 0]]
    """
    longest = max(map(len, rows))
    batch = torch.full((len(rows), longest), value, dtype=torch.int64)
    mask = torch.zeros((len(rows), longest), dtype=torch.int64)
    for number, row in enumerate(rows):
        batch[number, : len(row)] = torch.as_tensor(row)
        mask[number, : len(row)] = 1
    return batch, mask
