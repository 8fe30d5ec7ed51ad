"""Reviews a commit in a clone, under a profile that writes nothing and runs nothing, and prints a remark a line, as JSON.

    review_bot.py REPOSITORY [REVISION]

REPOSITORY is beneath one of the daemon's `workspace_roots`; REVISION is a commit of the history of its HEAD, and HEAD unless
given. Exit code 1: there are remarks.
The reviewer is a script, `remarks()`: put a model in its place.
"""

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from cofferdam import Clone, Sandbox

LONGEST = 120


@dataclass(frozen=True)
class Line:
    """A line that the commit adds."""

    path: str
    number: int
    text: str


@dataclass(frozen=True)
class Remark:
    path: str
    line: int
    remark: str


def added(diff: str) -> Iterator[Line]:
    """The lines that a unified diff adds, with their numbers in the new file."""
    path, number = "", 0
    for text in diff.splitlines():
        if header := re.match(r"\+\+\+ b/(.*)", text):
            path = header[1]
        elif hunk := re.match(r"@@ -\S+ \+(\d+)", text):
            number = int(hunk[1])
        elif text.startswith("+"):
            yield Line(path, number, text[1:])
            number += 1
        elif text.startswith(" "):
            number += 1


def remarks(sandbox: Sandbox, line: Line) -> Iterator[str]:
    """The remarks on a line. A reviewer may look at the whole repository."""
    if len(line.text) > LONGEST:
        yield f"is longer than {LONGEST} characters"
    if re.search(r"(password|secret|token)\s*=\s*[\"'][^\"']+", line.text, flags=re.I):
        yield "looks like a secret: take it from the environment"
    if defined := re.match(r"def (\w+)", line.text):
        others = [match for match in sandbox.search.grep(f"def {defined[1]}(") if match.path != f"/workspace/{line.path}"]
        if others:
            yield f"is defined in {others[0].path.removeprefix('/workspace/')}:{others[0].line}, too"


def review(repository: str, revision: str) -> list[Remark]:
    with Sandbox.create(profile="review", workspace=Clone(repository, keep=False), agent_id="reviewer") as sandbox:
        diff = sandbox.git.show(revision).output
        return [Remark(line.path, line.number, said) for line in added(diff) for said in remarks(sandbox, line)]


if __name__ == "__main__":
    found = review(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "HEAD")
    for remark in found:
        print(json.dumps(asdict(remark)))
    sys.exit(1 if found else 0)
