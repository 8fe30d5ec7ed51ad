"""The nodes of a fleet: their list, the place in their logs, and the choice of one for a sandbox. No I/O but files."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import struct
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypedDict

from typing_extensions import Required

from cofferdam._options import OnAwaitingApproval
from cofferdam.errors import (
    Cancelled,
    CofferdamError,
    InfrastructureError,
    InternalError,
    InvalidArgument,
    LimitExceeded,
    NoConnection,
    RateLimited,
    TimedOut,
    Unavailable,
    WrongNodeError,
)
from cofferdam.types import AuditEvent, Base, Checkpoint, Companion, Every, FleetNode, Limits, NodeInfo, Workspace

FLEET_VARIABLE = "COFFERDAM_FLEET"
# Of the addresses of a DNS name.
DEFAULT_PORT = "7443"
# Bounds of a list of nodes.
MOST_NODES = 512
LARGEST_FILE = 1024 * 1024
LARGEST_NUMBER = 65_535
LARGEST_WEIGHT = 256
# Seconds for which the use of a node counts as known.
FRESH = 1.0
# Seconds until a node that did not answer is asked again, first and at most.
FIRST_REST = 0.5
LONGEST_REST = 10.0

_ADDRESS = re.compile(r"(?:[A-Za-z0-9_.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\]):[0-9]{1,5}")
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,253}")
_LOG = re.compile(r"[0-9a-f]{32}")
# A position is this, the version of its form, and base64 of one entry for each node: number, log, and sequence number.
_PREFIX = "p1."
_ENTRY = struct.Struct(">H16sQ")
_KEYS = frozenset({"id", "address", "server_name", "weight", "agent_check"})


class FleetCreateOptions(TypedDict, total=False):
    """Arguments of `AsyncSandbox.create` for a fleet: all but those of the connection."""

    profile: Required[str]
    image: str | None
    workspace: Workspace | None
    timeout: float | None
    idle_timeout: float | None
    lease: float | None
    keep_alive: bool
    env: Mapping[str, str] | None
    secret_env: Mapping[str, str] | None
    metadata: Mapping[str, str] | None
    agent_id: str
    role: str | None
    limits: Limits | None
    pkg_path: str | None
    writable_paths: Sequence[str]
    egress: Mapping[str, object] | None
    companions: Sequence[Companion]
    checkpoints: Every | None
    keep_checkpoints: int | None
    wait_for_approval: bool
    on_awaiting_approval: OnAwaitingApproval


def invalid(message: str) -> InvalidArgument:
    return InvalidArgument(message, reason="INVALID_ARGUMENT")


def is_away(error: CofferdamError) -> bool:
    """True if the node does not answer, cannot work now, or is another one: of a fleet that is a warning."""
    cannot = isinstance(error, RateLimited | Unavailable) or error.reason == "INTERNAL"
    # Each refusal of a daemon has a reason: this node is broken, is older, or is none.
    cannot = cannot or (not error.reason and type(error) in (CofferdamError, InternalError, LimitExceeded))
    return cannot or isinstance(error, NoConnection | TimedOut | WrongNodeError)


def has_no_answer(error: CofferdamError) -> bool:
    """True if the node itself has not said how the request ended."""
    is_cut = isinstance(error, Cancelled) and not error.reason
    return is_cut or isinstance(error, NoConnection | TimedOut)


def was_refused(error: CofferdamError) -> bool:
    """True if the node has certainly made no run, and another one may."""
    is_safe = isinstance(error, InfrastructureError | NoConnection) and error.retry_safe
    refuses = is_safe or error.reason in ("OVERLOADED", "NODE_DRAINED", "IMAGE_MISSING")
    # Its repetition was refused, and not the request.
    return refuses and not error._follows_lost_attempt


def draw(number: int, name: str) -> bytes:
    """The rank of a node for a named request: all clients try the nodes in the same order."""
    return hashlib.sha256(f"{number} {name}".encode()).digest()


# Lists of nodes.


@dataclass(frozen=True)
class DnsName:
    """A name whose addresses are the nodes."""

    host: str
    port: int


def named(fleet: str | Path | Sequence[FleetNode] | None) -> DnsName | tuple[FleetNode, ...]:
    """The nodes of a list or a file, or the name that stands for them."""
    if fleet is None:
        fleet = os.environ.get(FLEET_VARIABLE) or None
        if fleet is None:
            raise invalid(f"fleet: name a file, dns:NAME:PORT or nodes, or set {FLEET_VARIABLE}")
    if isinstance(fleet, str) and fleet.startswith("dns:"):
        host, separator, port = fleet.removeprefix("dns:").partition(":")
        port = port if separator else DEFAULT_PORT
        if _NAME.fullmatch(host) is None or not port.isascii() or not port.isdecimal() or not 0 < int(port) <= 65_535:
            raise invalid(f"fleet: a DNS name looks like dns:fleet.example.org:7443, not {fleet!r}")
        return DnsName(host, int(port))
    if isinstance(fleet, str | Path):
        return read(Path(fleet))
    return checked(fleet)


def checked(nodes: Sequence[FleetNode]) -> tuple[FleetNode, ...]:
    """The nodes, if each can be one and no two have the same number."""
    if not 1 <= len(nodes) <= MOST_NODES:
        raise invalid(f"fleet: must be 1 to {MOST_NODES} nodes, not {len(nodes)}")
    seen: set[int] = set()
    for node in nodes:
        if not node.endpoint:
            raise invalid("fleet: a node has no endpoint")
        if node.id is not None:
            if not _is_within(node.id, LARGEST_NUMBER):
                raise invalid(f"fleet: {node.id!r} is no number of a node: 1 to {LARGEST_NUMBER}")
            if node.id in seen:
                raise invalid(f"fleet: two nodes have the number {node.id}")
            seen.add(node.id)
        if not _is_within(node.weight, LARGEST_WEIGHT):
            raise invalid(f"fleet: {node.weight!r} is no weight: 1 to {LARGEST_WEIGHT}")
    return tuple(nodes)


def read(file: Path) -> tuple[FleetNode, ...]:
    """The nodes of a file in the form that `coffer fleet` reads: YAML, of which JSON is a part."""
    try:
        with file.open("rb") as opened:
            data = opened.read(LARGEST_FILE + 1)
    except OSError as error:
        raise invalid(f"fleet: {file} cannot be read: {error.strerror}") from None
    if len(data) > LARGEST_FILE:
        raise invalid(f"fleet: {file} is larger than {LARGEST_FILE} bytes")
    top = _parsed(file, data)
    if not isinstance(top, dict) or set(top) != {"nodes"} or not isinstance(top["nodes"], list):
        raise invalid(f"fleet: {file} must have a list of `nodes`, and nothing else")
    return checked([_node(f"fleet: {file}: nodes[{at}]", one) for at, one in enumerate(top["nodes"])])


def _parsed(file: Path, data: bytes) -> object:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        pass
    try:
        import yaml
    except ImportError:
        told = f"fleet: {file} is no JSON: for YAML, install cofferdam[fleet]"
        raise invalid(told) from None
    try:
        return yaml.safe_load(data)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise invalid(f"fleet: {file} is no YAML: {str(error).splitlines()[0]}") from None


def _node(where: str, one: object) -> FleetNode:
    if not isinstance(one, dict) or not set(one) <= _KEYS:
        raise invalid(f"{where}: must have `id` and `address`, and may have {sorted(_KEYS - {'id', 'address'})}")
    number, address, name = one.get("id"), one.get("address"), one.get("server_name")
    if not _is_within(number, LARGEST_NUMBER):
        raise invalid(f"{where}.id: must be 1 to {LARGEST_NUMBER}")
    if not isinstance(address, str) or _ADDRESS.fullmatch(address) is None:
        raise invalid(f"{where}.address: must look like node-7.example.org:7443")
    if name is not None and (not isinstance(name, str) or _NAME.fullmatch(name) is None):
        raise invalid(f"{where}.server_name: must be a host name")
    return FleetNode(number, f"https://{address}", name, one.get("weight", 1))


def _is_within(number: object, largest: int) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and 1 <= number <= largest


# The place in the logs of all nodes.


@dataclass(frozen=True)
class Mark:
    """A place in one log: after this record."""

    #: Identity of the log.
    log: bytes
    sequence: int

    @classmethod
    def of(cls, event: AuditEvent) -> Mark:
        written = event.record.get("log")
        log = bytes.fromhex(written) if isinstance(written, str) and _LOG.fullmatch(written) else b""
        if not log:
            raise InternalError("a record of the audit log names no log")
        return cls(log, event.sequence)


@dataclass
class Position:
    """By node: the last record of its log that was seen. Written as `coffer --fleet audit tail` writes it."""

    of: dict[int, Mark] = field(default_factory=dict)

    @classmethod
    def read(cls, written: str | None) -> Position:
        """The place that `written` gives. None or empty: before all records."""
        position = cls()
        if not written:
            return position
        try:
            encoded = written.removeprefix(_PREFIX)
            if encoded == written or len(encoded) > -(-MOST_NODES * _ENTRY.size // 3) * 4:
                raise ValueError
            raw = base64.b64decode(encoded + "=" * (-len(encoded) % 4), altchars=b"-_", validate=True)
            for node, log, sequence in _ENTRY.iter_unpack(raw):
                if node == 0 or node in position.of:
                    raise ValueError
                position.of[node] = Mark(log, sequence)
        except (ValueError, struct.error):
            raise invalid("position: is none that `watch_events` gave") from None
        return position

    def saw(self, node: int, mark: Mark, fleet: Collection[int]) -> None:
        """Takes the last record of a node. Where there are too many nodes, one that left the fleet is forgotten.

        Others that left stay: a node may be back in the list, and goes on where it was.
        """
        if node not in self.of and len(self.of) >= MOST_NODES:
            del self.of[min(self.of, key=lambda number: (number in fleet, number))]
        self.of[node] = mark

    def after(self, node: int, end: Mark | None) -> int:
        """The last record that was seen of the log that ends so. 0: none, and so in a log that is another one or shorter."""
        seen = self.of.get(node)
        is_there = seen is not None and end is not None and seen.log == end.log and seen.sequence <= end.sequence
        return seen.sequence if seen is not None and is_there else 0

    def reaches(self, node: int, end: Mark | None) -> bool:
        """True if the log of the node was seen to this end."""
        seen = self.of.get(node)
        return end is None or (seen is not None and seen.log == end.log and seen.sequence >= end.sequence)

    def written(self) -> str:
        raw = b"".join(_ENTRY.pack(node, mark.log, mark.sequence) for node, mark in sorted(self.of.items()))
        return _PREFIX + base64.urlsafe_b64encode(raw).decode().rstrip("=")


# The choice of a node.


@dataclass
class Standing:
    """Facts about a node that decide if it gets the next sandbox."""

    weight: int
    info: NodeInfo | None = None
    #: Sandboxes that were given to it since `info`, and those of them that are being made.
    given: int = 0
    making: int = 0
    #: It did not answer, and gets no sandbox until it does.
    is_suspect: bool = False
    _asked_at: float = float("-inf")
    _rest: float = FIRST_REST
    _counting: threading.Lock = field(default_factory=threading.Lock)

    @property
    def is_stale(self) -> bool:
        """It has to be asked before it is chosen."""
        return not self.is_suspect and time.monotonic() >= self._asked_at + FRESH

    def is_due(self) -> bool:
        """Tells once that it is time to ask a node again that did not answer."""
        due = self.is_suspect and time.monotonic() >= self._asked_at + self._rest
        if due:
            self._asked_at, self._rest = time.monotonic(), min(2 * self._rest, LONGEST_REST)
        return due

    def answered(self, info: NodeInfo) -> None:
        with self._counting:
            self.info, self.given = info, self.making
        self.is_suspect, self._asked_at, self._rest = False, time.monotonic(), FIRST_REST

    def failed(self) -> None:
        self.info, self.is_suspect, self._asked_at = None, True, time.monotonic()

    def begin(self) -> None:
        with self._counting:
            self.given += 1
            self.making += 1

    def end(self) -> None:
        with self._counting:
            self.making -= 1

    def rank(self) -> tuple[bool, float, float]:
        """Nodes that make runs come first, and of these the least loaded one."""
        load = 0.0
        if self.info is not None and self.info.capacity is not None and self.info.used is not None:
            used, capacity = self.info.used, self.info.capacity
            pairs = (
                (used.runs + self.given, capacity.runs),
                (used.memory_mib, capacity.memory_mib),
                (used.cores, capacity.cores),
                (used.disk_mib, capacity.disk_mib),
            )
            load = max((taken / most for taken, most in pairs if most > 0), default=0.0)
        is_closed = self.info is not None and self.info.state != "serving"
        return is_closed, load / self.weight, self.given / self.weight


def home_of(workspace: Workspace | None) -> str:
    """The id of what a sandbox begins with, which is on one node; empty: it begins with nothing of a node."""
    match workspace:
        case Base():
            return workspace.base_id
        case Checkpoint():
            return workspace.checkpoint_id
        case _:
            return getattr(workspace, "workspace_id", None) or ""
