"""How much memory one step of XTR's in-batch token retrieval takes at the paper's size: forward, loss and backward.

python benchmarks/in_batch_memory.py            # 256 queries of 64 tokens, 512 documents of 256, k = 128: 90 s
python benchmarks/in_batch_memory.py --small
"""

from __future__ import annotations

import argparse
import resource

import torch

from weft.alignment import InBatchTokenRetrieval
from weft.training.in_batch import memory, score_in_batch


def peak() -> float:
    """Return the most memory that this process has ever had, in GiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--small", action="store_true")
    shrink = 8 if parser.parse_args().small else 1
    (B, n), (N, m), dim, k = (256 // shrink, 64), (512 // shrink, 256), 128, 128
    sides = []
    for texts, tokens in ((B, n), (N, m)):
        values = torch.nn.functional.normalize(torch.randn(texts, tokens, dim), dim=-1).requires_grad_()
        sides.append((values, torch.ones(texts, tokens, dtype=torch.bool), None))
    before = peak()
    scores = score_in_batch(sides[0], sides[1], InBatchTokenRetrieval(k))
    torch.nn.functional.cross_entropy(scores, torch.arange(B)).backward()
    print(f"{B} queries x {n} tokens, {N} documents x {m} tokens: {B * n * N * m / 1e9:.2f} G similarities")
    print(f"measured {peak() - before:.2f} GiB, estimated {memory(B, n, N, m, k, dim) / 2**30:.2f} GiB")


if __name__ == "__main__":
    main()
