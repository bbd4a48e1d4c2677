"""Native scoring beside NumPy, torch and maxsim-cpu on ragged documents, one thread each.

    python benchmarks/maxsim.py            print the tables
    python benchmarks/maxsim.py --write    and put them into benchmarks/RESULTS.md

Every peer gets its data in the layout it likes best, prepared before the clock starts, in each form we
could think of; its fastest form counts. Every result is checked against NumPy. Repetitions are interleaved,
so that a busy moment of the machine hits all alike; the figure is the median CPU time of the whole process,
which also counts threads that a library starts on its own. The least time stands beside it: what others do on
the machine can only add to a time.
"""

import os

# Before the other imports: the thread pools of NumPy's BLAS, torch and maxsim-cpu read these when they start.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS"):
    os.environ[variable] = "1"

import argparse
import importlib.util
import platform
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

import numpy as np

from results_file import RESULTS, write_section
from weft.kernels import score_ragged, simd_level
from weft.types import TokenVectors

K, P = 4, 0.02


@dataclass
class Contender:
    """One way to compute the scores; `system` is whose it is."""

    system: str
    form: str
    run: Callable[[], np.ndarray]
    tolerance: float = 1e-4
    cpu: list[float] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        return statistics.median(self.cpu)


class Data:
    """Random L2-normalised documents of 30-300 tokens, and the layouts that the peers prefer."""

    def __init__(self, documents: int, dim: int, query_tokens: int) -> None:
        rng = np.random.default_rng(0)
        self.lengths = rng.integers(30, 301, documents)
        self.offsets = np.concatenate([[0], np.cumsum(self.lengths)]).astype(np.int64)
        self.query = unit(rng, query_tokens, dim)  # (n, dim)
        self.values = unit(rng, int(self.offsets[-1]), dim)  # (T, dim)
        self.transposed = np.ascontiguousarray(self.values.T)  # (dim, T)
        self.list = [self.values[a:b] for a, b in zip(self.offsets[:-1], self.offsets[1:], strict=True)]
        self.queries = TokenVectors.from_list([self.query])
        self.documents = TokenVectors(self.values, self.offsets)
        self.halves = self.documents.astype(np.float16)

    def chunks(self, size: int = 32) -> list[tuple[slice, slice, np.ndarray]]:
        """Runs of documents small enough for the cache: documents, tokens, starts within the run."""
        runs = []
        for first in range(0, len(self.lengths), size):
            last = min(first + size, len(self.lengths))
            a, b = self.offsets[first], self.offsets[last]
            runs.append((slice(first, last), slice(a, b), self.offsets[first:last] - a))
        return runs


def unit(rng: np.random.Generator, rows: int, dim: int) -> np.ndarray:
    x = rng.standard_normal((rows, dim), dtype=np.float32)
    return x / np.linalg.norm(x, axis=1, keepdims=True)


# -- sum-of-max --------------------------------------------------------------------------------------


def native_maxsim(data: Data) -> list[Contender]:
    return [
        Contender("weft native", "float32", lambda: score_ragged(data.queries, data.documents)[0]),
        Contender("weft native, float16", "float16", lambda: score_ragged(data.queries, data.halves)[0], 3e-2),
    ]


