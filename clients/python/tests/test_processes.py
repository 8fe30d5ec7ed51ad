"""Commands in the background: over connections that break, daemons that are killed, and callbacks that do not behave."""

import asyncio
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from daemon import Daemon
from proxy import Proxy

from cofferdam import (
    ApprovalRequired,
    AsyncSandbox,
    AwaitingApproval,
    Client,
    CommandHandle,
    CommandOutput,
    Denied,
    NotFound,
    Overloaded,
    PreconditionFailed,
    PtySize,
    Sandbox,
    TimedOut,
)
from cofferdam._options import Options

LINES = 100_000
COUNT = f"i=0; while [ $i -lt {LINES} ]; do echo $i; i=$((i+1)); done"
COUNTED = "".join(f"{number}\n" for number in range(LINES))
STREAMS = 50


@pytest.fixture
def proxy(tmp_path: Path, endpoint: str) -> Iterator[Proxy]:
    proxy = Proxy(tmp_path / "proxy.sock", endpoint)
    yield proxy
    proxy.close()


@pytest.fixture
def sandbox(endpoint: str) -> Iterator[Sandbox]:
    with Sandbox.create(profile="harness", endpoint=endpoint) as sandbox:
        yield sandbox


def text(pieces: list[CommandOutput], stream: str = "stdout") -> str:
    return "".join(piece.text for piece in pieces if piece.stream == stream)


def until(condition: threading.Event) -> None:
    assert condition.wait(30)


def test_output_comes_whole_over_connections_that_break(proxy: Proxy) -> None:
    heard: list[str] = []
    with Sandbox.create(profile="harness", endpoint=proxy.endpoint) as sandbox:
        handle = sandbox.commands.run(COUNT, background=True)
        proxy.cut()
        proxy.cut_after, proxy.cuts = 100_000, 4
        pieces = list(handle)
        assert text(pieces) == COUNTED
        assert b"".join(piece.data for piece in pieces).decode() == COUNTED
        assert proxy.cuts == 0, "it was cut less often than it should have been"
        assert handle.exit_code == 0
        proxy.cut()
        proxy.cuts = 2
        result = handle.wait(on_stdout=heard.append)
        assert result.stdout == "".join(heard) == COUNTED
        assert result.omitted_bytes == 0


def test_input_comes_once_over_connections_that_break(proxy: Proxy) -> None:
    with Sandbox.create(profile="harness", endpoint=proxy.endpoint) as sandbox:
        handle = sandbox.commands.run(["cat"], background=True, stdin_open=True)
        for number in range(20):
            # From one byte on: the request arrives, its answer does not.
            proxy.cut()
            proxy.cut_after, proxy.cuts = 1 + 20 * number, 1
            handle.send_stdin(f"{number}\n")
        proxy.cuts = 0
        handle.send_stdin(b"x" * 1_000_000)
        handle.close_stdin()
        assert handle.wait().stdout == "".join(f"{number}\n" for number in range(20)) + "x" * 1_000_000


def test_senders_at_the_same_time_take_turns(sandbox: Sandbox) -> None:
    handle = sandbox.commands.run(["cat"], background=True, stdin_open=True)
    lines = [f"{number:03}\n" for number in range(100)]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda line: sandbox.commands.send_stdin(handle.process_id, line), lines[:50]))
        list(threads.map(handle.send_stdin, lines[50:]))
    handle.close_stdin()
    assert sorted(handle.wait().stdout.splitlines(keepends=True)) == lines


def test_a_command_need_not_read_its_input(sandbox: Sandbox) -> None:
    result = sandbox.commands.run(["true"], background=True, stdin=b"x" * 5_000_000).wait()
    assert (result.exit_code, result.stdout) == (0, "")


def test_output_beyond_the_stored_part_is_counted(sandbox: Sandbox) -> None:
    size = 150_000_000
    result = sandbox.commands.run(f"head -c {size} /dev/zero", background=True).wait()
    assert result.omitted_bytes > 0
    assert len(result.stdout_bytes) + result.omitted_bytes == size


