"""XTR: documents scored from retrieved tokens alone (XTR eq. 2 for training, eq. 4 for inference).

Both let each query token retrieve its k best tokens out of *all* documents given (the mini-batch, or the
corpus). Within a document the best retrieved token counts. They differ in what a query token counts that
retrieved nothing of the document: eq. 2 leaves it out of the sum and out of Z, eq. 4 imputes m_i.

Maxima run over retrieved tokens only, never over zeros put in place of the others, so negative
similarities keep their value.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from array_api_compat import array_namespace

from weft.alignment.backend import Array, device_of, kth_largest, like, top_mask
from weft.alignment.base import Alignment, Pairs
from weft.checks import check_count
from weft.errors import invalid


def retrieve_tokens(pairs: Pairs, k: int) -> tuple[Array, Array]:
    """Let every query token retrieve its k best tokens of all N documents (eq. 3).

    Returns
    -------
    retrieved : bool array, shape (B, N, n, m)
        Â of eq. 2 and 4.
    last : array, shape (B, n)
        The similarity of the k-th, that is the last, token retrieved; all tokens, if there are fewer than k.
    """
    xp = pairs.xp
    B, N, n, m = pairs.S.shape
    if 0 in (B, N, n, m):
        return pairs.valid, xp.zeros((B, n), dtype=pairs.S.dtype, device=device_of(pairs.S))

    def by_query_token(a: Array) -> Array:  # (B, N, n, m) → (B, n, N·m)
        return xp.reshape(xp.permute_dims(a, (0, 2, 1, 3)), (B, n, N * m))

    S, valid = by_query_token(pairs.S), by_query_token(pairs.valid)
    mask = top_mask(S, k, valid)
    count = xp.sum(xp.astype(valid, xp.int64), axis=-1, keepdims=True)
    candidates = xp.where(valid, S, xp.asarray(-xp.inf, dtype=S.dtype, device=device_of(S)))
    last = kth_largest(candidates, xp.clip(count, 1, k))
    last = xp.where(count > 0, last, xp.zeros_like(last))[..., 0]
    return xp.permute_dims(xp.reshape(mask, (B, n, N, m)), (0, 2, 1, 3)), last


@dataclass(frozen=True)
class InBatchTokenRetrieval(Alignment):
    """XTR's training alignment (eq. 2): in-batch token retrieval with k_train.

    Z is ΣA, which without saliences is the number of query tokens that retrieved at least one token of D,
    exactly the paper's Z; a document of which nothing was retrieved scores 0.
    """

    name: ClassVar[str] = "xtr-in-batch"
    aliases: ClassVar[tuple[str, ...]] = ("xtr-train",)
    reference: ClassVar[str] = "XTR eq. 2"
    k_train: int
    z: str = "sum"

    def _check(self) -> None:
        self._settle(k_train=check_count(self.k_train, "k_train", type(self).__name__))

    def pairwise(self, pairs: Pairs) -> Array:
        retrieved, _ = retrieve_tokens(pairs, self.k_train)
        return pairs.indicator(top_mask(pairs.S, 1, retrieved))


Imputation = Callable[[Pairs, Array, Array], Array]
"""(pairs, retrieved (B, N, n, m), last retrieved similarity (B, n)) → m, of shape (B, n) or (B, N, n)."""

_IMPUTATIONS: dict[str, Imputation] = {
    "kth": lambda pairs, retrieved, last: last,  # noqa: ARG005
    "zero": lambda pairs, retrieved, last: array_namespace(last).zeros_like(last),  # noqa: ARG005
}


def register_imputation(name: str, estimate: Imputation) -> None:
    """Add an estimator of missing similarities, to be used as ``XTR(k_prime, impute=name)``.

    Examples
    --------
    >>> register_imputation("half-kth", lambda pairs, retrieved, last: last / 2)
    >>> str(XTR(100, impute="half-kth"))
    'xtr:100,impute=half-kth'
    """
    if not name or name in _IMPUTATIONS or name == "none" or _as_number(name) is not None or set(name) & set(",=: "):
        raise invalid("name", "register_imputation", "a new name, not a number, without ',', '=', ':' or spaces", name)
    if not callable(estimate):
        raise invalid("estimate", "register_imputation", "a function of (pairs, retrieved, last)", estimate)
    _IMPUTATIONS[name] = estimate


K_PRIME_SHARE = 0.0025
"""Where no k′ is given, a query token retrieves this share of all tokens (40,000 in the paper, of millions).
Chosen on dev splits: with fewer real matches are cut off, with more the score counts differences that mean nothing."""
LEAST_K_PRIME = 100
"""The smallest k′ that is chosen this way."""


@dataclass(frozen=True)
class XTR(Alignment):
    """XTR's inference score (eq. 4): retrieved similarities, and m_i in place of those not retrieved.

    ``k_prime`` tokens are retrieved for each query token; without it, plain ``"xtr"``, as many as suit the collection.
    ``impute`` chooses m_i: ``"kth"`` (the k′-th score, an upper bound of what is missing), ``"zero"``, a
    number such as ``"0.2"``, a name given to `register_imputation`, or ``"none"``: no imputation, the mean over
    what was retrieved as in eq. 2. With imputation Z is n, so when all tokens are retrieved this is ColBERT's
    sum of max over n.
    """

    name: ClassVar[str] = "xtr"
    reference: ClassVar[str] = "XTR eq. 4"
    k_prime: int | None = None
    impute: str = "kth"
    z: str = "query"

    def _check(self) -> None:
        if self.k_prime is not None:
            self._settle(k_prime=check_count(self.k_prime, "k_prime", type(self).__name__))
        number = _as_number(str(self.impute))
        self._settle(impute=str(self.impute) if number is None else repr(number))  # 0.2, "0.20": one alignment
        if self.impute not in ("none", *_IMPUTATIONS) and number is None:
            known = ", ".join(("none", *_IMPUTATIONS))
            raise invalid("impute", type(self).__name__, f"a finite number or one of: {known}", self.impute)

    @property
    def divides_by(self) -> str:
        """The Z in use: without imputation "query" means the query tokens that retrieved something, ΣA (eq. 2)."""
        return "sum" if self.impute == "none" and self.z == "query" else self.z

    def retrieves(self, tokens: int) -> int:
        """Return how many tokens each query token retrieves from a collection of this size.

        Examples
        --------
        >>> XTR(4000).retrieves(1_000_000), XTR().retrieves(1_000_000), XTR().retrieves(500)
        (4000, 2500, 100)
        """
        return self.k_prime or max(LEAST_K_PRIME, round(K_PRIME_SHARE * tokens))

    def missing(self, last: Array) -> Array | None:
        """Return m_i by the k′-th similarities alone, of their shape; None where nothing is imputed, or by more."""
        number = _as_number(self.impute)
        if number is not None:
            return array_namespace(last).full_like(last, number)
        return _IMPUTATIONS[self.impute](None, None, last) if self.impute in ("kth", "zero") else None  # type: ignore[arg-type]

    def estimate(self, pairs: Pairs, retrieved: Array, last: Array) -> Array:
        """Return m of shape (B, N, n), checked."""
        xp = pairs.xp
        m = self.missing(last)
        m = _IMPUTATIONS[self.impute](pairs, retrieved, last) if m is None else m
        m = like(m, last, "impute", f"the imputation {self.impute!r}")
        shape = tuple(pairs.S.shape[:3])
        if tuple(m.shape) not in (tuple(last.shape), shape):
            allowed = f"an estimate of shape {tuple(last.shape)} or {shape}"
            raise invalid("impute", f"the imputation {self.impute!r}", allowed, tuple(m.shape))
        if not bool(xp.all(xp.isfinite(m))):
            raise invalid("impute", f"the imputation {self.impute!r}", "an estimate of finite numbers", m)
        return xp.broadcast_to(m[:, None, :] if m.ndim == 2 else m, shape)

    def pairwise(self, pairs: Pairs) -> Array:
        return self.solve(pairs)[1]

    def solve(self, pairs: Pairs) -> tuple[Array, Array]:
        """Return Ŝ = Â·S + (1 − Â)·m and its row-wise argmax, the two factors of eq. 4."""
        xp = pairs.xp
        retrieved, last = retrieve_tokens(pairs, self.retrieves(int(xp.sum(pairs.document_lengths))))
        if self.impute == "none":
            return pairs.S, pairs.indicator(top_mask(pairs.S, 1, retrieved))
        m = self.estimate(pairs, retrieved, last)[..., None]
        imputed = xp.where(retrieved, pairs.S, xp.broadcast_to(m, pairs.S.shape))
        return imputed, pairs.indicator(top_mask(imputed, 1, pairs.valid))


def _as_number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if abs(value) < float("inf") else None