def numpy_maxsim(data: Data) -> list[Contender]:
    runs = data.chunks()
    S = np.empty((len(data.query), len(data.values)), np.float32)  # kept, or the system clears 43 MB each time

    def whole() -> np.ndarray:
        np.matmul(data.query, data.transposed, out=S)
        return np.maximum.reduceat(S, data.offsets[:-1], axis=1).sum(axis=0)

    def chunked() -> np.ndarray:
        out = np.empty(len(data.lengths), np.float32)
        for documents, tokens, starts in runs:
            out[documents] = np.maximum.reduceat(data.query @ data.values[tokens].T, starts, axis=1).sum(axis=0)
        return out

    def chunked_rows() -> np.ndarray:
        out = np.empty(len(data.lengths), np.float32)
        for documents, tokens, starts in runs:
            out[documents] = np.maximum.reduceat(data.values[tokens] @ data.query.T, starts, axis=0).sum(axis=1)
        return out

    def loop() -> np.ndarray:
        return np.array([(data.query @ document.T).max(axis=1).sum() for document in data.list])

    return [
        Contender("NumPy", "one matmul + maximum.reduceat", whole),
        Contender("NumPy", "matmul + maximum.reduceat, 32 documents at a time", chunked),
        Contender("NumPy", "matmul + maximum.reduceat by rows, 32 documents at a time", chunked_rows),
        Contender("NumPy", "matmul + max, a document at a time", loop),
    ]


def torch_maxsim(data: Data) -> list[Contender]:
    import torch

    torch.set_num_threads(1)
    query, values = torch.from_numpy(data.query), torch.from_numpy(data.values)
    lengths = torch.from_numpy(data.lengths)
    owner = torch.repeat_interleave(torch.arange(len(lengths)), lengths)[:, None].expand(-1, len(query)).contiguous()
    padded = torch.nn.utils.rnn.pad_sequence([torch.from_numpy(d) for d in data.list], batch_first=True)
    padding = (torch.arange(padded.shape[1]) >= lengths[:, None])[:, :, None]
    buckets = torch_buckets(data)
    parts = [torch.from_numpy(document) for document in data.list]
    S = torch.empty(len(values), len(query))

    def segments() -> np.ndarray:
        return torch.segment_reduce(torch.matmul(values, query.T, out=S), "max", lengths=lengths).sum(1).numpy()

    def scatter() -> np.ndarray:
        best = torch.full((len(lengths), len(query)), -torch.inf)
        return best.scatter_reduce_(0, owner, torch.matmul(values, query.T, out=S), "amax").sum(1).numpy()

    def pad() -> np.ndarray:
        return (padded @ query.T).masked_fill_(padding, -torch.inf).amax(1).sum(1).numpy()

    def bucketed() -> np.ndarray:
        out = torch.empty(len(lengths))
        for which, documents, mask in buckets:
            out[which] = (documents @ query.T).masked_fill_(mask, -torch.inf).amax(1).sum(1)
        return out.numpy()

    def loop() -> np.ndarray:
        return torch.stack([(part @ query.T).amax(0).sum() for part in parts]).numpy()

    forms = {
        "matmul + segment_reduce": segments,
        "matmul + scatter_reduce amax": scatter,
        "padded matmul + amax": pad,
        "padded matmul + amax, 16 documents of like length at a time": bucketed,
        "matmul + amax, a document at a time": loop,
    }
    return [Contender("torch", name, form) for name, form in forms.items()]


