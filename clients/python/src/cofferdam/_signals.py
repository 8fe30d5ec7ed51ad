"""Names of signals, in each spelling that a caller may have."""

from typing import get_args

from cofferdam import v1
from cofferdam.errors import InvalidArgument
from cofferdam.types import Signal

_NAMES: tuple[str, ...] = get_args(Signal)
_NUMBERS: dict[int, str] = {int(v1.SignalProcessRequest.Signal.Value(name)): name for name in _NAMES}


def parse(signal: str | int) -> v1.SignalProcessRequest.Signal.ValueType:
    """The signal of a name in any case, with or without `SIG`, or of a number, also one of `signal.Signals`."""
    name: str | None = None
    if isinstance(signal, int):
        name = _NUMBERS.get(signal)
    elif isinstance(signal, str):
        upper = signal.upper()
        name = _NUMBERS.get(int(upper)) if upper.isascii() and upper.isdigit() else upper.removeprefix("SIG")
    if name is None or name not in _NAMES:
        message = f"signal: {signal!r} cannot be sent; the signals are {', '.join(_NAMES)}"
        raise InvalidArgument(message, reason="INVALID_ARGUMENT")
    return v1.SignalProcessRequest.Signal.Value(name)
