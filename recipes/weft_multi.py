"""Make weft-multi: multilingual-e5-small with a projection of its token vectors.

    python recipes/multilingual_e5_small.py GRAPH TOKENIZER multilingual-e5-small
    python recipes/weft_multi.py base multilingual-e5-small e5-140k     # 140,000 of 250,002 pieces stay
    weft export e5-140k e5-140k-light --embedding-bits 4 --no-compare
    python recipes/weft_multi.py head e5-140k-light --data COLLECTIONS --lists LISTS --output head.pt
    python recipes/weft_multi.py join e5-140k head.pt weft-multi-checkpoint
    weft export weft-multi-checkpoint weft-multi --name weft-multi --embedding-bits 4 --no-compare
    python recipes/weft_multi.py finish weft-multi

The projection is a PCA of texts in 17 languages, without judgements: descriptions of Debian's packages (LISTS is a
folder of apt's Translation files) and English documents. ``head … --train`` trains it further on English pairs alone;
on dev that did not help, and the shipped model is not trained. The data are what may be used freely: MedQuAD, abstracts
of the ACL Anthology from 2016 on, Debian's packages, SciFact's training split. SQuAD is not among them: XQuAD, on which
the model is measured, is made of it.
"""

from __future__ import annotations

import argparse
import json
import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from weft import Encoder, TokenVectors
from weft.encoders.whole_text import WholeTextProjection
from weft.sources.beir import Collection
from weft.training.projection import CENTRE, Moments, begin_whole_text

PIECES = 140_000
DIM = 256
QUERY, DOCUMENT = "query: ", "passage: "
"""What stands before the texts, as in the training of multilingual-e5-small."""
QUERY_LENGTH, DOCUMENT_LENGTH = 64, 128
"""Tokens of a text in training. The model reads 128 of a query and 256 of a document."""
DATA: Sequence[tuple[str, int, str]] = (
    ("medquad", 700, ""),
    ("acl-titles", 600, "^(201[6-9]|202[0-9])[.]|^[A-Z]1[6-9]-"),  # CC BY 4.0 from 2016 on
    ("debian-packages", 600, ""),
    ("scifact", 300, ""),
)
"""Collections, pairs of each, and which documents may be used."""
MANY = ("de", "fr", "it", "es", "pl", "cs", "ru", "uk", "ja", "ko", "zh_CN", "pt_BR", "da", "sk", "sr", "nl")
"""Languages of Debian's descriptions, and how many of each are taken; the first 300 are for dev."""
EACH, KEPT_FOR_DEV, ENGLISH = 40, 300, 560
STEPS, BATCH, RATE, SCALE, SEED = 200, 32, 3e-4, 40.0, 17
LANGUAGES = (  # noqa: SIM905
    "af am ar as az be bg bn bs ca cs cy da de el en eo es et eu fa fi fr ga gl gu he hi hr hu hy id is it ja ka kk km "
    "kn ko ky lo lt lv mk ml mn mr ms my ne nl no or pa pl ps pt ro ru sa sd si sk sl so sq sr sv sw ta te th tr ug uk "
    "ur uz vi xh yi zh"
).split()
"""Languages of the base, codes of ISO 639-1."""


def pairs(data: Path) -> list[tuple[str, str]]:
    """Return (query, document), each document once."""
    found = []
    for name, count, allowed in DATA:
        collection = Collection.read(data / name, "train")
        texts = {document.id: document.full_text for document in collection.documents}
        first = {q: next(iter(grades)) for q, grades in collection.relevant().items()}
        names = sorted(q for q, d in first.items() if re.search(allowed, d))
        random.Random(3).shuffle(names)
        seen: set[str] = set()
        for query in names:
            if first[query] not in seen and len(seen) < count:
                seen.add(first[query])
                found.append((collection.queries[query], texts[first[query]]))
    return found


def descriptions(lists: Path, language: str) -> list[tuple[str, str]]:
    """Return (synopsis, description) of Debian's packages in a language, shuffled, no description twice."""
    (path,) = lists.glob(f"*_main_i18n_Translation-{language.replace('_', '%5f')}")
    found: dict[str, str] = {}
    for block in path.read_text(encoding="utf-8").split("\n\n"):
        match = re.search(r"^Description-\w+: ?(.*)\n((?: .*\n?)+)", block, re.MULTILINE)
        if match is None or "<trans>" in block:
            continue
        body = " ".join(line.strip() for line in match[2].split("\n") if line.strip() not in ("", "."))
        if len(body) > 80 and len(match[1]) > 8:
            found.setdefault(match[1].strip(), body)
    rows = sorted(found.items())
    random.Random(1).shuffle(rows)
    once = {body[:60]: (synopsis, body) for synopsis, body in reversed(rows)}
    return list(reversed(once.values()))


def begin(states: TokenVectors) -> WholeTextProjection:
    """Return the untrained projection: PCAs of tokens and of texts' means."""
    tokens, means = Moments.none(states.dim), Moments.none(states.dim)
    for begun in range(0, len(states), 256):
        part = [torch.from_numpy(states[i].astype(np.float32)) for i in range(begun, min(begun + 256, len(states)))]
        tokens.add(torch.cat(part))
        means.add(torch.stack([one.mean(0) for one in part]))
    projection = WholeTextProjection(states.dim, DIM)
    projection.token.weight.data, projection.token.bias.data = tokens.directions(DIM, CENTRE)
    begin_whole_text(projection, means)
    return projection


