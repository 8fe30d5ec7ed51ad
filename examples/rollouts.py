"""Many attempts at one task at once, each in a sandbox of its own, scored by a test that the agent does not see.

    rollouts.py [NUMBER]     100 unless given

Prints a line of JSON for each attempt, and a summary at last. An attempt whose program never ends, or breaks its own
sandbox, has the reward 0. Another failure, such as of the host, says nothing about it: it has no reward, and ends no other
attempt. The agent is a script, `attempt()`: put yours in its place.
"""

import asyncio
import json
import random
import sys
import time

from cofferdam import AsyncClient, AsyncSandbox, CofferdamError, CommandError

# Makes of containers at the same time. The others wait here, where they cost nothing.
AT_ONCE = 32
TEST = '[ "$(sh answer.sh 6 7)" = 42 ] && [ "$(sh answer.sh 5 5)" = 25 ]'


async def attempt(sandbox: AsyncSandbox, seed: int) -> None:
    """An agent that guesses an operator."""
    operator = random.Random(seed).choice("+-*")
    await sandbox.files.write("answer.sh", f"echo $(($1 {operator} $2))\n")
    await sandbox.commands.run(["sh", "answer.sh", "1", "1"], timeout=10)


def is_own(error: CofferdamError) -> bool:
    """True if the agent's programs have failed, also by a limit that they reached."""
    return error.fault == "program" or (error.fault == "policy" and isinstance(error, CommandError))


async def rollout(client: AsyncClient, slots: asyncio.Semaphore, seed: int) -> dict[str, object]:
    try:
        return await scored(client, slots, seed)
    except CofferdamError as error:
        return {"seed": seed, **({"reward": 0.0} if is_own(error) else {}), "failed": str(error)}


async def scored(client: AsyncClient, slots: asyncio.Semaphore, seed: int) -> dict[str, object]:
    begun = time.monotonic()
    async with (
        slots,
        await AsyncSandbox.create(
            # Rate limits count the runs of one agent together.
            profile="open",
            client=client,
            agent_id=f"rollout-{seed}",
            metadata={"seed": str(seed)},
            timeout=300,
        ) as sandbox,
    ):
        await attempt(sandbox, seed)
        test = await sandbox.commands.run(TEST, timeout=10)
        return {"seed": seed, "run_id": sandbox.run_id, "reward": float(test.ok), "seconds": time.monotonic() - begun}


async def main(number: int) -> None:
    begun, slots = time.monotonic(), asyncio.Semaphore(AT_ONCE)
    async with AsyncClient() as client:
        results = []
        for work in asyncio.as_completed([rollout(client, slots, seed) for seed in range(number)]):
            results.append(await work)
            print(json.dumps(results[-1]), flush=True)
    rewards = [float(str(result["reward"])) for result in results if "reward" in result]
    mean = f"{sum(rewards) / len(rewards):.2f}" if rewards else "none"
    took, failed = time.monotonic() - begun, number - len(rewards)
    print(f"{number} rollouts in {took:.1f} s, mean reward {mean}, {failed} failed without a reward")


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 100))
