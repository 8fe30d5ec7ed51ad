"""The node of a fleet that a request is for, which goes with it as `cofferdam-node`: a balancer routes by that alone.

An id that a node made names the node. The README of the crate `node-id` has the layout.
"""

import re
from binascii import crc_hqx
from collections.abc import Iterable

from google.protobuf.message import Message

NODE_METADATA = "cofferdam-node"

# A UUID of version 7, as the daemon writes it.
_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
# Ids of what a daemon has. Those that a client makes, such as a request's, are not among them.
_FIELDS = frozenset(
    {
        "alert_id",
        "approval_id",
        "base_id",
        "call_id",
        "checkpoint_id",
        "consent_id",
        "lift_permission_id",
        "permission_id",
        "process_id",
        "run_id",
        "run_ids",
        "session_id",
        "token_id",
        "workspace_id",
    }
)
# Levels of messages within a request that are searched.
_DEPTH = 3


def node_of(written: str) -> int | None:
    """The node that made an id; None for an id of a daemon without a node, and for any other text."""
    if _ID.fullmatch(written) is None:
        return None
    data = bytes.fromhex(written.replace("-", ""))
    node = (data[6] & 0xF) << 12 | data[7] << 4 | data[8] & 0xF
    named = int.from_bytes(data[11:13], "big") == crc_hqx(data[:6] + node.to_bytes(2, "big"), 0xFFFF)
    return node if node and named else None


def node_for(request: Message | None) -> int | None:
    """The node of the first id in a request that names one: outer messages first, and fields by their numbers."""
    level = [] if request is None else [request]
    for _ in range(_DEPTH):
        inner: list[Message] = []
        for message in level:
            for field, value in message.ListFields():
                if isinstance(value, Message):
                    inner.append(value)
                elif field.name in _FIELDS:
                    for written in [value] if isinstance(value, str) else value:
                        node = node_of(written)
                        if node is not None:
                            return node
        level = inner
    return None


def names_node(metadata: Iterable[tuple[str, str | bytes]] | None) -> bool:
    """Whether the metadata of an answer is that of a node."""
    return any(name == NODE_METADATA for name, _ in metadata or ())
