"""Makes several attempts at one repair, each in a run on the same base, and exports the change of the best one.

    best_of_n.py REPOSITORY [NUMBER]     4 unless given

REPOSITORY is on the daemon's host and has a test, `test.sh`. Prints a line for each attempt, and writes best.diff. The model
is a script, `model()`: put yours in its place.
"""

import asyncio
import sys
from dataclasses import dataclass
from pathlib import Path

from cofferdam import AsyncClient, AsyncSandbox, Base, v1

PROGRAMS = [
    "area() { echo $(($1 - $2)); }\n",
    "area() {\n    sum=0\n    for row in $(seq $1); do sum=$((sum + $2)); done\n    echo $sum\n}\n",
    "area() { echo $(($1 * $2)); }\n",
    "area() { echo $(($1 *)); }\n",
]


@dataclass
class Attempt:
    number: int
    passed: bool
    change: str

    @property
    def lines(self) -> int:
        """Lines that it adds or takes away."""
        lines = self.change.splitlines()
        return sum(line.startswith(("+", "-")) and not line.startswith(("+++", "---")) for line in lines)


def model(number: int) -> str:
    """A model that answers differently each time."""
    return PROGRAMS[number % len(PROGRAMS)]


async def base_of(client: AsyncClient, repository: str) -> str:
    """The base of the repository's commit. The daemon makes it once, and finds it the next time."""
    source = v1.BaseSource(clone=v1.CloneWorkspace(repository=repository))
    made = await client.bases.create_base(v1.CreateBaseRequest(source=source, reuse=True), timeout=600)
    return made.base.base_id


async def attempt(client: AsyncClient, base_id: str, number: int) -> Attempt:
    async with await AsyncSandbox.create(
        profile="open", workspace=Base(base_id), client=client, agent_id=f"attempt-{number}", timeout=300
    ) as sandbox:
        await sandbox.files.write("area.sh", model(number))
        test = await sandbox.commands.run(["sh", "test.sh"], timeout=60)
        return Attempt(number, test.ok, (await sandbox.diff()).unified)


async def attempts(repository: str, count: int) -> list[Attempt]:
    async with AsyncClient() as client:
        base_id = await base_of(client, repository)
        return await asyncio.gather(*(attempt(client, base_id, number) for number in range(count)))


def main(repository: str, count: int) -> int:
    made = asyncio.run(attempts(repository, count))
    for one in made:
        print(f"attempt {one.number}: {'passed' if one.passed else 'failed'}, {one.lines} lines")
    passed = [one for one in made if one.passed]
    if not passed:
        print("no attempt passed")
        return 1
    best = min(passed, key=lambda one: one.lines)
    Path("best.diff").write_text(best.change)
    print(f"best: attempt {best.number}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else len(PROGRAMS)))
