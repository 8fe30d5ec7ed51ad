"""Explores a tree of episodes: each step is tried in several ways from a checkpoint of the state before it.

    episode_tree.py [STEPS]     3 unless given

Prints the reward of each episode, and the best path. The actions are a list and the reward is a script in the sandbox: put
your model and your check in their place.
"""

import asyncio
import sys
from dataclasses import dataclass

from cofferdam import AsyncClient, AsyncSandbox, CommandResult

ACTIONS = ["+ 3", "* 2", "- 1"]
# Distance of the total from 14.
DISTANCE = "d=$(($(cat total) - 14)); echo ${d#-}"


@dataclass(frozen=True)
class Episode:
    path: tuple[str, ...]
    reward: float


async def act(sandbox: AsyncSandbox, action: str) -> None:
    """One step of an agent."""
    await sandbox.commands.run(f"echo $(($(cat total) {action})) > total", timeout=10, check=True)


def reward(check: CommandResult | None) -> float:
    """The reward of a state. Raises for a check that the infrastructure lost, which is no reward of 0."""
    if check is not None and check.failed_by_infrastructure:
        raise RuntimeError(f"a check was lost: {dict(check.evidence)}")
    return 1 / (1 + int(check.stdout)) if check is not None and check.ok else 0.0


async def explore(client: AsyncClient, checkpoint: str, path: tuple[str, ...], steps: int) -> list[Episode]:
    """All episodes that go on from a checkpoint, with so many steps left."""
    async with await client.fork(checkpoint, len(ACTIONS)) as forks:
        if forks.failures:
            raise RuntimeError(forks.failures[0].message)
        await asyncio.gather(*(act(fork, action) for fork, action in zip(forks, ACTIONS, strict=True)))
        paths = [(*path, action) for action in ACTIONS]
        if steps > 1:
            episodes = []
            for fork, taken in zip(forks, paths, strict=True):
                episodes += await explore(client, await fork.checkpoint(f"step {len(taken)}"), taken, steps - 1)
            return episodes
        checks = [run.check for run in (await forks.compare(DISTANCE, timeout=10)).runs]
        return [Episode(taken, reward(check)) for taken, check in zip(paths, checks, strict=True)]


async def main(steps: int) -> None:
    async with (
        AsyncClient() as client,
        await AsyncSandbox.create(profile="open", client=client, agent_id="episodes", timeout=600) as sandbox,
    ):
        await sandbox.files.write("total", "1\n")
        episodes = await explore(client, await sandbox.checkpoint("start"), (), steps)
    for episode in episodes:
        print(f"{', '.join(episode.path)}: {episode.reward:.2f}")
    best = max(episodes, key=lambda episode: episode.reward)
    print(f"best of {len(episodes)}: {', '.join(best.path)}, reward {best.reward:.2f}")


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 3))
