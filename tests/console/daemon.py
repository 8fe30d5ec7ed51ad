"""A cofferd that a test starts and ends, with a console; and `coffer`, as a user of this host.

COFFERDAM_TEST_COFFERD names the program; `coffer` is beside it.
"""

import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[2]
LEASH = REPOSITORY / "tests/harness/leash.sh"
READY = b" ready socket="
PATIENCE = 60.0
#: Users of this host, with what they may do: the tests run as root, who is the operator.
APPROVER, OTHER_APPROVER, AUDITOR = 12345, 12346, 12347
#: Exit code of `coffer` for a call that waits for a reviewer.
AWAITS = 4
#: The same for `coffer call exec`, whose exit code is otherwise that of the command.
EXEC_AWAITS = 123


def free_port() -> int:
    """One below those that outgoing connections are given: none of them takes it while the daemon does not listen."""
    lowest = max(2024, int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0]))
    while True:
        port = random.randrange(1024, lowest)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


def policies(directory: Path) -> None:
    """The shipped policies, and two profiles like `review`: `crowd` freezes no run, `hasty` gives reviewers five seconds."""
    shutil.copytree(REPOSITORY / "crates/policy/policies", directory)
    # All tests are one agent.
    review = (directory / "review.yaml").read_text()
    review = re.sub(r"minute: \d+, hour: \d+, day: \d+", "minute: 60000, hour: 600000, day: 6000000", review)
    (directory / "review.yaml").write_text(review)
    crowd = review.replace("  review:\n", "  crowd:\n").replace("freeze: true", "freeze: false")
    (directory / "crowd.yaml").write_text(crowd)
    hasty = review.replace("  review:\n", "  hasty:\n").replace("timeout_s: 300", "timeout_s: 5")
    (directory / "hasty.yaml").write_text(hasty)


class Daemon:
    """A cofferd with a directory of its own."""

    def __init__(self) -> None:
        self.place = Path(tempfile.mkdtemp(prefix="cofferdam-console-", dir="/var/tmp"))
        self.place.chmod(0o711)
        self.roots = self.place / "roots"
        self.roots.mkdir()
        self.socket = self.place / "cofferd.sock"
        self.port = free_port()
        self.directories: dict[str, Path] = {}
        policies(self.place / "policy")
        access = [f"{{ uid: {uid}, roles: [approver] }}" for uid in (APPROVER, OTHER_APPROVER)]
        access += [f"{{ uid: {AUDITOR}, roles: [auditor] }}"]
        (self.place / "cofferd.yaml").write_text(
            f'listen:\n  unix: {{ path: {self.socket}, mode: "0660" }}\n'
            f"state_dir: {self.place}/state\nworkspace_roots: [{self.roots}]\npolicy_dir: {self.place}/policy\n"
            f"approvals: {{ allow_self_approval: true }}\naccess: [{', '.join(access)}]\n"
            f'console: {{ listen: "127.0.0.1:{self.port}" }}\nruns: {{ on_stop: leave }}\n'
        )
        self.child: subprocess.Popen[bytes] | None = None
        self.leash: subprocess.Popen[bytes] | None = None
        self.launch()

    def launch(self) -> None:
        """Starts it, and waits until it says that it is ready."""
        path = self.place / "log"
        with path.open("ab") as log:
            before = log.tell()
            arguments = [os.environ["COFFERDAM_TEST_COFFERD"], "--config", str(self.place / "cofferd.yaml")]
            self.child = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.release()
        # Ends the daemon where these tests are killed.
        watcher = ["setsid", "sh", str(LEASH), str(self.child.pid), str(self.place)]
        self.leash = subprocess.Popen(watcher, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            assert self.child.poll() is None, path.read_text()
            if READY in path.read_bytes()[before:]:
                # Other users of this host are the reviewers.
                self.socket.chmod(0o666)
                return
            time.sleep(0.02)
        raise AssertionError(path.read_text())

    def release(self) -> None:
        """Tells the watcher of the daemon before that there is nothing more to end."""
        if self.leash is not None:
            self.leash.communicate(b"\n")
            self.leash = None

    def run_coffer(self, *arguments: str, uid: int = 0, codes: tuple[int, ...] = (0,)) -> subprocess.CompletedProcess[str]:
        program = Path(os.environ["COFFERDAM_TEST_COFFERD"]).with_name("coffer")
        command = [program, "--endpoint", f"unix:{self.socket}", *arguments]
        groups: dict[str, Any] = {"extra_groups": []} if uid else {}
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            user=uid,
            group=uid,
            stdin=subprocess.DEVNULL,
            cwd="/",
            check=False,
            **groups,
        )
        assert done.returncode in codes, f"{arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def coffer(self, *arguments: str, uid: int = 0, codes: tuple[int, ...] = (0,)) -> str:
        """The output of `coffer` with this daemon."""
        return self.run_coffer(*arguments, uid=uid, codes=codes).stdout.strip()

    def json(self, *arguments: str, codes: tuple[int, ...] = (0,)) -> Any:
        return json.loads(self.coffer("--output", "json", *arguments, codes=codes))

    def run(self, profile: str = "review", *options: str, on: str = "bind") -> str:
        """The id of a new run on a directory of the host, which it shares with no other."""
        directory = Path(tempfile.mkdtemp(dir=self.roots))
        directory.chmod(0o755)
        (directory / "a.txt").write_text("one\ntwo\nthree\n")
        run = self.coffer("run", "create", "--profile", profile, f"--{on}", str(directory), *options)
        self.directories[run] = directory
        return run

    def directory(self, run: str) -> Path:
        return self.directories[run]

    def ask(self, run: str, path: str = "a.txt", content: str = "changed\n") -> str:
        """Makes a call that waits for a reviewer, and returns the id of its approval."""
        call = self.json("call", "write", run, path, "--content", content, codes=(AWAITS,))
        return call["approvalId"]

    def state(self, approval: str) -> str:
        shown = self.json("approval", "show", approval)
        return shown.get("approval", shown)["state"]

    def link(self, uid: int = 0) -> str:
        """A link that signs in once."""
        return self.coffer("console", uid=uid).splitlines()[0]

    def stop(self) -> None:
        assert self.child is not None
        self.child.send_signal(signal.SIGTERM)
        self.child.wait(timeout=60)
        self.child = None

    def remove(self) -> None:
        if self.child is not None:
            self.stop()
        instance = self.place / "state" / "instance"
        if instance.exists():
            label = f"label=io.cofferdam.instance={instance.read_text().strip()}"
            listed = subprocess.run(["docker", "ps", "-aq", "--filter", label], capture_output=True, text=True, check=True)
            for container in listed.stdout.split():
                subprocess.run(["docker", "rm", "-f", container], capture_output=True, check=False)
        mounts = [line.split(" ")[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
        for mount in reversed([mount for mount in mounts if mount.startswith(f"{self.place}/")]):
            subprocess.run(["umount", "-l", mount], check=True)
        self.release()
        shutil.rmtree(self.place)
