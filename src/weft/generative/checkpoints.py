"""Where models come from: T5 checkpoints, or small models from scratch with a tokenizer of the corpus."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import AutoConfig, AutoTokenizer, PreTrainedTokenizerFast, T5Config, T5ForConditionalGeneration

from weft.errors import CheckpointError, DataError, invalid

SPECIAL = ("<pad>", "</s>", "<unk>")
"""T5's own, with T5's own ids 0, 1, 2."""

SIZES: dict[str, dict[str, int]] = {
    "tiny": {"d_model": 128, "num_layers": 2, "num_heads": 4, "d_kv": 32, "d_ff": 256},
    "mini": {"d_model": 256, "num_layers": 4, "num_heads": 4, "d_kv": 64, "d_ff": 512},
}
"""Shapes of models from scratch, the same number of layers in encoder and decoder."""


def load_t5(path: str | Path) -> T5ForConditionalGeneration:
    """Load a T5 from a folder or a hub name.

    T5 v1.1 and flan-t5 have a head of their own. transformers 5 ties every T5's head to its embeddings unless told not
    to, which would silently replace the head. Checkpoints with a head do not scale the decoder's output. When told not
    to tie, transformers also unties encoder and decoder from the embeddings and draws at random what a checkpoint
    stores only once (``shared.weight``); they are tied again here.
    """
    _check_there(path)
    try:
        config = AutoConfig.from_pretrained(path)
        if not isinstance(config, T5Config):
            raise CheckpointError(f"{str(path)!r} is a {config.model_type}; generative retrieval here reads T5 models")
        config.tie_word_embeddings = bool(config.scale_decoder_outputs)
        config.use_cache = True
        loaded: Any = T5ForConditionalGeneration.from_pretrained(
            path, config=config, dtype=torch.float32, output_loading_info=True
        )
    except (OSError, ValueError, RuntimeError) as error:
        raise CheckpointError(f"no T5 in {str(path)!r}: {' '.join(str(error).split())[:300]}") from None
    t5: T5ForConditionalGeneration = loaded[0]
    missing = set(loaded[1]["missing_keys"])
    for stack in ("encoder", "decoder"):
        name, part = f"{stack}.embed_tokens.weight", getattr(t5, stack)
        if name in missing or torch.equal(part.embed_tokens.weight, t5.shared.weight):
            part.set_input_embeddings(t5.shared)
        missing.discard(name)
    if "lm_head.weight" in missing:
        t5.lm_head.weight = t5.shared.weight
        missing.discard("lm_head.weight")
    if missing:
        raise CheckpointError(f"{str(path)!r} lacks weights of a T5: {', '.join(sorted(missing)[:3])}")
    return t5


def _check_there(path: str | Path) -> None:
    """Refuse a folder that is not there, which transformers would look for on the hub."""
    text = str(path)
    if (isinstance(path, Path) or text.startswith(("/", ".", "~"))) and not Path(text).expanduser().is_dir():
        raise CheckpointError(f"no such model folder: {text!r}")


def load_tokenizer(path: str | Path) -> Any:
    """Load the tokenizer of a checkpoint; it must be a fast one, and its special tokens T5's."""
    _check_there(path)
    try:
        if (Path(path) / "tokenizer.json").is_file():
            # Read directly: AutoTokenizer would use T5's own normalisation.
            tokenizer: Any = PreTrainedTokenizerFast.from_pretrained(path)
        else:
            tokenizer = AutoTokenizer.from_pretrained(path)
    except (OSError, ValueError, ImportError) as error:
        raise CheckpointError(f"no tokenizer in {str(path)!r}: {' '.join(str(error).split())[:300]}") from None
    return checked_tokenizer(tokenizer, str(path))


def checked_tokenizer(tokenizer: Any, where: str) -> Any:
    """Refuse a tokenizer without character offsets or with other special tokens than T5's."""
    if not getattr(tokenizer, "is_fast", False):
        raise CheckpointError(f"the tokenizer of {where!r} is not a fast one (tokenizer.json)")
    if (tokenizer.pad_token_id, tokenizer.eos_token_id) != (0, 1):
        raise CheckpointError(f"the tokenizer of {where!r} must have T5's ids: 0 for padding and 1 for the end")
    # Documents longer than the encoder reads are tokenised on purpose, for their n-grams.
    tokenizer.model_max_length = 10**9
    tokenizer.deprecation_warnings["sequence-length-is-longer-than-the-specified-maximum"] = True
    return tokenizer