def test_a_handle_outlives_its_client(endpoint: str) -> None:
    first = Sandbox.create(profile="harness", endpoint=endpoint)
    process_id = first.commands.run("echo early; read line; echo $line", background=True, stdin_open=True).process_id
    first.close()
    with Sandbox.connect(first.run_id, endpoint=endpoint) as second:
        heard: list[str] = []
        handle = second.commands.connect(process_id, on_stdout=heard.append)
        handle.send_stdin("late\n")
        assert handle.wait().stdout == "early\nlate\n"
        assert "".join(heard) == "early\nlate\n", "all callbacks are over when it is waited for"


def test_a_callback_that_raises_ends_callbacks_and_not_the_command(sandbox: Sandbox) -> None:
    def broken(told: str) -> None:
        raise ZeroDivisionError(told)

    handle = sandbox.commands.run("echo up; exec sleep 1000", background=True, on_stdout=broken)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError, match="up"):
            handle.wait()
    assert handle.info().state == "running"
    handle.disconnect()
    assert handle.kill()
    assert handle.wait().ended_by == "killed"


def test_a_handle_that_is_disconnected_hears_no_more(sandbox: Sandbox) -> None:
    heard: list[str] = []
    up = threading.Event()

    def hear(told: str) -> None:
        heard.append(told)
        up.set()

    handle = sandbox.commands.run("echo up; read line; echo $line", background=True, stdin_open=True, on_stdout=hear)
    until(up)
    handle.disconnect()
    handle.send_stdin("more\n")
    assert handle.wait().stdout == "up\nmore\n"
    assert heard == ["up\n"]
    # Also by the callback itself.
    holder: list[CommandHandle] = []
    made = threading.Event()

    def leave(told: str) -> None:
        until(made)
        holder[0].disconnect()

    holder.append(sandbox.commands.run("echo a; sleep 0.3; echo b", background=True, on_stdout=leave))
    made.set()
    assert holder[0].wait(timeout=20).stdout == "a\nb\n"


def test_closing_a_client_ends_callbacks(endpoint: str) -> None:
    up = threading.Event()
    sandbox = Sandbox.create(profile="harness", endpoint=endpoint)
    handle = sandbox.commands.run("echo up; sleep 1000", background=True, on_stdout=lambda _: up.set())
    until(up)
    begun = time.monotonic()
    sandbox.close()
    assert time.monotonic() - begun < 60
    assert not [thread for thread in threading.enumerate() if thread.name == "cofferdam"]
    assert handle.info().state == "running", "it is asked over another connection"
    sandbox.kill()


def test_leaving_a_block_ends_its_command(sandbox: Sandbox) -> None:
    with sandbox.commands.run(["sleep", "1000"], background=True) as handle:
        assert handle.info().state == "running"
    assert handle.wait(timeout=20).exit_code == 137


def test_readers_of_a_process_are_limited(sandbox: Sandbox) -> None:
    handle = sandbox.commands.run("echo up; sleep 1000", background=True)
    readers = [iter(handle) for _ in range(16)]
    assert [next(reader).text for reader in readers] == ["up\n"] * 16
    with pytest.raises(Overloaded):
        next(iter(handle))
    for reader in readers:
        reader.close()
    for _ in range(100):
        try:
            assert next(iter(handle)).text == "up\n"
        except Overloaded:
            time.sleep(0.1)
        else:
            return
    pytest.fail("they still read")


def test_a_run_token_reaches_the_processes_of_its_run_and_no_others(endpoint: str) -> None:
    with (
        Sandbox.create(profile="harness", endpoint=endpoint, issue_token=True) as sandbox,
        Sandbox.create(profile="harness", endpoint=endpoint) as other,
    ):
        others = other.commands.run("echo theirs; sleep 1000", background=True)
        agent = Sandbox.connect(sandbox.run_id, endpoint=endpoint, token=sandbox.token)
        handle = agent.commands.run(["cat"], background=True, stdin_open=True)
        handle.send_stdin("mine\n", close=True)
        assert handle.wait().stdout == "mine\n"
        with pytest.raises(NotFound):
            agent.commands.connect(others.process_id)
        assert not agent.commands.kill(others.process_id)
        assert others.info().state == "running"
        foreign = Sandbox(agent.client, other.run_id, Options(), owns_client=False, delete_workspace=False)
        with pytest.raises((Denied, NotFound)):
            foreign.commands.list()
        with pytest.raises((Denied, NotFound)):
            foreign.commands.send_stdin(others.process_id, "x")
        agent.close()


