"""Where the daemon is, who asks, and how patiently."""

import os
import time
from dataclasses import dataclass

from cofferdam.errors import InvalidArgument

DEFAULT_ENDPOINT = "unix:/run/cofferdam/cofferd.sock"
ENDPOINT_VARIABLE = "COFFERDAM_ENDPOINT"
TOKEN_VARIABLE = "COFFERDAM_TOKEN"

# A whole file of 8 MiB as base64 is the largest answer; the daemon has limits of its own.
LARGEST_MESSAGE = 64 * 1024 * 1024
# A daemon that restarts is back within a second: no reason to wait longer for the next attempt.
CHANNEL_OPTIONS: list[tuple[str, int | str]] = [
    ("grpc.max_receive_message_length", LARGEST_MESSAGE),
    ("grpc.max_send_message_length", LARGEST_MESSAGE),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.enable_http_proxy", 0),
    # The SDK repeats calls itself: it knows which ones it may.
    ("grpc.enable_retries", 0),
]


@dataclass(frozen=True)
class Settings:
    """The settings of a client. Validated once, here."""

    endpoint: str
    token: str | None
    request_timeout: float
    patience: float

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        return (("authorization", f"Bearer {self.token}"),) if self.token else ()

    def __repr__(self) -> str:
        return f"Settings(endpoint={self.endpoint!r}, token={'…' if self.token else None!r})"


def settings(endpoint: str | None, token: str | None, request_timeout: float, patience: float) -> Settings:
    """The arguments, else the environment, else the defaults."""
    endpoint = endpoint or os.environ.get(ENDPOINT_VARIABLE) or DEFAULT_ENDPOINT
    token = token or os.environ.get(TOKEN_VARIABLE) or None
    if token is not None and not (token.isascii() and token.isprintable() and " " not in token):
        raise InvalidArgument("token: has characters that no token has", reason="INVALID_ARGUMENT")
    return Settings(_socket(endpoint), token, request_timeout, patience)


def _socket(endpoint: str) -> str:
    path = endpoint.removeprefix("unix:")
    if path == endpoint:
        raise InvalidArgument(
            f"endpoint: {endpoint!r} is no Unix socket; one looks like {DEFAULT_ENDPOINT}", reason="INVALID_ARGUMENT"
        )
    path = "/" + path.lstrip("/") if path.startswith("//") else path
    if not path.startswith("/"):
        raise InvalidArgument("endpoint: the path of a socket must be absolute", reason="INVALID_ARGUMENT")
    return f"unix:{path}"


class Patience:
    """How long a daemon that went away is waited for, from when it was first missed."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._until: float | None = None
        self._pause = 0.05

    def pause(self) -> float | None:
        """Seconds until the next attempt; None: no more attempts."""
        now = time.monotonic()
        if self._until is None:
            self._until = now + self._seconds
        if now >= self._until:
            return None
        pause, self._pause = self._pause, min(self._pause * 1.6, 1.0)
        return min(pause, max(self._until - now, 0.001))

    def restore(self) -> None:
        """The daemon answers."""
        self._until = None
        self._pause = 0.05
