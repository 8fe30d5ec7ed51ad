"""Asks people in a chat for the consent that calls of agents wait for, and gives or refuses it as they say.

    approver_bot.py

The chat is this terminal: `Chat` is the part to replace by a chat tool's own client. The bot needs the API role `approver`
(`coffer token create bot --role approver`), and everybody who writes in the chat decides. Answers:

    yes ID              consents
    no ID REASON        refuses; the agent is told the reason

ID is the end of an approval's id, as the bot shows it.
"""

import asyncio
import sys
from collections.abc import AsyncGenerator

from cofferdam import AsyncClient, CofferdamError, NoConnection, v1

PENDING = v1.Approval.State.PENDING
DECISIONS = {"yes": v1.DecideApprovalRequest.Decision.APPROVE, "no": v1.DecideApprovalRequest.Decision.DENY}
# Seconds until a daemon that went away is asked again.
PAUSE = 1.0


class Chat:
    """A chat room."""

    async def post(self, text: str) -> None:
        print(text, flush=True)

    async def answers(self) -> AsyncGenerator[str, None]:
        while line := await asyncio.to_thread(sys.stdin.readline):
            yield line.strip()


def short(approval_id: str) -> str:
    return approval_id[-8:]


class Bot:
    """Knows the approvals that wait."""

    def __init__(self, client: AsyncClient, chat: Chat) -> None:
        self._client = client
        self._chat = chat
        self._waiting: dict[str, v1.Approval] = {}

    async def ask(self) -> None:
        """Posts each approval once, and its outcome, for as long as it lives."""
        while True:
            try:
                # The pending ones come first, also after a lost connection.
                async for change in self._client.approvals.watch_approvals(v1.WatchApprovalsRequest()):
                    await self._changed(change.approval)
            except NoConnection as error:
                await self._chat.post(f"No daemon: {error.message}")
            await asyncio.sleep(PAUSE)

    async def _changed(self, approval: v1.Approval) -> None:
        at = short(approval.approval_id)
        if approval.state == PENDING and at not in self._waiting:
            self._waiting[at] = approval
            asks = f"{at}: {approval.agent_id} asks for {approval.operation} ({approval.risk} risk)"
            await self._chat.post(f"{asks}\n{approval.preview}")
        elif approval.state != PENDING and self._waiting.pop(at, None) is not None:
            await self._chat.post(f"{at}: {v1.Approval.State.Name(approval.state).lower()} by {approval.decided_by}")

    async def listen(self) -> None:
        """Decides as the chat says, until it closes."""
        async for line in self._chat.answers():
            word, _, rest = line.partition(" ")
            at, _, reason = rest.strip().partition(" ")
            approval = self._waiting.get(at)
            if word not in DECISIONS or approval is None:
                await self._chat.post("Say `yes ID` or `no ID REASON`, with the ID of a request that waits.")
                continue
            request = v1.DecideApprovalRequest(
                approval_id=approval.approval_id, decision=DECISIONS[word], comment=reason or "by the chat"
            )
            try:
                await self._client.approvals.decide_approval(request)
            except CofferdamError as error:
                await self._chat.post(f"{at}: {error.message}. {error.hint}")


async def main() -> None:
    async with AsyncClient() as client:
        bot = Bot(client, Chat())
        asking = asyncio.create_task(bot.ask())
        await bot.listen()
        asking.cancel()


if __name__ == "__main__":
    asyncio.run(main())
