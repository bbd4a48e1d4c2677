"""The simulation behind docs/notes/scale.md: what is known of queues, and the tables of the page."""

import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def simulate():
    path = ROOT / "benchmarks" / "cluster" / "simulate.py"
    spec = importlib.util.spec_from_file_location("simulate_cluster", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look for it
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


CALM = {"sigma": 0.0, "query_sigma": 0.0, "straggling": 0.0, "network": 0.0, "router": 0.0}


def test_one_core_is_the_queue_of_the_textbook(simulate):
    """M/D/1: the mean wait is ρ / (2 (1 − ρ)) of a service."""
    cluster = simulate.Cluster(shards=1, replicas=1, nodes=1, cores=1, search=10.0, hedge=None, **CALM)
    for load in (0.3, 0.6):
        found = simulate.Simulation(cluster).run(rate=100 * load, queries=8000)
        assert found.mean == pytest.approx(10 * (1 + load / (2 * (1 - load))), rel=0.06)
        assert found.busy == pytest.approx(load, rel=0.05)
        assert found.failed == 0


def test_a_query_waits_for_its_slowest_shard(simulate):
    options = {"nodes": 8, "cores": 8, "search": 5.0, "hedge": None, "straggling": 0.01}
    p99 = [
        simulate.Simulation(simulate.Cluster(shards=shards, **options)).run(rate=20, queries=1500).p99
        for shards in (1, 4, 16)
    ]
    assert p99 == sorted(p99)
    assert p99[-1] > 2 * p99[0]


def test_hedging_takes_the_tail_for_few_requests(simulate):
    options = {"shards": 4, "nodes": 8, "cores": 4, "search": 5.0, "straggling": 0.01}
    hedged = simulate.Simulation(simulate.Cluster(**options)).run(rate=100, queries=3000)
    never = simulate.Simulation(simulate.Cluster(hedge=None, **options)).run(rate=100, queries=3000)
    assert hedged.p99 < never.p99 / 2
    assert 0 < hedged.hedges < 0.1
    assert never.hedges == 0


def test_a_node_that_dies_fails_queries_only_where_nobody_else_is_asked(simulate):
    options = {"shards": 4, "nodes": 4, "cores": 4}
    assert simulate.Simulation(simulate.Cluster(**options)).run(rate=50, queries=2000, dies=0.5).failed == 0
    assert simulate.Simulation(simulate.Cluster(hedge=None, **options)).run(rate=50, queries=2000, dies=0.5).failed
    alone = simulate.Cluster(replicas=1, **options)
    assert simulate.Simulation(alone).run(rate=50, queries=2000, dies=0.5).failed > 900


def test_the_page_has_the_tables_of_what_was_measured(simulate):
    page = (ROOT / "docs" / "notes" / "scale.md").read_text(encoding="utf-8")
    lines = simulate.plan_lines(simulate.read_measured(), simulate.Assumed())
    assert len(lines) == 2 + 3 * len(simulate.SIZES)
    assert "\n".join(lines) in page
    assert "\n".join(simulate.measured_lines(simulate.read_measured())) in page
