"""A cofferd that a test starts and ends.

COFFERDAM_TEST_COFFERD names the program; `coffer` is beside it.
"""

import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

PATIENCE = 60.0
LEASH = Path(__file__).parents[3] / "tests/harness/leash.sh"
READY = b" ready socket="


def coffer(*arguments: str) -> str:
    program = Path(os.environ["COFFERDAM_TEST_COFFERD"]).with_name("coffer")
    return subprocess.run([program, *arguments], capture_output=True, text=True, check=True).stdout.strip()


class Daemon:
    """A cofferd with a directory of its own."""

    def __init__(self, config: str = "", tcp: str = "", *, self_approval: bool = True, roots: Path | None = None) -> None:
        """`tcp`: keys of `listen.tcp`. `self_approval`: a client may consent to its own calls. `roots`: workspaces."""
        self.place = Path(tempfile.mkdtemp(prefix="cofferdam-sdk-", dir="/var/tmp"))
        self.roots = roots or self.place / "roots"
        self.roots.mkdir(exist_ok=True)
        self.endpoint = f"unix:{self.place}/cofferd.sock"
        (self.place / "cofferd.yaml").write_text(
            f'listen:\n  unix: {{ path: {self.place}/cofferd.sock, mode: "0660" }}\n'
            + (f"  tcp: {{ {tcp} }}\n" if tcp else "")
            + f"state_dir: {self.place}/state\nworkspace_roots: [{self.roots}]\n"
            f"approvals: {{ allow_self_approval: {str(self_approval).lower()} }}\n{config}"
        )
        self.child: subprocess.Popen[bytes] | None = None
        self.leash: subprocess.Popen[bytes] | None = None
        self.launch()

    def launch(self) -> None:
        """Starts it, and waits until it says that it is ready."""
        program = os.environ["COFFERDAM_TEST_COFFERD"]
        path = self.place / "log"
        with path.open("ab") as log:
            before = log.tell()
            arguments = [program, "--config", str(self.place / "cofferd.yaml")]
            self.child = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.release()
        # Ends the daemon where these tests are killed.
        watcher = ["setsid", "sh", str(LEASH), str(self.child.pid), str(self.place)]
        self.leash = subprocess.Popen(watcher, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            assert self.child.poll() is None, path.read_text()
            if READY in path.read_bytes()[before:]:
                return
            time.sleep(0.02)
        raise AssertionError(path.read_text())

    def release(self) -> None:
        """Tells the watcher of the daemon before that there is nothing more to end."""
        if self.leash is not None:
            self.leash.communicate(b"\n")
            self.leash = None

    def coffer(self, *arguments: str) -> str:
        """The output of `coffer` with this daemon."""
        return coffer("--endpoint", self.endpoint, *arguments)

    @property
    def port(self) -> int:
        """Where it listens on TCP."""
        return int(re.findall(r"listens on TCP.*address=\S+:(\d+)", (self.place / "log").read_text())[-1])

    def kill_containers(self) -> None:
        """Kills all containers of its runs, as a kernel out of memory may."""
        instance = (self.place / "state" / "instance").read_text().strip()
        listed = ["docker", "ps", "--quiet", "--filter", f"label=io.cofferdam.instance={instance}"]
        containers = subprocess.run(listed, capture_output=True, text=True, check=True).stdout.split()
        subprocess.run(["docker", "kill", *containers], capture_output=True, check=True)

    def end(self, how: signal.Signals = signal.SIGTERM) -> None:
        assert self.child is not None
        self.child.send_signal(how)
        self.child.wait(timeout=60)
        self.child = None

    def remove(self) -> None:
        if self.child is not None:
            self.end()
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
