"""Repairs a program in a clone of a repository, and exports the change.

loop.py REPOSITORY
"""

import sys
from pathlib import Path

from cofferdam import Clone, Denied, Sandbox

PROGRAM = "area() { echo $(($1 * $2)); }\n"
TEST = ["sh", "test.sh"]


def main(repository: str) -> None:
    workspace = Clone(repository, keep=False)
    with Sandbox.create(profile="open", agent_id="repairer", workspace=workspace) as sandbox:
        print("before:", sandbox.commands.run(TEST).exit_code)
        sandbox.files.write("area.sh", PROGRAM)
        print("after:", sandbox.commands.run(TEST, timeout=60, check=True).stdout.strip())
        try:
            sandbox.commands.run(["rm", "-rf", "."])
        except Denied as refusal:
            print("refused:", refusal.reason)
        for event in sandbox.audit.stream(follow=False, kinds=["call_receipt"]):
            print("event:", event.operation, event.record["outcome"]["status"])
        Path("change.diff").write_text(sandbox.git.diff().output)


if __name__ == "__main__":
    main(sys.argv[1])
