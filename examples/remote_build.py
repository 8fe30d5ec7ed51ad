"""Takes a directory into a sandbox, runs commands in it one after the other, and brings the directory `out` back.

    remote_build.py DIRECTORY COMMAND…

The commands share one shell. The first one that fails ends it, with its exit code. The sandbox lives as long as this
program: if the program is killed, the daemon ends the sandbox within a minute.
"""

import sys
from pathlib import Path

from cofferdam import FileNotFound, Sandbox

LEASE = 60.0


def build(directory: Path, commands: list[str]) -> int:
    with Sandbox.create(profile="harness", lease=LEASE, keep_alive=True, agent_id="remote-build") as sandbox:
        sent = sandbox.files.upload(directory, "source")
        print(f"{sent.entries} entries, {sent.size} bytes; {sent.left_out} left out", file=sys.stderr)
        with sandbox.sessions.open(cwd="/workspace/source") as shell:
            for command in commands:
                shown = shell.run(command)
                print(shown.output, end="", flush=True)
                if not shown.ok:
                    return shown.exit_code or 1
        try:
            sandbox.files.download("source/out", directory / "out")
        except FileNotFound:
            print("the commands have made no directory `out`", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    sys.exit(build(Path(sys.argv[1]), sys.argv[2:]))