def test_a_person_may_be_asked_first(mortal_with_policy: Daemon) -> None:
    with Sandbox.create(profile="asks", endpoint=mortal_with_policy.endpoint) as sandbox:
        with pytest.raises(ApprovalRequired) as asked:
            sandbox.commands.run("echo done", background=True)
        sandbox.approvals.approve(asked.value.approval_id)
        assert asked.value.call_id is not None
        assert sandbox.calls.wait(asked.value.call_id).result == asked.value.call_id
        assert sandbox.commands.connect(asked.value.call_id).wait().stdout == "done\n"
        waiting = sandbox.with_options(wait_for_approval=True)
        with ThreadPoolExecutor(1) as threads:
            running = threads.submit(lambda: waiting.commands.run("echo again", background=True).wait())
            while not (pending := sandbox.approvals.list()):
                time.sleep(0.02)
            sandbox.approvals.approve(pending[0].approval_id)
            assert running.result(timeout=30).stdout == "again\n"


def test_a_call_outlasts_the_reviewer_of_another_one(client: Client) -> None:
    def has_refused(sandbox: Sandbox) -> bool:
        receipts = sandbox.audit.stream(follow=False, kinds=["call_receipt"])
        return any(event.record["outcome"].get("reason") == "AWAITING_APPROVAL" for event in receipts)

    with Sandbox.create(profile="open", client=client, wait_for_approval=True) as sandbox, ThreadPoolExecutor(2) as threads:
        sandbox.files.write("a.txt", "x")
        removing = threads.submit(sandbox.files.remove, "a.txt")
        while not (pending := sandbox.approvals.list()):
            time.sleep(0.02)
        beside = threads.submit(lambda: sandbox.commands.run(["echo", "done"], timeout=1))
        while not has_refused(sandbox):
            assert not beside.done()
            time.sleep(0.1)
        # A refusal is the outcome of its request id.
        with pytest.raises(AwaitingApproval, match="this call waited for"):
            sandbox.with_options(request_id="once").commands.run(["true"], timeout=1)
        assert not beside.done()
        sandbox.approvals.approve(pending[0].approval_id)
        removing.result(timeout=30)
        assert beside.result(timeout=30).stdout == "done\n"


@pytest.fixture
def mortal_with_policy(tmp_path: Path) -> Iterator[Daemon]:
    (tmp_path / "asks.yaml").write_text(
        "profiles:\n  asks:\n    workspace: read-write\n    operations: { process: ask, exec: allow, shell: allow }\n"
        '    exec: { default: allow }\n    approvals: { freeze: false }\nroles: { worker: { allow: "*" } }\n'
    )
    daemon = Daemon(f"policy_dir: {tmp_path}\n")
    yield daemon
    daemon.remove()


async def test_fifty_streams_lose_no_byte_over_a_killed_daemon(mortal: Daemon) -> None:
    async with await AsyncSandbox.create(profile="harness", endpoint=mortal.endpoint) as sandbox:
        count = COUNT.replace(str(LINES), "20000")
        script = f"for i in 1 2 3 4 5 6 7 8 9 10; do echo $i; done; read line; {count}; read line"
        heads, back = [asyncio.Event() for _ in range(STREAMS)], asyncio.Event()
        heard = [""] * STREAMS

        async def one(number: int) -> None:
            async def hear(told: str) -> None:
                heard[number] += told
                if heard[number].endswith("10\n"):
                    heads[number].set()

            handle = await sandbox.commands.run(script, background=True, stdin_open=True, on_stdout=hear)
            await heads[number].wait()
            await handle.send_stdin("go\n")
            await back.wait()
            await handle.send_stdin("end\n")
            result = await handle.wait(timeout=120)
            assert result.exit_code == 0
            assert heard[number] == result.stdout

        work = asyncio.gather(*map(one, range(STREAMS)))
        ready = asyncio.gather(*(head.wait() for head in heads))
        # One that fails is not waited for.
        both: list[asyncio.Future[Any]] = [work, ready]
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if not ready.done():
            ready.cancel()
            await work
        await asyncio.to_thread(mortal.end, signal.SIGKILL)
        await asyncio.to_thread(mortal.launch)
        back.set()
        await work
        expected = "".join(f"{number}\n" for number in (*range(1, 11), *range(20_000)))
        assert heard == [expected] * STREAMS


