"""OpenTelemetry spans where its API is installed and set up; otherwise nothing, at no cost."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

try:
    from opentelemetry import trace
except ImportError:  # an extra that most do without
    trace = None  # type: ignore[assignment]


@contextmanager
def span(name: str, **attributes: Any) -> Iterator[None]:
    """Record a span with attributes; underscores in their names stand for dots (``gen_ai__request__top_k``)."""
    if trace is None or isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):  # nobody has set it up
        yield
        return
    tracer = trace.get_tracer("weft.serving")
    named = {key.replace("__", "."): value for key, value in attributes.items() if value is not None}
    with tracer.start_as_current_span(name, kind=trace.SpanKind.SERVER, attributes=named):
        yield
