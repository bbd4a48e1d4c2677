"""Searches a second with 1, 2 and 4 threads on one `Index`: `python benchmarks/search_threads.py`."""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import tempfile
import threading
import time

import numpy as np

from weft import Index, TokenVectors

DOCUMENTS, TOKENS, DIM, SEARCHES, ROUNDS = 3000, 80, 128, 768, 3


def corpus() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    kinds = rng.standard_normal((500, DIM)).astype(np.float32)
    made = []
    for _ in range(DOCUMENTS):
        values = kinds[rng.integers(0, 500, TOKENS)] + 0.5 * rng.standard_normal((TOKENS, DIM))
        made.append((values / np.linalg.norm(values, axis=1, keepdims=True)).astype(np.float32))
    return made


def measured(index: Index, queries: list[np.ndarray], threads: int) -> tuple[float, float]:
    """Return searches a second, and CPU milliseconds of each."""

    def work(first: int) -> None:
        for i in range(first, SEARCHES, threads):
            index.search(queries[i % len(queries)], 10, hits=False)

    started = [threading.Thread(target=work, args=(i,)) for i in range(threads)]
    cpu, begun = time.process_time(), time.perf_counter()
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    return SEARCHES / (time.perf_counter() - begun), 1000 * (time.process_time() - cpu) / SEARCHES


def main() -> None:
    documents = corpus()
    with tempfile.TemporaryDirectory() as folder, Index.create(f"{folder}/i.weft", DIM) as index:
        index.add([f"d{i}" for i in range(DOCUMENTS)], TokenVectors.from_list(documents))
        index.compact()
        queries = [document[:32] for document in documents[:64]]
        for query in queries:
            index.search(query, 10)
        for _ in range(ROUNDS):
            for threads in (1, 2, 4):
                rate, cpu = measured(index, queries, threads)
                print(f"{threads} threads: {rate:,.0f} searches a second, {cpu:.2f} CPU ms each")


if __name__ == "__main__":
    main()
