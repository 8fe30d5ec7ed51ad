"""A reviewer that is a program: a process and a principal of its own, with the right to decide and nothing else.

    COFFERDAM_ENDPOINT=… COFFERDAM_TOKEN=… python reviewer.py

Each command that asks has a word of the test in it: `BATCH-NUMBER-of-SIZE`, and what is to be done with it. The reviewer
decides on the calls of a batch as soon as so many wait at once, all at the same time. It denies a word that ends in `deny`.
With a word that ends in `hold` it waits for a line on standard input. Calls without such a word are a framework's own: it
consents to each.

Standard output has a line of JSON for each decision: what was shown, and how many calls of the batch waited for it.
"""

import asyncio
import json
import re
import sys
from collections import defaultdict
from contextlib import suppress

from cofferdam import AsyncClient, v1

WORD = re.compile(r"\b(?P<batch>[0-9a-f]{8})-\d+-of-(?P<size>\d+)(?:-(?P<how>deny|hold))?\b")
DIGEST = re.compile(r"[0-9a-f]{64}")
# Words for the agent whose call is denied.
COMMENT = "not today"
# Seconds that a reviewer reads.
READING = 0.3
# Seconds for the other calls of a batch. The test says that they did not come.
PATIENCE = 20.0


class Reviewer:
    """Decides on all calls of a daemon."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client
        self._waiting: defaultdict[str, set[str]] = defaultdict(set)
        self._complete: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._released = asyncio.Event()
        self._decisions: dict[str, asyncio.Task[None]] = {}

    async def watch(self) -> None:
        """Until the daemon ends."""
        released = asyncio.create_task(self._release())
        async for change in self._client.approvals.watch_approvals(v1.WatchApprovalsRequest()):
            asked = change.approval
            if asked.state == v1.Approval.State.PENDING and asked.approval_id not in self._decisions:
                self._decisions[asked.approval_id] = asyncio.create_task(self._decide(asked))
            for task in [task for task in self._decisions.values() if task.done()]:
                # Raises the error of a decision that failed.
                task.result()
        released.cancel()

    async def _release(self) -> None:
        await asyncio.to_thread(sys.stdin.readline)
        self._released.set()

    async def _decide(self, asked: v1.Approval) -> None:
        word = WORD.search(asked.operation_json)
        how = None
        if word is not None:
            batch, how = word["batch"], word["how"]
            self._waiting[batch].add(asked.approval_id)
            if len(self._waiting[batch]) >= int(word["size"]):
                self._complete[batch].set()
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._complete[batch].wait(), PATIENCE)
            if how == "hold":
                await self._released.wait()
        await asyncio.sleep(READING)
        again = await self._client.approvals.get_approval(v1.GetApprovalRequest(approval_id=asked.approval_id))
        check_bound(asked, again.approval, word)
        request = v1.DecideApprovalRequest(approval_id=asked.approval_id, decision=v1.DecideApprovalRequest.Decision.APPROVE)
        if how == "deny":
            request.decision, request.comment = v1.DecideApprovalRequest.Decision.DENY, COMMENT
        decided = (await self._client.approvals.decide_approval(request)).approval
        print(
            json.dumps(
                {
                    "approval_id": asked.approval_id,
                    "call_id": asked.call_id,
                    "run_id": asked.run_id,
                    "state": v1.Approval.State.Name(decided.state),
                    "profile": asked.profile,
                    "digest": asked.digest,
                    "word": word.group() if word else None,
                    "together": len(self._waiting[word["batch"]]) if word else 1,
                }
            ),
            flush=True,
        )


def check_bound(asked: v1.Approval, now: v1.Approval, word: re.Match[str] | None) -> None:
    """What a reviewer consents to is one call in one state of its run, under one policy, and all of it is shown."""
    assert now.state == v1.Approval.State.PENDING, now
    assert DIGEST.fullmatch(now.digest), now
    assert now.policy_digest, now
    assert now.freezes_run, now
    for name in ("call_id", "run_id", "operation", "operation_json", "preview", "digest", "policy_digest"):
        assert getattr(asked, name) == getattr(now, name), name
    if word is not None:
        shown = {found.group() for found in WORD.finditer(now.preview)}
        assert shown == {word.group()}, now


async def main() -> None:
    async with AsyncClient() as client:
        await Reviewer(client).watch()


if __name__ == "__main__":
    asyncio.run(main())