def apply(projection: WholeTextProjection, states: TokenVectors, chosen: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Return unit vectors (B, T, dim) of the chosen texts, and which of them are real (B, T)."""
    texts = [torch.from_numpy(states[i].astype(np.float32)) for i in chosen]
    padded = nn.utils.rnn.pad_sequence(texts, batch_first=True)
    real = torch.arange(padded.shape[1]) < torch.tensor([len(one) for one in texts])[:, None]
    vectors = projection({"token_embeddings": padded, "attention_mask": real.long()})["token_embeddings"]
    return nn.functional.normalize(vectors, dim=-1), real


def train(projection: WholeTextProjection, queries: TokenVectors, documents: TokenVectors) -> WholeTextProjection:
    """Train by the cross-entropy of each query's document among those of its batch, under the mean of max."""
    order = random.Random(SEED)
    means = np.stack([documents[i].astype(np.float32).mean(0) for i in range(len(documents))])
    means -= means.mean(0)
    means /= np.linalg.norm(means, axis=1, keepdims=True)
    optimizer = torch.optim.AdamW(projection.parameters(), lr=RATE, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 15) * (1 - step / STEPS))
    for step in range(STEPS):
        # A document and those most like it: of documents taken at random the right one is nearly always the best.
        near = np.argsort(-(means @ means[order.randrange(len(means))]))
        chosen = near[:BATCH].tolist()
        q, real_q = apply(projection, queries, chosen)
        d, real_d = apply(projection, documents, chosen)
        similarities = torch.einsum("qid,pjd->qpij", q, d).masked_fill(~real_d[None, :, None], -torch.inf)
        best = similarities.amax(-1) * real_q[:, None]  # (queries, documents, query tokens)
        scores = SCALE * best.sum(-1) / real_q.sum(1)[:, None]
        loss = nn.functional.cross_entropy(scores, torch.arange(len(chosen)))
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
        if step % 25 == 0 or step == STEPS - 1:
            print(f"step {step}: loss {loss.item():.4f}", flush=True)
    return projection


def base(source: Path, target: Path) -> None:
    """Prune the vocabulary to the pieces that the tokenizer thinks most probable."""
    from weft.encoders.light import read_tokenizer
    from weft.encoders.pruning import most_frequent, prune_checkpoint

    prune_checkpoint(source, target, most_frequent(read_tokenizer(source / "tokenizer.json"), PIECES))


def head(light: Path, data: Path, lists: Path, output: Path, further: bool) -> None:
    """Encode texts, and make the projection."""
    encoder = Encoder.load(light, query_length=QUERY_LENGTH, document_length=DOCUMENT_LENGTH)
    options: dict[str, Any] = {"threads": 1, "dtype": np.float16, "truncation": "ignore"}
    texts = pairs(data)
    many = [body for language in MANY for _, body in descriptions(lists, language)[KEPT_FOR_DEV:][:EACH]]
    english = [document for _, document in texts[:ENGLISH]]
    projection = begin(encoder.encode_document([DOCUMENT + text for text in many + english], **options))
    if further:
        queries = encoder.encode_query([QUERY + q for q, _ in texts], **options)
        projection = train(projection, queries, encoder.encode_document([DOCUMENT + d for _, d in texts], **options))
    torch.save(projection.state_dict(), output)


def join(source: Path, weights: Path, target: Path) -> None:
    """Write the checkpoint: encoder, scoring mask, unit states, projection, unit vectors."""
    from sentence_transformers import MultiVectorEncoder
    from sentence_transformers.base.modules import Normalize, Transformer
    from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask

    projection = WholeTextProjection(384, DIM)
    projection.load_state_dict(torch.load(weights, weights_only=True))
    transformer = Transformer(str(source), query_length=128, document_length=256, max_seq_length=256)
    unit = [Normalize(module_input_name="token_embeddings") for _ in range(2)]
    modules = [transformer, MultiVectorMask([]), unit[0], projection, unit[1]]
    prompts = {"query": QUERY, "document": DOCUMENT}
    MultiVectorEncoder(modules=modules, prompts=prompts, device="cpu").save_pretrained(str(target))


def finish(folder: Path) -> None:
    """Tell the light folder which languages the model reads, and how to score."""
    path = folder / "weft_encoder.json"
    settings = json.loads(path.read_text(encoding="utf-8"))
    settings |= {"alignment": "xtr", "languages": LANGUAGES}
    path.write_text(json.dumps(settings, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def main() -> None:
    """Take one of the steps."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    steps = parser.add_subparsers(dest="step", required=True)
    for step, names in {
        "base": ("source", "target"),
        "head": ("light",),
        "join": ("source", "weights", "target"),
        "finish": ("folder",),
    }.items():
        one = steps.add_parser(step)
        for name in names:
            one.add_argument(name, type=Path)
        if step == "head":
            one.add_argument("--data", type=Path, required=True, help="folder of BEIR collections")
            one.add_argument("--lists", type=Path, required=True, help="folder of apt's Translation files")
            one.add_argument("--train", action="store_true", dest="further", help="train on English pairs")
            one.add_argument("--output", type=Path, required=True)
    options = vars(parser.parse_args())
    {"base": base, "head": head, "join": join, "finish": finish}[options.pop("step")](**options)


if __name__ == "__main__":
    main()
