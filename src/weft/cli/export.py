"""``weft export``: the light form of a model, with what it gains in speed and loses in precision."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from weft.encoders.drift import Sample


class Precision(StrEnum):
    """How the weights are kept."""

    int8 = "int8"
    fp32 = "fp32"


def export(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="A checkpoint: a folder or a name on the Hugging Face hub.")
    ],
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where to write the light form.")],
    precision: Annotated[Precision, typer.Option(help="Weights as bytes or as 32-bit floats.")] = Precision.int8,
    name: Annotated[str | None, typer.Option(help="A name for the model.")] = None,
    query_length: Annotated[int | None, typer.Option(help="The maximum number of tokens of a query.")] = None,
    document_length: Annotated[int | None, typer.Option(help="The maximum number of tokens of a document.")] = None,
    projection: Annotated[Path | None, typer.Option(help=".npy of shape (dim, hidden), for a plain encoder.")] = None,
    embedding_bits: Annotated[int, typer.Option(help="8, or 4 for a large vocabulary: bits of an embedding.")] = 8,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a light model in FOLDER.")] = False,
    compare: Annotated[bool, typer.Option(help="Measure speed and drift against torch.")] = True,
    data: Annotated[
        Path | None, typer.Option(help="A BEIR folder to compare on, with nDCG; by default the demo collection.")
    ] = None,
    split: Annotated[str, typer.Option(help="The split of the BEIR folder.")] = "test",
    queries: Annotated[int, typer.Option(help="The maximum number of queries to compare on.")] = 100,
    documents: Annotated[int, typer.Option(help="The maximum number of documents to compare on.")] = 400,
    trust_remote_code: Annotated[bool, typer.Option("--trust-remote-code", help="Run the checkpoint's code.")] = False,
) -> None:
    """Write the light form of MODEL to FOLDER: ONNX Runtime and tokenizers, no torch.

    Then print a table: the processor time of a query on one thread, and how far vectors, scores and nDCG@10 are from
    those of torch.
    """
    from tempfile import TemporaryDirectory

    from weft.encoders.encoder import Encoder
    from weft.encoders.export import as_torch_encoder, check_target, write_folder, write_graph

    check_target(folder, precision.value, overwrite, embedding_bits)  # report what is wrong before the work
    sample = _sample(data, split, queries, documents) if compare else None
    heavy = as_torch_encoder(model, projection=projection, trust_remote_code=trust_remote_code)
    options: dict[str, Any] = {"query_length": query_length, "document_length": document_length}
    bits = {"embedding_bits": embedding_bits}
    with TemporaryDirectory() as made:
        graph = Path(made) / "fp32.onnx"
        write_graph(heavy, graph)
        write_folder(heavy, graph, folder, precision=precision.value, name=name, overwrite=overwrite, **bits, **options)
        light = Encoder.load(folder)
        size = sum(path.stat().st_size for path in folder.iterdir()) / 1e6
        typer.echo(
            f"{folder}: {light.name}, {light.settings.precision}, {light.dim} dimensions, {size:.1f} MB", err=True
        )
        if sample is None:
            return
        from weft.encoders.drift import compare as measure
        from weft.encoders.drift import table

        other = "fp32" if precision.value == "int8" else "int8"
        second = Encoder.load(write_folder(heavy, graph, Path(made) / other, precision=other, **options))
        forms = {f"light {encoder.settings.precision}": encoder for encoder in (light, second)}
        heavy = Encoder(heavy.settings.with_lengths(**options), heavy.tokenizer, heavy.backend)
        rows = measure(heavy, dict(sorted(forms.items())), sample)
    typer.echo("\n".join(table(rows, sample)))


def _sample(data: Path | None, split: str, queries: int, documents: int) -> Sample:
    from weft.encoders.drift import Sample
    from weft.sources.beir import DEMO, Collection

    folder = data if data is not None else DEMO
    found = Collection.read(folder, split)
    texts = {document.id: document.full_text for document in found.documents}
    return Sample.of(found.name, found.queries, texts, found.qrels, queries, documents)
