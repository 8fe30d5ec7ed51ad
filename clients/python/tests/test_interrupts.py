"""Ctrl-C in the blocking half: the work that an interrupted caller leaves is done, and the wait for it is short."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from nodes import Node

from cofferdam import Client, DaemonUnreachable, Fleet
from cofferdam._sync import transport
from cofferdam._sync.transport import sleep

# Seconds, with a margin for a busy machine: far less than the patience of the clients here.
IN_TIME = 10.0


@pytest.fixture(autouse=True)
def _waits_shortly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "LAST_WAIT", 0.3)


@pytest.fixture(autouse=True)
def _is_interrupted() -> Iterator[None]:
    """A program that a shell began in the background ignores Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_an_interrupted_create_ends_its_run_when_the_daemon_is_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    node = Node(tmp_path, 1)

    def lose() -> None:
        node.kill()
        interrupt()

    node.before_answer = lose
    with closing(Fleet.open([node.listed], reconnect_timeout=60)) as fleet:
        begun = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            fleet.create(profile="p")
        assert time.monotonic() - begun < IN_TIME
        assert "has not confirmed" in caplog.text
        node.before_answer = lambda: None
        node.start()
        until = time.monotonic() + IN_TIME
        while not node.stopped:
            assert time.monotonic() < until
            time.sleep(0.05)
    assert node.stopped == [run.run_id for run in node.runs.values()]
    node.remove()


def test_an_interrupt_ends_the_wait_of_a_caller_that_fails_and_close_ends_the_work(
    caplog: pytest.LogCaptureFixture,
) -> None:
    over = threading.Event()

    def work() -> None:
        # Not before its caller waits for the end of this.
        threading.Timer(1, interrupt).start()
        try:
            while True:
                sleep(0.05)
        finally:
            over.set()

    client = Client("unix:/run/cofferdam/none.sock")

    def fail() -> None:
        try:
            raise DaemonUnreachable("it is away")
        except DaemonUnreachable:
            client._transport.afterwards(work)

    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        fail()
    assert 0.9 < time.monotonic() - begun < IN_TIME
    assert not over.is_set()
    assert "has not confirmed" in caplog.text
    client.close()
    assert over.wait(IN_TIME)
