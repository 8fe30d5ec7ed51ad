"""The context of a trace, which goes with each request as `traceparent` of W3C Trace Context."""

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from cofferdam.errors import InvalidArgument

TRACEPARENT = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")

_given: ContextVar[str | None] = ContextVar("cofferdam_traceparent", default=None)


@contextmanager
def trace_context(traceparent: str) -> Iterator[None]:
    """Requests within the block belong to this trace, such as `00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01`.

    Without it, the active span of OpenTelemetry is sent, if the program has one. Threads that the block starts send neither.

    Raises `InvalidArgument` for a text that is no `traceparent`.
    """
    if TRACEPARENT.fullmatch(traceparent) is None:
        message = "traceparent: looks like 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
        raise InvalidArgument(message, reason="INVALID_ARGUMENT")
    token = _given.set(traceparent)
    try:
        yield
    finally:
        _given.reset(token)


def current() -> str | None:
    """What the next request sends. A program that has not imported OpenTelemetry has no active span."""
    given = _given.get()
    trace: Any = sys.modules.get("opentelemetry.trace")
    # It is missing while another thread still imports the module.
    active = getattr(trace, "get_current_span", None)
    if given is not None or active is None:
        return given
    span = active().get_span_context()
    if not span.is_valid:
        return None
    return f"00-{span.trace_id:032x}-{span.span_id:016x}-{int(span.trace_flags) & 1:02x}"
