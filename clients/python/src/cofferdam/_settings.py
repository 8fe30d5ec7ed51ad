"""Where the daemon is, who asks, and how patiently."""

import ipaddress
import os
import re
import time
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from google.protobuf.message import Message

from cofferdam._node import NODE_METADATA, node_for
from cofferdam._trace import current
from cofferdam.errors import InvalidArgument
from cofferdam.types import Tls

DEFAULT_ENDPOINT = "unix:/run/cofferdam/cofferd.sock"
ENDPOINT_VARIABLE = "COFFERDAM_ENDPOINT"
TOKEN_VARIABLE = "COFFERDAM_TOKEN"
TLS_VARIABLE = "COFFERDAM_TLS"

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,253}")

# Far more than any message of the daemon has.
LARGEST_MESSAGE = 64 * 1024 * 1024
# A daemon that restarts is back within a second. Attempts come more often than the shortest `reconnect_timeout` that makes
# sense, or a daemon that is back is given up with the error of the last attempt.
CHANNEL_OPTIONS: list[tuple[str, int | str]] = [
    ("grpc.max_receive_message_length", LARGEST_MESSAGE),
    ("grpc.max_send_message_length", LARGEST_MESSAGE),
    ("grpc.initial_reconnect_backoff_ms", 100),
    # In spite of its name: the time that each attempt has.
    ("grpc.min_reconnect_backoff_ms", 5000),
    ("grpc.max_reconnect_backoff_ms", 250),
    ("grpc.enable_http_proxy", 0),
    # The SDK repeats calls itself: it knows which ones it may.
    ("grpc.enable_retries", 0),
    # Signs of life: a network may lose a connection without a word, and a daemon may hang, also at a Unix socket.
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    # Newer versions of gRPC wait so long for the answer to a ping; default: a minute.
    ("grpc.http2.ping_timeout_ms", 20_000),
    ("grpc.http2.max_pings_without_data", 0),
]


@dataclass(frozen=True)
class Certificates:
    """The contents of the files of `Tls`."""

    ca: bytes | None
    cert: bytes | None
    key: bytes | None = field(repr=False)


@dataclass(frozen=True)
class Settings:
    """The settings of a client. Validated once, here."""

    #: As the user writes it.
    endpoint: str
    #: As gRPC takes it.
    target: str
    #: None: in the clear, which is for this host alone.
    certificates: Certificates | None
    token: str | None
    request_timeout: float
    patience: float
    #: In the daemon's certificate. None: the host of the endpoint.
    server_name: str | None = None
    #: The node that requests are for whose ids name none. None: no certain one.
    node: int | None = None

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """Of a request that is sent now."""
        token = (("authorization", f"Bearer {self.token}"),) if self.token else ()
        trace = current()
        return (*token, ("traceparent", trace)) if trace else token

    def metadata_for(self, request: Message | None) -> tuple[tuple[str, str], ...]:
        """Of this request, or of a stream that begins with it: also the node that it is for, if that is known."""
        node = node_for(request) or self.node
        return self.metadata if node is None else (*self.metadata, (NODE_METADATA, str(node)))

    @property
    def options(self) -> list[tuple[str, int | str]]:
        """Of the channel."""
        name: list[tuple[str, int | str]] = []
        if self.server_name is not None:
            name = [("grpc.ssl_target_name_override", self.server_name), ("grpc.default_authority", self.server_name)]
        return [*CHANNEL_OPTIONS, *name]

    def __repr__(self) -> str:
        return f"Settings(endpoint={self.endpoint!r}, token={'…' if self.token else None!r})"


def settings(
    endpoint: str | None,
    token: str | None,
    tls: str | Path | Tls | None,
    request_timeout: float,
    patience: float,
    server_name: str | None = None,
) -> Settings:
    """The arguments, else the environment, else the defaults."""
    endpoint = endpoint or os.environ.get(ENDPOINT_VARIABLE) or DEFAULT_ENDPOINT
    token = token or os.environ.get(TOKEN_VARIABLE) or None
    if token is not None and not (token.isascii() and token.isprintable() and " " not in token):
        raise _invalid("token: has characters that a token cannot have")
    certificates = None
    if endpoint.startswith("https://"):
        target = _authority(endpoint)
        certificates = _certificates(tls or os.environ.get(TLS_VARIABLE) or Tls())
    elif tls is not None:
        raise _invalid("tls: is for an endpoint that begins with https://")
    elif endpoint.startswith("http://"):
        target = _authority(endpoint)
        if not _is_this_host(urlsplit(endpoint).hostname or ""):
            raise _invalid(f"endpoint: {endpoint!r} is not this host: use https for other hosts")
    else:
        endpoint = target = _socket(endpoint)
    if server_name is not None and (certificates is None or _NAME.fullmatch(server_name) is None):
        raise _invalid("server_name: is a host name, for an endpoint that begins with https://")
    return Settings(endpoint, target, certificates, token, request_timeout, patience, server_name)


def _invalid(message: str) -> InvalidArgument:
    return InvalidArgument(message, reason="INVALID_ARGUMENT")


def _authority(endpoint: str) -> str:
    """Host and port."""
    try:
        parts = urlsplit(endpoint)
        whole = parts.port is not None and parts.hostname and not (parts.username or parts.query or parts.fragment)
    except ValueError:
        whole = False
    if not whole or parts.path.strip("/"):
        raise _invalid(f"endpoint: one over a network looks like https://cofferd.example.org:7443, not {endpoint!r}")
    return parts.netloc


def _is_this_host(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _certificates(tls: str | Path | Tls) -> Certificates:
    if not isinstance(tls, Tls):
        directory = Path(tls)
        cert = directory / "cert.pem"
        # A directory with an authority alone is for a client that has a token.
        pair = (cert, directory / "key.pem") if cert.exists() else (None, None)
        tls = Tls(directory / "ca.pem", *pair)
    if (tls.cert is None) != (tls.key is None):
        raise _invalid("tls: give both a certificate and its key")
    return Certificates(*(None if file is None else _content(file) for file in (tls.ca, tls.cert, tls.key)))


def _content(file: str | Path) -> bytes:
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise _invalid(f"tls: {file} cannot be read: {error.strerror}") from None


def _socket(endpoint: str) -> str:
    path = endpoint.removeprefix("unix:")
    if path == endpoint:
        raise _invalid(f"endpoint: {endpoint!r} looks neither like {DEFAULT_ENDPOINT} nor like https://example.org:7443")
    path = "/" + path.lstrip("/") if path.startswith("//") else path
    if not path.startswith("/"):
        raise _invalid("endpoint: the path of a socket must be absolute")
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


class Pauses:
    """Pauses between the attempts of a call while its run waits for a person. Each attempt is on record and counts."""

    #: Seconds.
    LONGEST = 15.0

    def __init__(self) -> None:
        self._next = 1.0

    def next(self) -> float:
        """Seconds until the next attempt."""
        pause, self._next = self._next, min(2 * self._next, self.LONGEST)
        return pause
