"""A daemon for the tests: the one that the environment names, or one of their own.

COFFERDAM_TEST_COFFERD   the program; tests that end a daemon start their own with it
COFFERDAM_TEST_IMAGE     an image with bash and Python, for what the default image cannot do
"""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

PATIENCE = 60.0


class Daemon:
    """A cofferd with a directory of its own."""

    def __init__(self, config: str = "") -> None:
        self.place = Path(tempfile.mkdtemp(prefix="cofferdam-sdk-", dir="/var/tmp"))
        self.roots = self.place / "roots"
        self.roots.mkdir()
        self.endpoint = f"unix:{self.place}/cofferd.sock"
        (self.place / "cofferd.yaml").write_text(
            f'listen: {{ unix: {{ path: {self.place}/cofferd.sock, mode: "0660" }} }}\n'
            f"state_dir: {self.place}/state\nworkspace_roots: [{self.roots}]\n"
            f"approvals: {{ allow_self_approval: true }}\n{config}"
        )
        self.child: subprocess.Popen[bytes] | None = None
        self.launch()

    def launch(self) -> None:
        """Starts it, and waits until it answers."""
        program = os.environ["COFFERDAM_TEST_COFFERD"]
        with (self.place / "log").open("ab") as log:
            arguments = [program, "--config", str(self.place / "cofferd.yaml")]
            self.child = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            assert self.child.poll() is None, (self.place / "log").read_text()
            with grpc.insecure_channel(self.endpoint) as channel:
                try:
                    grpc.channel_ready_future(channel).result(timeout=1)
                except grpc.FutureTimeoutError:
                    continue
                return
        raise AssertionError((self.place / "log").read_text())

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
        shutil.rmtree(self.place)


@pytest.fixture(scope="session")
def own_daemon() -> Iterator[Daemon]:
    daemon = Daemon()
    yield daemon
    daemon.remove()


@pytest.fixture(scope="session")
def endpoint(request: pytest.FixtureRequest) -> str:
    """The daemon that most tests share."""
    named = os.environ.get("COFFERDAM_TEST_ENDPOINT")
    if named:
        return named
    daemon: Daemon = request.getfixturevalue("own_daemon")
    return daemon.endpoint


@pytest.fixture(scope="session")
def roots(request: pytest.FixtureRequest, endpoint: str) -> Path:
    """Its workspace root."""
    named = os.environ.get("COFFERDAM_TEST_ROOTS")
    if named:
        return Path(named)
    daemon: Daemon = request.getfixturevalue("own_daemon")
    return daemon.roots


@pytest.fixture
def mortal() -> Iterator[Daemon]:
    """A daemon that a test may end."""
    daemon = Daemon()
    yield daemon
    daemon.remove()


@pytest.fixture(scope="session")
def image() -> str:
    """An image with bash and Python."""
    return os.environ["COFFERDAM_TEST_IMAGE"]


@pytest.fixture(autouse=True)
def environment(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a user has it."""
    monkeypatch.setenv("COFFERDAM_ENDPOINT", endpoint)
    monkeypatch.delenv("COFFERDAM_TOKEN", raising=False)
