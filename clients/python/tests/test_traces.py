"""The context of a trace: given, of OpenTelemetry, or none."""

import sys
from types import ModuleType, SimpleNamespace

import pytest

from cofferdam import InvalidArgument, trace_context
from cofferdam._settings import settings
from cofferdam._trace import current

TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def sent() -> dict[str, str]:
    return dict(settings("unix:/run/none.sock", "t0ken", None, 1.0, 1.0).metadata)


def opentelemetry(monkeypatch: pytest.MonkeyPatch, *, valid: bool, flags: int = 1) -> None:
    """As the module `opentelemetry.trace` is in a program that has imported it."""
    context = SimpleNamespace(
        trace_id=0x4BF92F3577B34DA6A3CE929D0E0E4736, span_id=0xF067AA0BA902B7, trace_flags=flags, is_valid=valid
    )
    module = ModuleType("opentelemetry.trace")
    module.get_current_span = lambda: SimpleNamespace(get_span_context=lambda: context)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", module)


@pytest.fixture(autouse=True)
def _without_opentelemetry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "opentelemetry.trace", raising=False)


def test_nothing_is_sent_outside_of_a_trace() -> None:
    assert sent() == {"authorization": "Bearer t0ken"}


def test_a_given_context_is_sent_within_its_block() -> None:
    with trace_context(TRACEPARENT):
        assert sent() == {"authorization": "Bearer t0ken", "traceparent": TRACEPARENT}
    assert current() is None


@pytest.mark.parametrize("flags", [0, 1, 3])
def test_the_active_span_of_opentelemetry_is_sent(monkeypatch: pytest.MonkeyPatch, flags: int) -> None:
    opentelemetry(monkeypatch, valid=True, flags=flags)
    assert current() == TRACEPARENT[:-1] + str(flags & 1)
    other = TRACEPARENT.replace("4bf9", "4bfa")
    with trace_context(other):
        assert current() == other


def test_a_span_that_is_not_valid_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    opentelemetry(monkeypatch, valid=False)
    assert current() is None


@pytest.mark.parametrize("text", ["", "x", TRACEPARENT + "\n", TRACEPARENT.upper(), f"00-{'0' * 32}-{'1' * 16}-01"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(InvalidArgument), trace_context(text):
        pass
