"""A person's consent as an interrupt of LangGraph.

```text
call ──ApprovalRequired──▶ interrupt(what is asked)        the graph stops; its checkpoint says why
                              ▼ resumed with any value     after somebody has decided
call under the same request id ──▶ its outcome             or another interrupt, if nobody has
```

LangGraph repeats a step that was interrupted from its beginning. Each call in it has a request id that is the same every
time, also in another process, so that the daemon gives the outcome of those that were made already. It remembers each for an
hour after its end.
"""

import json
import threading
import time
import uuid
from collections import Counter, OrderedDict
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import ClassVar, TypeVar

from langgraph.runtime import ExecutionInfo, Runtime, get_runtime
from langgraph.types import interrupt

from cofferdam import ApprovalInfo, Sandbox
from cofferdam._settings import Pauses
from cofferdam._status import is_void
from cofferdam._sync.caller import QUESTIONS
from cofferdam.errors import ApprovalRequired, AwaitingApproval, CofferdamError, PreconditionFailed

T = TypeVar("T")

# Steps of graphs of which it is remembered what they have called so far: those that may be under way at once.
STEPS = 1024
# Characters of a summary that is not the daemon's.
SUMMARY = 2_000


@dataclass
class _Step:
    """One execution of a step."""

    execution: ExecutionInfo
    calls: Counter[str] = field(default_factory=Counter)


class Interrupts:
    """Makes the calls of one sandbox."""

    # Of all backends: a graph may make one for each call.
    _steps: ClassVar[OrderedDict[tuple[str | None, str], _Step]] = OrderedDict()
    _lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox

    def call(self, wanted: dict[str, object], make: Callable[[Sandbox], T]) -> T:
        """What `make` returns, which makes one call. `wanted`: everything that tells this call from others, as JSON.

        Raises `ApprovalRequired` outside of a graph, and in one without a checkpointer, which could not go on.
        """
        execution = _execution()
        if execution is None:
            return make(self._sandbox)
        sandbox = self._sandbox.with_options(request_id=self._request_id(execution, wanted))
        waits, left, pauses = self._sandbox._options.outlasts_reviewers, QUESTIONS, Pauses()
        with ExitStack() as turn:
            while True:
                try:
                    return make(sandbox)
                except ApprovalRequired as asked:
                    approval = self._approval(asked)
                    if approval is None or approval.state == "pending":
                        interrupt(_told(self._sandbox.run_id, asked, approval, wanted))
                    else:
                        # Decided at this moment: it goes on by itself.
                        self._sandbox.calls.wait(asked.call_id or "")
                    continue
                except AwaitingApproval:
                    if not waits:
                        raise
                    time.sleep(pauses.next())
                except PreconditionFailed as error:
                    # Approved too late: another call has changed the files that the reviewer saw.
                    if not is_void(error.details) or (waits and left == 0):
                        raise
                    # Without a wait each further question is an interrupt, which is the bound.
                    if waits:
                        if left == QUESTIONS:
                            turn.enter_context(self._sandbox.client._transport.turn(self._sandbox.run_id))
                        left -= 1
                # Nothing was done: that is the outcome of the id for good. The next id is the same when a step is repeated.
                sandbox = self._sandbox.with_options(request_id=self._request_id(execution, wanted))

    def _request_id(self, execution: ExecutionInfo, wanted: dict[str, object]) -> str:
        name = json.dumps([self._sandbox.run_id, execution.thread_id, execution.checkpoint_ns, wanted], sort_keys=True)
        with self._lock:
            number = self._count(execution, name)
        return f"langgraph-{uuid.uuid5(uuid.NAMESPACE_OID, f'{number}:{name}').hex}"

    def _count(self, execution: ExecutionInfo, name: str) -> int:
        """How often it was made before in this execution of the step."""
        key = (execution.thread_id, execution.checkpoint_ns)
        step = self._steps.get(key)
        if step is None or step.execution is not execution:
            step = self._steps[key] = _Step(execution)
        self._steps.move_to_end(key)
        while len(self._steps) > STEPS:
            self._steps.popitem(last=False)
        number = step.calls[name]
        step.calls[name] += 1
        return number

    def _approval(self, asked: ApprovalRequired) -> ApprovalInfo | None:
        """None: not everybody may look at approvals."""
        with suppress(CofferdamError):
            return self._sandbox.approvals.get(asked.approval_id)
        return None


def _told(
    run_id: str, asked: ApprovalRequired, approval: ApprovalInfo | None, wanted: dict[str, object]
) -> dict[str, object]:
    """For the program that resumes the graph; plain values, for it goes into checkpoints."""
    return {
        "type": "cofferdam_approval",
        "approval_id": asked.approval_id,
        "call_id": asked.call_id,
        "run_id": run_id,
        "operation": approval.operation if approval else wanted["operation"],
        "summary": approval.preview if approval else json.dumps(wanted, ensure_ascii=False)[:SUMMARY],
        "risk": approval.risk if approval else "",
        "decide": f"coffer approval approve {asked.approval_id}",
    }


def _execution() -> ExecutionInfo | None:
    """None: nothing here can be interrupted and resumed."""
    try:
        # None in a runnable that is no graph.
        runtime: Runtime | None = get_runtime()
    except (RuntimeError, KeyError):
        return None
    execution = None if runtime is None else runtime.execution_info
    return None if execution is None or execution.thread_id is None else execution