def torch_buckets(data: Data) -> list:
    """Documents sorted by length, padded 16 at a time: hardly any padding, and each batch fits the cache."""
    import torch

    made = []
    for which in np.array_split(np.argsort(data.lengths, kind="stable"), -(-len(data.lengths) // 16)):
        batch = torch.nn.utils.rnn.pad_sequence([torch.from_numpy(data.list[d]) for d in which], batch_first=True)
        mask = (torch.arange(batch.shape[1]) >= torch.from_numpy(data.lengths[which])[:, None])[:, :, None]
        made.append((torch.from_numpy(which), batch, mask))
    return made


def maxsim_cpu_maxsim(data: Data) -> list[Contender]:
    import maxsim_cpu

    order = np.argsort(data.lengths, kind="stable")
    in_order = [data.list[d] for d in order]
    equal = [np.flatnonzero(data.lengths == length) for length in np.unique(data.lengths)]
    uniform = [(which, np.stack([data.list[d] for d in which])) for which in equal]

    def by_length() -> np.ndarray:
        out = np.empty(len(data.lengths), np.float32)
        out[order] = maxsim_cpu.maxsim_scores_variable(data.query, in_order)
        return out

    def grouped() -> np.ndarray:
        out = np.empty(len(data.lengths), np.float32)
        for which, documents in uniform:
            out[which] = maxsim_cpu.maxsim_scores(data.query, documents)
        return out

    forms = {
        "maxsim_scores_variable": lambda: np.asarray(maxsim_cpu.maxsim_scores_variable(data.query, data.list)),
        "maxsim_scores_variable, sorted by length": by_length,
        "maxsim_scores, documents of equal length together": grouped,
    }
    return [Contender("maxsim-cpu", name, form) for name, form in forms.items()]


# -- top-k and top-p: 1/Z Σ S∘A with Z = ΣA -----------------------------------------------------------


def best_k(data: Data, alignment: str, k: np.ndarray) -> list[Contender]:
    """Native, NumPy and (if it is there) torch, with k[d] tokens of document d for each query token."""

    def partition() -> np.ndarray:
        return np.array([
            np.partition(data.query @ d.T, len(d) - c, axis=1)[:, len(d) - c :].mean()
            for d, c in zip(data.list, k, strict=True)
        ])  # fmt: skip

    contenders = [
        Contender("weft native", "float32", lambda: score_ragged(data.queries, data.documents, alignment)[0]),
        Contender("NumPy", "matmul + partition, a document at a time", partition),
    ]
    if importlib.util.find_spec("torch") is None:
        return contenders
    import torch

    query = torch.from_numpy(data.query)
    parts = [torch.from_numpy(document) for document in data.list]
    buckets = [(which, d, mask, torch.from_numpy(k[which])) for which, d, mask in torch_buckets(data)]

    def loop() -> np.ndarray:
        return torch.stack([
            (query @ part.T).topk(int(c), dim=1, sorted=False).values.mean() for part, c in zip(parts, k, strict=True)
        ]).numpy()  # fmt: skip

    def bucketed() -> np.ndarray:
        out = torch.empty(len(k))
        for which, documents, mask, count in buckets:
            most = int(count.max())
            top = (documents @ query.T).masked_fill_(mask, -torch.inf).topk(most, dim=1).values  # (docs, most, n)
            keep = (torch.arange(most) < count[:, None])[:, :, None]
            out[which] = torch.where(keep, top, 0).sum((1, 2)) / (count * len(query))
        return out.numpy()

    return [
        *contenders,
        Contender("torch", "matmul + topk, a document at a time", loop),
        Contender("torch", "padded matmul + topk, 16 documents of like length at a time", bucketed),
    ]


# -- measuring and reporting -------------------------------------------------------------------------


def measure(contenders: list[Contender], want: np.ndarray, rounds: int) -> None:
    for contender in contenders:  # also the warm-up
        off = float(np.abs(contender.run() - want).max())
        if not off <= contender.tolerance:
            raise SystemExit(f"{contender.system} ({contender.form}) is wrong by {off}")
    for _ in range(rounds):
        for contender in contenders:
            start = time.process_time()
            contender.run()
            contender.cpu.append(time.process_time() - start)


def table(contenders: list[Contender]) -> list[str]:
    """One line per system, its fastest form, with the ratio to ours."""
    ours = contenders[0].seconds
    fastest: dict[str, Contender] = {}
    for contender in contenders:
        held = fastest.setdefault(contender.system, contender)
        if contender.seconds < held.seconds:
            fastest[contender.system] = contender
    lines = ["| system | form | CPU ms | × native | least ms |", "| --- | --- | ---: | ---: | ---: |"]
    for c in fastest.values():
        figures = f"{c.seconds * 1e3:.1f} | {c.seconds / ours:.2f} | {min(c.cpu) * 1e3:.1f}"
        lines.append(f"| {c.system} | {c.form} | {figures} |")
    return lines


def two_threads(data: Data, rounds: int) -> str:
    """Wall time needs two free cores, so the load and the CPU time, which should not rise, stand beside it."""
    walls: dict[int, list[float]] = {1: [], 2: []}
    cpus: dict[int, list[float]] = {1: [], 2: []}
    for _ in range(rounds):
        for threads in walls:
            wall, cpu = time.perf_counter(), time.process_time()
            score_ragged(data.queries, data.documents, threads=threads)
            walls[threads].append(time.perf_counter() - wall)
            cpus[threads].append(time.process_time() - cpu)
    one, two = (min(walls[threads]) * 1e3 for threads in (1, 2))
    cpu_one, cpu_two = (statistics.median(cpus[threads]) * 1e3 for threads in (1, 2))
    return (
        f"Two threads: wall time {one:.1f} → {two:.1f} ms ({one / two:.2f}×, best of {rounds}), "
        f"CPU time {cpu_one:.1f} → {cpu_two:.1f} ms, on {os.cpu_count()} cores "
        f"with a load average of {os.getloadavg()[0]:.1f} from all programs."
    )


def machine() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    name = names[0] if names else platform.processor() or platform.machine()
    return f"{name}, {os.cpu_count()} cores, {platform.system()}"


def report(documents: int, rounds: int) -> list[str]:
    data = Data(documents, dim=128, query_tokens=32)
    versions = [
        f"Python {platform.python_version()}",
        *(f"{name} {version(name)}" for name in ("weft-search", "numpy")),
    ]
    missing = []
    contenders = [*native_maxsim(data), *numpy_maxsim(data)]
    for package, make, install in (
        ("torch", torch_maxsim, "pip install torch"),
        ("maxsim-cpu", maxsim_cpu_maxsim, "pip install maxsim-cpu"),
    ):
        try:
            contenders += make(data)
            versions.append(f"{package} {version(package)}")
        except ImportError:
            missing.append(f"| {package} | missing: `{install}` | – | – | – |")

    want = np.array([(data.query @ document.T).max(axis=1).sum() for document in data.list])
    measure(contenders, want, rounds)
    lines = [
        f"{machine()}; SIMD level {simd_level()}; {', '.join(versions)}.",
        f"Command: `python benchmarks/maxsim.py{' --write' if '--write' in sys.argv else ''}`.",
        "",
        f"Sum-of-max, {documents:,} documents of 30–300 tokens ({data.offsets[-1]:,} in all), dim 128, "
        f"32 query tokens, 1 thread, median CPU time of {rounds} interleaved rounds:",
        "",
        *table(contenders),
        *missing,
        "",
    ]
    for alignment, k in (
        (f"top-k:{K}", np.minimum(K, data.lengths)),
        (f"top-p:{P}", np.maximum(np.floor(P * data.lengths + 1e-9), 1).astype(np.int64)),
    ):
        others = best_k(data, alignment, k)
        measure(others, others[1].run(), max(3, rounds // 3))
        lines += [f"{alignment}:", "", *table(others), ""]

    peers = [contender for contender in contenders if not contender.system.startswith("weft")]
    best = min(peers, key=lambda contender: contender.seconds)
    flops = 2 * data.values.size * len(data.query)
    lines += [
        two_threads(data, 2 * rounds),
        f"Native does {flops / contenders[0].seconds / 1e9:.0f} GFLOP/s on one thread.",
        "",
        f"By least times {min(min(c.cpu) for c in peers) / min(contenders[0].cpu):.2f}×; by medians:",
        f"native is {best.seconds / contenders[0].seconds:.2f}× as fast as the best peer ({best.system}, {best.form})",
    ]
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--write", action="store_true", help=f"update {RESULTS.name}")
    options = parser.parse_args()
    lines = report(options.documents, options.rounds)
    print("\n".join(lines))
    if options.write:
        write_section("maxsim", "MaxSim", lines)


if __name__ == "__main__":
    main()
