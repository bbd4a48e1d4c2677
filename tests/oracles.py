"""Brute force for tests: every alignment as plain loops over Python floats, straight from the papers' text.

Nothing here imports weft. Slow and obvious on purpose.
"""

from __future__ import annotations

import math

Matrix = list[list[float]]


def similarities(Q, D) -> Matrix:
    return [[sum(float(a) * float(b) for a, b in zip(q, d, strict=True)) for d in D] for q in Q]


def ranked(row: list[float], allowed: list[int]) -> list[int]:
    """Indices by falling similarity; of equals the first one leads."""
    return sorted(allowed, key=lambda j: (-row[j], j))


def zeros(n: int, m: int) -> Matrix:
    return [[0.0] * m for _ in range(n)]


def top_k(S: Matrix, m: int, k: int) -> Matrix:
    A = zeros(len(S), m)
    for i, row in enumerate(S):
        for j in ranked(row, list(range(m)))[:k]:
            A[i][j] = 1.0
    return A


def top_p(S: Matrix, m: int, p_percent_of_percent: int) -> Matrix:
    """p in units of 0.01 %, so that ⌊p·m⌋ is integer arithmetic."""
    return top_k(S, m, max(p_percent_of_percent * m // 10_000, 1))


def single_vector(S: Matrix, m: int) -> Matrix:
    A = zeros(len(S), m)
    if S and m:
        A[0][0] = 1.0
    return A


def first_k_max(S: Matrix, m: int, k: int) -> Matrix:
    A = zeros(len(S), m)
    if S and m:
        A[0][ranked(S[0], list(range(min(k, m))))[0]] = 1.0
    return A


def exact_match(S: Matrix, m: int, query_ids, document_ids) -> Matrix:
    A = zeros(len(S), m)
    for i, row in enumerate(S):
        same = [j for j in range(m) if query_ids[i] == document_ids[j]]
        if same:
            A[i][ranked(row, same)[0]] = 1.0
    return A


def document_to_query(S: Matrix, m: int, temperature: float) -> Matrix:
    A = zeros(len(S), m)
    for j in range(m):
        column = [row[j] / temperature for row in S]
        weights = [math.exp(x - max(column)) for x in column]
        for i, weight in enumerate(weights):
            A[i][j] = weight / sum(weights)
    return A


def retrieved(all_S: list[Matrix], k: int) -> tuple[list[list[set[int]]], list[float]]:
    """For each document and query token the retrieved positions, and each query token's last score."""
    n = len(all_S[0]) if all_S else 0
    found = [[set() for _ in range(n)] for _ in all_S]
    last = []
    for i in range(n):
        entries = [(-S[i][j], d, j) for d, S in enumerate(all_S) for j in range(len(S[i]))]
        entries.sort()
        for _, d, j in entries[:k]:
            found[d][i].add(j)
        last.append(-entries[:k][-1][0] if entries else 0.0)
    return found, last


def xtr_in_batch(all_S: list[Matrix], k: int) -> list[float]:
    """Eq. 2 for every document."""
    found, _ = retrieved(all_S, k)
    scores = []
    for d, S in enumerate(all_S):
        best = [max(S[i][j] for j in found[d][i]) for i in range(len(S)) if found[d][i]]
        scores.append(sum(best) / len(best) if best else 0.0)
    return scores


def xtr(all_S: list[Matrix], k: int, impute) -> list[float]:
    """Eq. 4 for every document; impute is "kth" or a number."""
    found, last = retrieved(all_S, k)
    scores = []
    for d, S in enumerate(all_S):
        total = 0.0
        for i, row in enumerate(S):
            m_i = last[i] if impute == "kth" else impute
            if row:
                total += max(row[j] if j in found[d][i] else m_i for j in range(len(row)))
        scores.append(total / len(S) if S else 0.0)
    return scores


def relevance(S: Matrix, A: Matrix, z: str, u_q=None, u_d=None) -> float:
    """1/Z · Σ S∘A∘(u_q ⊗ u_d), 0 where Z is 0; a sum above 0 counts as a millionth at least."""
    total = weight = 0.0
    for i, row in enumerate(A):
        for j, a in enumerate(row):
            a = a * (1.0 if u_q is None else float(u_q[i])) * (1.0 if u_d is None else float(u_d[j]))
            total += a * S[i][j]
            weight += a
    Z = {"one": 1.0, "sum": max(weight, 1e-6) if weight > 0 else 0.0, "query": float(len(A))}[z]
    return total / Z if Z > 0 else 0.0
