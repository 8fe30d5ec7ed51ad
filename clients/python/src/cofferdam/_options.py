"""Options of all calls of a sandbox object."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Options:
    """See `Sandbox.with_options`."""

    wait_for_approval: bool = False
    task_id: str = ""
    correlation_id: str = ""
    request_id: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
