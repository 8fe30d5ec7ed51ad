"""Makes several attempts at one repair, each in a fork of one sandbox, and brings the change of the best one home.

    best_of_n.py REPOSITORY [NUMBER]     4 unless given, 2 at least

REPOSITORY is on the daemon's host and has a test, `test.sh`. Prints a line for each attempt. The change of the best one is
made in REPOSITORY itself. The model is a script, `model()`: put yours in its place.
"""

import asyncio
import sys

from cofferdam import AsyncSandbox, ComparedRun, Overlay

PROGRAMS = [
    "area() { echo $(($1 - $2)); }\n",
    "area() { echo $(($1 *)); }\n",
    "area() {\n    sum=0\n    for row in $(seq $1); do sum=$((sum + $2)); done\n    echo $sum\n}\n",
    "area() { echo $(($1 * $2)); }\n",
]


def model(number: int) -> str:
    """A model that answers differently each time."""
    return PROGRAMS[number % len(PROGRAMS)]


def lines(attempt: ComparedRun) -> int:
    """Lines that it adds or takes away."""
    return attempt.lines_added + attempt.lines_removed


def passed(attempt: ComparedRun) -> bool:
    return attempt.check is not None and attempt.check.ok


async def repair(origin: AsyncSandbox, count: int) -> bool:
    async with await origin.fork(count) as forks:
        if forks.failures:
            print(f"{count - len(forks)} attempts could not be made: {forks.failures[0].message}", file=sys.stderr)
        await asyncio.gather(*(fork.files.write("area.sh", model(number)) for number, fork in enumerate(forks)))
        attempts = (await forks.compare(["sh", "test.sh"], timeout=60)).runs
        for number, attempt in enumerate(attempts):
            print(f"attempt {number}: {'passed' if passed(attempt) else 'failed'}, {lines(attempt)} lines")
        winners = [number for number, attempt in enumerate(attempts) if passed(attempt)]
        if not winners:
            print("no attempt passed")
            return False
        best = min(winners, key=lambda number: lines(attempts[number]))
        changed = await forks[best].accept()
        print(f"best: attempt {best}, {changed} file changed")
        return True


async def main(repository: str, count: int) -> int:
    origin = await AsyncSandbox.create(profile="open", workspace=Overlay(repository), timeout=300)
    try:
        return 0 if await repair(origin, count) else 1
    finally:
        # It has no changes of its own.
        await origin.kill(delete_workspace=True)


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else len(PROGRAMS))))
