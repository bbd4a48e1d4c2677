"""A smaller vocabulary for a multilingual model: the pieces that texts use, and every single character.

Most of the quarter of a million pieces of a multilingual vocabulary are words that a text uses once in a hundred
thousand tokens, and they make up most of the model's size. A unigram tokenizer (SentencePiece's) can do without them: a
word whose piece is gone is read as its best smaller pieces. Pieces of one character always stay, so no text becomes
unknown, and a text whose pieces all stay is read as before.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from weft.checks import check_count
from weft.errors import CheckpointError, invalid, missing_extra

if TYPE_CHECKING:
    from tokenizers import Tokenizer

SPACE = "\u2581"
"""The character for a space in pieces."""


def essential(tokenizer: Tokenizer) -> set[int]:
    """Return the ids that `prune_tokenizer` always keeps: special tokens, and pieces of one character.

    A space before the character does not count.
    """
    parts = _parts(tokenizer)
    pieces = [piece for piece, _ in parts["model"]["vocab"]]
    single = {i for i, piece in enumerate(pieces) if len(piece.removeprefix(SPACE)) <= 1}
    return single | {one["id"] for one in parts["added_tokens"]} | {parts["model"]["unk_id"]}


def most_frequent(tokenizer: Tokenizer, size: int, counts: Mapping[int, float] | None = None) -> set[int]:
    """Choose `size` pieces: the essential ones, then the most frequent.

    Parameters
    ----------
    tokenizer : Tokenizer
        A unigram tokenizer.
    size : int
        How many pieces to keep; at least the essential ones are kept.
    counts : mapping of int to float, optional
        How often each id was used by texts; they are divided by their sum. Ids that are used equally often, or not at
        all, follow in the order of the tokenizer's own probabilities.

    Returns
    -------
    set of int
        Ids to keep.
    """
    check_count(size, "size", "most_frequent")
    vocabulary = _parts(tokenizer)["model"]["vocab"]
    used = np.zeros(len(vocabulary))
    for token, count in (counts or {}).items():
        if not 0 <= token < len(vocabulary) or not 0 <= count < np.inf:
            raise invalid("counts", "most_frequent", "ids of the vocabulary with finite counts", {token: count})
        used[token] = count
    kept = essential(tokenizer)
    order = np.lexsort((-np.array([score for _, score in vocabulary]), -used))
    rest = [int(token) for token in order if int(token) not in kept]
    return kept | set(rest[: max(0, size - len(kept))])


def prune_tokenizer(tokenizer: Tokenizer, keep: Collection[int]) -> tuple[Tokenizer, NDArray[np.int64]]:
    """Return a tokenizer that has only some of the pieces, and the former id of each of its ids.

    Parameters
    ----------
    tokenizer : Tokenizer
        A unigram tokenizer; it is left as it is.
    keep : collection of int
        Ids to keep beside the `essential` ones.

    Returns
    -------
    tokenizer : Tokenizer
    ids : array of shape (pieces,), int64
        ``ids[new]`` is the former id, ascending: rows of an embedding table are taken by it.

    Examples
    --------
    >>> from tokenizers import Tokenizer, models
    >>> pieces = [("<unk>", 0.0), ("a", -2.0), ("b", -2.0), ("ab", -1.0), ("abb", -1.5), ("abab", -1.2)]
    >>> whole = Tokenizer(models.Unigram(pieces, unk_id=0))
    >>> pruned, ids = prune_tokenizer(whole, [3])
    >>> pruned.encode("abab").tokens, ids.tolist()
    (['ab', 'ab'], [0, 1, 2, 3])
    """
    parts = _parts(tokenizer)
    vocabulary = parts["model"]["vocab"]
    wrong = next((i for i in keep if isinstance(i, bool) or not 0 <= i < len(vocabulary)), None)
    if wrong is not None:
        raise invalid("keep", "prune_tokenizer", f"ids below {len(vocabulary)}", wrong)
    beyond = [one["content"] for one in parts["added_tokens"] if one["id"] >= len(vocabulary)]
    if beyond:
        raise CheckpointError(f"the tokenizer has pieces outside its vocabulary, such as {beyond[0]!r}: not prunable")
    ids = np.array(sorted(essential(tokenizer) | set(keep)), dtype=np.int64)
    new = {int(old): i for i, old in enumerate(ids)}
    parts["model"] |= {"vocab": [vocabulary[i] for i in ids], "unk_id": new[parts["model"]["unk_id"]]}
    for one in parts["added_tokens"]:
        one["id"] = new[one["id"]]
    _renumber(parts.get("post_processor"), new)
    if isinstance(parts.get("padding"), dict):
        parts["padding"]["pad_id"] = new[parts["padding"]["pad_id"]]
    return type(tokenizer).from_str(json.dumps(parts, ensure_ascii=False)), ids


def prune_checkpoint(source: str | Path, target: str | Path, keep: Collection[int]) -> NDArray[np.int64]:
    """Write a Hugging Face encoder with a smaller vocabulary; return the former ids.

    Parameters
    ----------
    source : str or Path
        The folder of a plain Hugging Face encoder with a unigram tokenizer.
    target : str or Path
        A new or empty folder.
    keep : collection of int
        Ids to keep beside the `essential` ones.

    Returns
    -------
    array of shape (pieces,), int64
    """
    try:
        import torch
        from transformers import AutoModel
    except ImportError as error:
        raise missing_extra(error.name or "torch", "torch", "Pruning a vocabulary") from None
    from weft.encoders.light import read_tokenizer

    source, target = Path(source), Path(target)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise invalid("target", "prune_checkpoint", "an empty or new folder", str(target))
    tokenizer, ids = prune_tokenizer(read_tokenizer(source / "tokenizer.json"), keep)
    model = AutoModel.from_pretrained(source)
    table = model.get_input_embeddings().weight
    if len(table) <= ids[-1]:
        raise CheckpointError(f"{source} has {len(table):,} embeddings, and a token with the id {ids[-1]:,}")
    new = {int(old): i for i, old in enumerate(ids)}
    with torch.no_grad():
        rows = table[torch.from_numpy(ids)].clone()
        model.resize_token_embeddings(len(ids), mean_resizing=False)
        model.get_input_embeddings().weight.copy_(rows)
    for name in ("pad", "bos", "eos", "cls", "sep", "mask", "decoder_start"):
        former = getattr(model.config, f"{name}_token_id", None)
        if former is not None:
            setattr(model.config, f"{name}_token_id", new.get(former))
    model.save_pretrained(target)
    tokenizer.save(str(target / "tokenizer.json"))
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        if (source / name).is_file():
            (target / name).write_bytes((source / name).read_bytes())
    return ids


def _parts(tokenizer: Tokenizer) -> dict[str, Any]:
    parts: dict[str, Any] = json.loads(tokenizer.to_str())
    kind = parts["model"].get("type")
    if kind != "Unigram":
        raise CheckpointError(f"only unigram vocabularies can be pruned; this tokenizer's is {kind}")
    if parts["model"].get("byte_fallback"):
        raise CheckpointError("a unigram vocabulary with byte fallback cannot be pruned")
    if parts["model"].get("unk_id") is None:
        raise CheckpointError("a unigram vocabulary without an unknown token cannot be pruned")
    return parts


def _renumber(part: Any, new: Mapping[int, int]) -> None:
    """Renumber the special tokens of a post-processor, or of a sequence of them, in place."""
    if not isinstance(part, dict):
        return
    for one in part.get("processors", ()):
        _renumber(one, new)
    if part.get("type") == "TemplateProcessing":
        for one in part["special_tokens"].values():
            one["ids"] = [new[i] for i in one["ids"]]
    for name in ("sep", "cls"):  # [piece, id], of BERT's and RoBERTa's
        if name in part:
            part[name] = [part[name][0], new[part[name][1]]]
