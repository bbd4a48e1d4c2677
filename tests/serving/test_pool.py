"""The pool: batches only under load, nothing lost, deadlines, and an end."""

import asyncio
import threading
from itertools import pairwise

import pytest

from weft.serving.pool import TOGETHER, Deadline, Pool
from weft.serving.problems import RefusedError
from weft.serving.telemetry import span


def test_searches_that_wait_are_answered_together():
    pool, begun, held, calls = Pool(1, 100), threading.Event(), threading.Event(), []

    def block():
        begun.set()
        held.wait()

    def work(items):
        calls.append(list(items))
        return [10 * item for item in items]

    async def ask():
        blocking = asyncio.create_task(pool.run(block, Deadline(60)))  # the only thread is busy
        while not begun.is_set():
            await asyncio.sleep(0)
        asked = [asyncio.create_task(pool.together("a" if n < 12 else "b", n, work, Deadline(60))) for n in range(15)]
        while pool.waiting < 15:
            await asyncio.sleep(0)
        held.set()
        await blocking
        return await asyncio.gather(*asked)

    assert asyncio.run(ask()) == [10 * n for n in range(15)]
    cuts = [*range(0, 12, TOGETHER), 12, 15]
    assert calls == [list(range(first, stop)) for first, stop in pairwise(cuts)]
    assert pool.batches == sum(len(call) > 1 for call in calls)
    pool.close()


def test_without_load_nobody_waits_for_a_batch():
    pool, sizes = Pool(2, 100), []

    def work(items):
        sizes.append(len(items))
        return items

    async def ask():
        return [await pool.together("a", n, work, Deadline(60)) for n in range(20)]

    assert asyncio.run(ask()) == list(range(20))
    assert set(sizes) == {1}
    pool.close()


def test_an_error_reaches_all_who_share_it_and_the_thread_goes_on():
    pool = Pool(1, 10)

    def fails(items):
        raise ValueError(items)

    async def ask():
        with pytest.raises(ValueError, match="1"):
            await pool.together("a", 1, fails, Deadline(60))
        return await pool.run(lambda: "still here", Deadline(60))

    assert asyncio.run(ask()) == "still here"
    pool.close()


def test_results_are_handed_over_as_they_come():
    """Of two that share a call the first has its answer while the second is worked on, and keeps it if that fails."""
    pool, begun, held, more = Pool(1, 10), threading.Event(), threading.Event(), threading.Event()

    def block():
        begun.set()
        held.wait()

    def work(items):
        yield items[0]
        more.wait()
        raise ValueError("the second")

    async def ask():
        blocking = asyncio.create_task(pool.run(block, Deadline(60)))
        while not begun.is_set():
            await asyncio.sleep(0)
        first, second = (asyncio.create_task(pool.together("a", n, work, Deadline(60))) for n in (1, 2))
        while pool.waiting < 2:
            await asyncio.sleep(0)
        held.set()
        await blocking
        assert await first == 1
        assert not second.done()
        more.set()
        with pytest.raises(ValueError, match="second"):
            await second

    asyncio.run(ask())
    pool.close()


def test_work_that_nobody_waits_for_is_not_done():
    pool, begun, held, done = Pool(1, 10), threading.Event(), threading.Event(), []

    def block():
        begun.set()
        held.wait()

    async def ask():
        blocking = asyncio.create_task(pool.run(block, Deadline(60)))
        while not begun.is_set():
            await asyncio.sleep(0)
        with pytest.raises(RefusedError) as late:
            await pool.run(lambda: done.append(1), Deadline(0.01))
        held.set()
        await blocking
        await pool.run(lambda: None, Deadline(60))
        return late.value.status

    assert asyncio.run(ask()) == 504
    assert done == []
    pool.close()


def test_a_thread_takes_the_place_of_one_that_is_idle():
    """Then it works itself; while all places are taken its work waits, in its turn, and no more run at a time."""
    pool, begun, held, order = Pool(1, 10), threading.Event(), threading.Event(), []
    assert pool.call(threading.get_ident, Deadline(60)) == threading.get_ident()

    def block():
        begun.set()
        held.wait()

    async def first_in_line():
        waiting = asyncio.create_task(pool.run(lambda: order.append("run"), Deadline(60)))
        while pool.waiting < 1:
            await asyncio.sleep(0)
        called = asyncio.create_task(asyncio.to_thread(pool.call, lambda: order.append("call"), Deadline(60)))
        while pool.waiting < 2:
            await asyncio.sleep(0)
        with pytest.raises(RefusedError) as late:
            await asyncio.to_thread(pool.call, lambda: order.append("late"), Deadline(0.01))
        assert late.value.status == 504
        held.set()
        await asyncio.gather(waiting, called)

    blocking = threading.Thread(target=lambda: pool.call(block, Deadline(60)))
    blocking.start()
    begun.wait()
    asyncio.run(first_in_line())
    blocking.join()
    assert order == ["run", "call"]
    with pytest.raises(ZeroDivisionError):
        pool.call(lambda: 1 / 0, Deadline(60))
    assert pool.call(lambda: "still here", Deadline(60)) == "still here"
    pool.close()
    with pytest.raises(RefusedError) as refused:
        pool.call(lambda: None, Deadline(1))
    assert refused.value.status == 503


def test_a_closed_pool_refuses():
    pool = Pool(1, 10)
    pool.close()
    with pytest.raises(RefusedError) as refused:
        asyncio.run(pool.run(lambda: None, Deadline(1)))
    assert refused.value.status == 503


def test_spans_of_opentelemetry():
    trace = pytest.importorskip("opentelemetry.sdk.trace", reason="pip install opentelemetry-sdk")
    from opentelemetry import trace as api
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    kept = InMemorySpanExporter()
    provider = trace.TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    api.set_tracer_provider(provider)
    with span("retrieval notes", gen_ai__operation__name="retrieval", gen_ai__request__top_k=10, missing=None):
        pass
    (made,) = kept.get_finished_spans()
    assert made.name == "retrieval notes"
    assert dict(made.attributes) == {"gen_ai.operation.name": "retrieval", "gen_ai.request.top_k": 10}
