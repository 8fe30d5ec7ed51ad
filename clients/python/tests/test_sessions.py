"""Sessions, watches and leases, as far as both SDKs do not share it."""

import asyncio
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from daemon import Daemon

from cofferdam import (
    AsyncClient,
    AsyncSandbox,
    Client,
    CommandTimedOut,
    FileEvent,
    InvalidArgument,
    LimitExceeded,
    NotFound,
    Sandbox,
    Watch,
)
from cofferdam._output import between, head, tail


@pytest.fixture(scope="module")
def harness(endpoint: str, image: str) -> Iterator[Sandbox]:
    with Sandbox.create(profile="harness", image=image, endpoint=endpoint) as sandbox:
        yield sandbox


def test_a_session_outlives_its_daemon(mortal: Daemon) -> None:
    with Sandbox.create(profile="harness", endpoint=mortal.endpoint) as sandbox, sandbox.sessions.open() as session:
        session.run("cd /state; x=kept")
        mortal.end(signal.SIGKILL)
        mortal.launch()
        assert sandbox.sessions.get(session.session_id).run("pwd; echo $x").output == "/state\nkept\n"


def test_all_that_a_session_shows_comes_whole(harness: Sandbox) -> None:
    with harness.sessions.open(tag="block") as session:
        assert session.run("seq 200000").output == "".join(f"{number}\n" for number in range(1, 200_001))
        text = "'\"\\$`ä\n" * 1000 + "end"
        session.run(f"t=$(cat <<'END'\n{text}\nEND\n)")
        assert session.run('printf %s "$t" | wc -m').output.strip() == str(len(text))
        shown = session.run("printf '\\377'; cat", timeout=3)
        assert (shown.state, shown.output) == ("running", "\ufffd")
        # Waits on.
        assert session.type("", timeout=0.5).state == "running"
        assert session.type("one\n\x04").output == "one\n"
    assert [info.state for info in harness.sessions.list(tag="block")] == ["closed"]


def test_a_command_is_no_session_and_a_session_ends_with_its_time(harness: Sandbox) -> None:
    with harness.commands.run(["sleep", "600"], background=True) as command, pytest.raises(NotFound, match="not a session"):
        harness.sessions.get(command.process_id)
    brief = harness.sessions.open(timeout=5)
    with pytest.raises(CommandTimedOut):
        harness.commands.connect(brief.session_id).wait(timeout=60)
    with pytest.raises(InvalidArgument):
        harness.sessions.open(timeout=-1)


async def test_a_run_that_is_cancelled_leaves_the_session_to_others(endpoint: str, image: str) -> None:
    async with (
        await AsyncSandbox.create(profile="harness", image=image, endpoint=endpoint) as sandbox,
        await sandbox.sessions.open() as session,
    ):
        running = asyncio.create_task(session.run("echo begun; sleep 600"))
        async for piece in await sandbox.commands.connect(session.session_id):
            if "begun" in piece.text:
                break
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert (await session.interrupt()).state == "done"
        assert (await session.run("echo again")).output == "again\n"


def take(watch: Watch, number: int) -> set[tuple[str, str]]:
    events = [next(watch) for _ in range(number)]
    assert all(isinstance(event, FileEvent) for event in events)
    return {(event.change, event.path.removeprefix("/workspace/")) for event in events}


def test_a_watch_ends_with_its_sandbox_and_waits_while_it_is_paused() -> None:
    with Sandbox.create(profile="harness") as sandbox:
        sandbox.files.write("dir/deep/a", "1")
        with sandbox.files.watch("dir", interval=0.1) as flat, sandbox.files.watch(recursive=True, interval=0.1) as deep:
            sandbox.files.write("dir/deep/b", "1")
            sandbox.files.write("dir/c", "1")
            assert take(flat, 1) == {("created", "dir/c")}
            assert take(deep, 2) == {("created", "dir/deep/b"), ("created", "dir/c")}
            # What becomes of another type is another.
            sandbox.commands.run("rm dir/c; mkdir dir/c; rm -r dir/deep", check=True)
            assert take(flat, 3) == {("removed", "dir/c"), ("created", "dir/c"), ("removed", "dir/deep")}
            sandbox.commands.run("rm -r dir", check=True)
            assert take(flat, 1) == {("removed", "dir/c")}
            sandbox.pause()
            seen: list[FileEvent] = []
            waiting = threading.Thread(target=lambda: seen.extend(flat))
            waiting.start()
            time.sleep(0.3)
            sandbox.resume()
            sandbox.files.write("dir/again", "1")
            while not seen:
                time.sleep(0.02)
            sandbox.stop()
            waiting.join(timeout=20)
            assert not waiting.is_alive()
            assert [event.path for event in seen] == ["/workspace/dir/again"]
    assert next(deep, None) is None


