"""Options of all calls of a sandbox object."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

#: What a call does that finds its run waiting for a reviewer of another call.
OnAwaitingApproval = Literal["wait", "raise"]


@dataclass(frozen=True)
class Options:
    """See `Sandbox.with_options`."""

    wait_for_approval: bool = False
    on_awaiting_approval: OnAwaitingApproval = "wait"
    task_id: str = ""
    correlation_id: str = ""
    request_id: str = ""
    env: Mapping[str, str] = field(default_factory=dict)

    @property
    def outlasts_reviewers(self) -> bool:
        """Whether a call that could not be made because of reviewers is made anew.

        One that has a request id cannot be: the refusal is the outcome of that id.
        """
        return self.wait_for_approval and self.on_awaiting_approval == "wait" and not self.request_id