def new_t5(vocabulary: int, size: str | dict[str, int] = "tiny", *, dropout: float = 0.1, seed: int = 0) -> Any:
    """Make a T5 (v1.1's gated feed-forward, tied embeddings) with random weights.

    Examples
    --------
    >>> model = new_t5(50, {"d_model": 8, "num_layers": 1, "num_heads": 2, "d_kv": 4, "d_ff": 16})
    >>> model.shared.weight.shape
    torch.Size([50, 8])
    """
    if isinstance(size, str) and size not in SIZES:
        raise invalid("size", "new_t5", f"one of {', '.join(SIZES)}", size)
    keys: dict[str, Any] = {
        **(SIZES[size] if isinstance(size, str) else size),
        "vocab_size": vocabulary,
        "feed_forward_proj": "gated-gelu",
        "dropout_rate": dropout,
        "decoder_start_token_id": 0,
        "pad_token_id": 0,
        "eos_token_id": 1,
    }
    config = T5Config(**keys)
    state = torch.random.get_rng_state()
    torch.manual_seed(seed)
    model = T5ForConditionalGeneration(config)
    torch.random.set_rng_state(state)
    return model


def train_tokenizer(
    texts: Iterable[str], vocabulary: int = 8000, *, kind: str = "bpe", lowercase: bool = True
) -> PreTrainedTokenizerFast:
    """Train a tokenizer on texts: BPE or Unigram over words, punctuation apart, digits apart.

    Words are split at spaces first, so that a word has the same tokens wherever a span begins.
    """
    if kind not in ("bpe", "unigram"):
        raise invalid("kind", "train_tokenizer", "'bpe' or 'unigram'", kind)
    if vocabulary < 16:
        raise invalid("vocabulary", "train_tokenizer", "at least 16", vocabulary)
    texts = [text for text in texts if text.strip()]
    if not texts:
        raise DataError("no text to train a tokenizer on")
    model: Any = models.BPE(unk_token=SPECIAL[2]) if kind == "bpe" else models.Unigram()
    tokenizer = Tokenizer(model)
    steps: list[Any] = [normalizers.NFKC(), *([normalizers.Lowercase()] if lowercase else [])]
    tokenizer.normalizer = normalizers.Sequence(steps)
    splits: list[Any] = [pre_tokenizers.Metaspace(), pre_tokenizers.Punctuation("isolated")]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(splits)
    tokenizer.decoder = decoders.Metaspace()
    special = [AddedToken(token, special=True) for token in SPECIAL]
    trainer: Any
    if kind == "bpe":
        trainer = trainers.BpeTrainer(vocab_size=vocabulary, special_tokens=special, show_progress=False)
    else:
        trainer = trainers.UnigramTrainer(
            vocab_size=vocabulary, special_tokens=special, unk_token=SPECIAL[2], show_progress=False
        )
    tokenizer.train_from_iterator(texts, trainer)
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token=SPECIAL[0], eos_token=SPECIAL[1], unk_token=SPECIAL[2]
    )
    checked: PreTrainedTokenizerFast = checked_tokenizer(wrapped, "the corpus")
    return checked


def chosen_device(name: str | None = None) -> torch.device:
    """Return the device of a name, or the accelerator if there is one; refuse one that is not there.

    Examples
    --------
    >>> chosen_device("cpu")
    device(type='cpu')
    """
    if name is None:
        found = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
        return found or torch.device("cpu")
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise invalid("device", "weft", "a device of torch that is there", name) from error
    if device.type == "meta":
        raise invalid("device", "weft", "a device of torch that computes", name)
    return device


def quiet_transformers() -> None:
    """Keep transformers' own progress bars and notes off stderr."""
    from transformers.utils import logging as theirs

    theirs.set_verbosity_error()
    theirs.disable_progress_bar()
    logging.getLogger("transformers").setLevel(logging.ERROR)
