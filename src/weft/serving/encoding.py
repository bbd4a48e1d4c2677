"""Token vectors of texts, for whoever has an encoder: a server of an index, a cluster's router."""

from __future__ import annotations

from weft.encoders import Encoder
from weft.serving import schemas
from weft.serving.limits import Limits
from weft.serving.pool import Deadline, Pool
from weft.serving.vectors import to_base64
from weft.types import TokenVectors


def query_tokens(encoder: Encoder, query: str, tokens: TokenVectors) -> list[schemas.QueryToken]:
    """Return a query's tokens as people read them."""
    made = []
    ids = [] if tokens.token_ids is None else tokens.token_ids.tolist()
    for i, token in enumerate(ids):
        span = None
        if tokens.spans is not None and tokens.spans[i, 0] >= 0:
            span = (int(tokens.spans[i, 0]), int(tokens.spans[i, 1]))
        text = encoder.token_label(token) if span is None else query[slice(*span)]
        salience = None if tokens.salience is None else round(float(tokens.salience[i]), 4)
        made.append(schemas.QueryToken(text, span, salience))
    return made


async def encode_texts(
    encoder: Encoder, request: schemas.EncodeRequest, limits: Limits, pool: Pool, deadline: Deadline
) -> schemas.EncodeAnswer:
    """Return token vectors of texts."""
    limits.count(request.texts, "texts", "documents")
    for text in request.texts:
        limits.text(text, "texts", "text_characters")
    encode = encoder.encode_query if request.kind == "query" else encoder.encode_document

    def work() -> list[schemas.EncodedText]:
        made = []
        for text in request.texts:
            deadline.check()
            found = encode([text], threads=1, progress=False, truncation="ignore")
            spans = [] if found.spans is None else [(a, b) for a, b in found.spans.tolist()]
            as_text = to_base64(found.values) if request.encoding == "base64" else None
            values = None if as_text is not None else found.values.round(6).tolist()
            made.append(schemas.EncodedText(found.n_tokens, spans, as_text, values))
        return made

    return schemas.EncodeAnswer(encoder.name, encoder.dim, await pool.run(work, deadline))
