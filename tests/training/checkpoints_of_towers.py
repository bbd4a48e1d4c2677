"""A tiny BERT with a whole-text projection and salience heads, as light models: what query towers are made of."""

from pathlib import Path

import torch
from sentence_transformers import MultiVectorEncoder
from sentence_transformers.base.modules import Dense

from encoders import checkpoints
from weft.encoders.export import as_torch_encoder, write_folder, write_graph
from weft.encoders.salience import Salience
from weft.encoders.whole_text import WholeTextProjection


def bert_model(folder: Path) -> Path:
    """Write the model in both precisions and return the int8 folder."""
    checkpoints.SHAPE["num_hidden_layers"], before = 3, checkpoints.SHAPE["num_hidden_layers"]
    try:
        checkpoints.sentence_transformers_6(folder / "plain")
    finally:
        checkpoints.SHAPE["num_hidden_layers"] = before
    model = MultiVectorEncoder(str(folder / "plain"), device="cpu")
    torch.manual_seed(5)
    projection = WholeTextProjection(checkpoints.HIDDEN, checkpoints.DIM)
    head = Salience(checkpoints.HIDDEN, "lp:0.5,eps=0.02", "hard:0.4", weights=False)
    torch.nn.init.normal_(head.query.weight, std=0.5)
    modules = [projection if isinstance(module, Dense) else module for module in model]
    modules.insert(1, head)
    made = MultiVectorEncoder(modules=modules, prompts={"query": "", "document": ""}, device="cpu")
    made.save_pretrained(str(folder / "made"))
    encoder = as_torch_encoder(folder / "made")
    write_graph(encoder, folder / "graph.onnx")
    for precision in ("fp32", "int8"):
        write_folder(encoder, folder / "graph.onnx", folder / precision, precision=precision, name="tiny")
    return folder / "int8"
