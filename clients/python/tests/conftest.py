"""A daemon for the tests: the one that the environment names, or one of their own.

COFFERDAM_TEST_COFFERD    the program; tests that end a daemon start their own with it
COFFERDAM_TEST_ENDPOINT   a daemon that runs already, and
COFFERDAM_TEST_ROOTS      its workspace root
COFFERDAM_TEST_TOKEN      a token that it takes, where it asks for one
COFFERDAM_TEST_IMAGE      an image with bash and Python
"""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from daemon import Daemon
from repositories import deleted_bases, repository_of

from cofferdam import Client

# Seconds for one test.
LONGEST = 200


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


@pytest.fixture(autouse=True)
def in_time(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fails a test that hangs, before the runner of its file is out of patience and nobody learns which one it was."""

    def late(number: int, frame: object) -> None:
        raise TimeoutError(f"{request.node.name} does not end")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(LONGEST)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def mortal() -> Iterator[Daemon]:
    """A daemon that a test may end."""
    daemon = Daemon()
    yield daemon
    daemon.remove()


@pytest.fixture
def client(endpoint: str) -> Iterator[Client]:
    """A client of that daemon. Bases that a test makes are deleted after it."""
    yield from deleted_bases(endpoint)


@pytest.fixture
def repository(roots: Path, tmp_path: Path) -> Path:
    """A repository beneath the workspace root, with one commit."""
    return repository_of(roots / tmp_path.name, "42\n")


@pytest.fixture(scope="session")
def image() -> str:
    """An image with bash and Python."""
    return os.environ["COFFERDAM_TEST_IMAGE"]


@pytest.fixture(autouse=True)
def environment(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a user has it."""
    monkeypatch.setenv("COFFERDAM_ENDPOINT", endpoint)
    monkeypatch.delenv("COFFERDAM_TOKEN", raising=False)
    if token := os.environ.get("COFFERDAM_TEST_TOKEN"):
        monkeypatch.setenv("COFFERDAM_TOKEN", token)