def test_too_many_entries_are_not_watched_in_part() -> None:
    with Sandbox.create(profile="harness") as sandbox:
        sandbox.commands.run("i=0; while [ $i -lt 10001 ]; do : > $i; i=$((i + 1)); done", check=True, timeout=60)
        with pytest.raises(LimitExceeded, match="watch"):
            sandbox.files.watch()


async def test_a_closed_watch_ends_for_those_who_wait(endpoint: str) -> None:
    async with await AsyncSandbox.create(profile="open", endpoint=endpoint) as sandbox:
        watch = await sandbox.files.watch(interval=0.1)
        waiting = asyncio.create_task(anext(watch))
        await asyncio.sleep(0.2)
        await watch.close()
        with pytest.raises(StopAsyncIteration):
            await asyncio.wait_for(waiting, 20)


def ended(client: Client, run_id: str) -> str:
    """The cause of a run's end, when it has ended."""
    with Sandbox.connect(run_id, client=client) as sandbox:
        while (info := sandbox.info()).state not in ("stopped", "failed"):
            time.sleep(0.05)
        return info.end_cause


def test_a_lease_is_renewed_in_the_background_until_its_sandbox_is_released(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="lease"):
        Sandbox.create(profile="open", keep_alive=True)
    with Client() as client:
        sandbox = Sandbox.create(profile="open", lease=6, keep_alive=True, client=client)
        info = sandbox.info()
        assert (info.start, info.cold_because) == ("cold", "no-pool")
        first = info.lease_ends_at
        assert sandbox.commands.run(["sleep", "8"]).ok
        last = sandbox.info().lease_ends_at
        assert first is not None
        assert last is not None
        assert last > first
        # Another object of the same sandbox lets it go, too.
        sandbox.with_options(task_id="t1").close()
        assert ended(client, sandbox.run_id) == "lease"


async def test_a_lease_is_renewed_in_the_background_by_the_asynchronous_half_too() -> None:
    async with AsyncClient() as client:
        sandbox = await AsyncSandbox.create(profile="open", lease=6, keep_alive=True, client=client)
        assert (await sandbox.commands.run(["sleep", "8"])).ok
        assert (await sandbox.info()).state == "ready"
        await sandbox.close()
        run_id = sandbox.run_id
    with Client() as blocking:
        assert ended(blocking, run_id) == "lease"


def test_a_lease_is_renewed_with_the_next_daemon_too(mortal: Daemon) -> None:
    with Client(mortal.endpoint) as client:
        sandbox = Sandbox.create(profile="open", lease=6, keep_alive=True, client=client)
        mortal.end(signal.SIGKILL)
        mortal.launch()
        assert sandbox.commands.run(["sleep", "8"]).ok
        assert sandbox.info().restarts == 1
        sandbox.kill()


def test_omission_keeps_characters_whole() -> None:
    text = "aé€😀z".encode()
    for start in range(len(text) + 1):
        assert text.decode().startswith(head(text, start))
        assert text.decode().endswith(tail(text, start))
        for end in range(start, len(text) + 1):
            before, cut_before = between(text[:start], after=False, before=True)
            after, cut_after = between(text[end:], after=True, before=False)
            shown = len((before + after).encode())
            assert shown + cut_before + cut_after + end - start == len(text)
    assert head(b"\xff", 9) == tail(b"\xff", 9) == "\ufffd"
