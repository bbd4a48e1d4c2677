"""A router that is pointed to a version of another model: as `weft cluster roll` does, without Ray."""

import asyncio

import pytest

pytest.importorskip("onnx", reason="onnx is not installed")

from cluster_processes import Running
from encoders import light_models
from weft import TextIndex
from weft.cluster.fleet import Fleet
from weft.cluster.replicas import Replicas
from weft.cluster.routing import ShardAt, router
from weft.encoders import Encoder
from weft.serving.limits import Limits
from weft.serving.pool import Deadline, Pool
from weft.serving.schemas import ExplainRequest, SearchRequest

QUERY = "how do whales sleep"


def test_another_version_may_be_of_another_model(parts, tmp_path):
    """The encoder and the alignment turn with the shards."""
    model = light_models.write(tmp_path / "tiny")
    other = tmp_path / "other.weft"
    with TextIndex.open(other, create=True, model=str(model)) as texts:
        texts.add({"d1": "whales sleep", "d2": "why", "d3": "sleep"})
        texts.index.remember_alignment("top-k:2")
        expected = [match.id for match in texts.search(QUERY, 3)]
    shards = [Running("serve", path, "--port", 0, "--no-page", "--read-only") for path in (parts[0], other)]
    pool = Pool(1, 10)

    async def found(routed):
        answer = await routed.search(SearchRequest(query=QUERY, k=3, fields=("spans",)), Deadline(60))
        (why,) = (await routed.explain(ExplainRequest(query=QUERY), Deadline(60))).explanations
        hits = [hit.id for hit in answer.results[0].hits]
        assert why["id"] == hits[0]
        return answer.alignment, hits, [token.text for token in answer.results[0].tokens]

    async def ask():
        routed = router("index", [ShardAt((shards[0].url,))])(pool, Limits())
        try:
            before = await found(routed)
            routed.point(Fleet([Replicas("other", [shards[1].url])]), Encoder.load(str(model)), "top-k:2")
            after = await found(routed)
            assert routed.encoder.dim == light_models.DIM
        finally:
            routed.close()
        return before, after

    try:
        before, after = asyncio.run(ask())
    finally:
        pool.close()
        for one in shards:
            one.stop()
    assert before[0] == "xtr"
    assert after[:2] == ("top-k:2", expected)
    assert after[2] != before[2]
