"""The tools of an agent that repairs a function, and its command line."""

import os
import pathlib
import subprocess
import sys
import time

NAMES = ["read_file", "edit_file", "run_tests"]
WORK = pathlib.Path(os.environ.get("WORK", "/workspace/project"))


def run(name, arguments):
    if name == "read_file":
        return (WORK / arguments["path"]).read_text()
    if name == "edit_file":
        path = WORK / arguments["path"]
        text = path.read_text()
        assert text.count(arguments["old"]) == 1
        path.write_text(text.replace(arguments["old"], arguments["new"]))
        return "edited"
    if name == "run_tests":
        ran = subprocess.run([sys.executable, "-B", "test_sums.py"], cwd=WORK, capture_output=True, text=True)
        return "passed" if ran.returncode == 0 else "failed: " + ran.stderr[-500:]
    raise SystemExit(f"unknown tool {name}")


def main(commands):
    """Runs a command: `repair stream|whole`, `count N`, `refused`, `leave N`. Then waits until the file `go` is there, if one is awaited."""
    command, *arguments = sys.argv[1:]
    if command == "repair":
        print(commands[command](arguments == ["stream"]), flush=True)
    else:
        commands[command](*map(int, arguments))
        sys.stdout.flush()
    if "AWAIT" in os.environ:
        pathlib.Path(os.environ["AWAIT"] + ".waits").touch()
        while not pathlib.Path(os.environ["AWAIT"]).exists():
            time.sleep(0.05)