async def test_a_wait_that_is_cancelled_ends_nothing() -> None:
    async with await AsyncSandbox.create(profile="harness") as sandbox:
        handle = await sandbox.commands.run("read line; echo $line", background=True, stdin_open=True)
        waiting = asyncio.create_task(handle.wait())
        await asyncio.sleep(0.2)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(handle.wait(), 0.2)
        with pytest.raises(TimedOut):
            await handle.wait(timeout=0.2, on_stdout=print)
        await handle.send_stdin("on\n")
        assert (await handle.wait()).stdout == "on\n"


async def test_a_command_that_is_never_given_out_ends() -> None:
    async with await AsyncSandbox.create(profile="harness") as sandbox:
        run = sandbox.commands.run(["sleep", "1000"], background=True, stdin=b"x" * 3_000_000)
        starting = asyncio.create_task(run)
        for _ in range(500):
            found = await sandbox.commands.list()
            if found and found[0].stdin_size:
                break
            await asyncio.sleep(0.02)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        handle = await sandbox.commands.connect(found[0].process_id)
        assert (await handle.wait(timeout=20)).ended_by == "killed"


async def test_a_callback_may_close_the_client() -> None:
    sandbox = await AsyncSandbox.create(profile="harness")
    closed = asyncio.Event()

    async def close(told: str) -> None:
        await sandbox.close()
        closed.set()

    await sandbox.commands.run("echo up; sleep 1000", background=True, on_stdout=close)
    await asyncio.wait_for(closed.wait(), 20)
    await sandbox.kill()


async def test_a_terminal_is_heard_while_it_is_typed_at(image: str) -> None:
    async with await AsyncSandbox.create(profile="harness", image=image) as sandbox:
        shown = bytearray()
        changed = asyncio.Event()

        async def show(data: bytes) -> None:
            shown.extend(data)
            changed.set()

        async def shows(expected: bytes, after: bytes = b"") -> None:
            while expected not in shown[shown.find(after) :]:
                changed.clear()
                await asyncio.wait_for(changed.wait(), 20)

        pty = await sandbox.pty.create(PtySize(30, 100), on_data=show)
        # What is typed, and a size that is set, while bash makes its prompt may be lost.
        await shows(b"$ ")
        await pty.send_stdin("stty size; echo $0\n")
        await shows(b"$ ", after=b"30 100\r\nbash")
        await pty.resize(PtySize(20, 90))
        # Once it answers it has the terminal. Ctrl-C before that may reach a shell alone, which then waits for its command.
        await pty.send_stdin("stty size; cat\n")
        await shows(b"20 90\r\n")
        await pty.send_stdin("here\n")
        await shows(b"here\r\nhere\r\n")
        await sandbox.pty.send_stdin(pty.pid, "\x03")
        await shows(b"$ ", after=b"^C")
        await pty.send_stdin("echo $((6 * 7))\n")
        await shows(b"$ ", after=b"42")
        again = await sandbox.pty.connect(pty.pid)
        await again.send_stdin("exit 4\n")
        result = await pty.wait()
        assert result.exit_code == 4
        assert result.stdout_bytes == bytes(shown)
        with pytest.raises(PreconditionFailed):
            await sandbox.pty.send_stdin(pty.pid, "late")
