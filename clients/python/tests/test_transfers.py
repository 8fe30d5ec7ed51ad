"""Files and directories of any size, over connections and daemons that are lost in the middle."""

import asyncio
import hashlib
import os
import signal
import threading
import time
from collections.abc import AsyncIterator, Iterator
from itertools import chain, islice
from pathlib import Path

import pytest
from daemon import Daemon
from proxy import Proxy

from cofferdam import (
    ApprovalRequired,
    AsyncSandbox,
    Client,
    DaemonUnreachable,
    FileNotFound,
    Interrupted,
    InvalidArgument,
    LimitExceeded,
    NotFound,
    PreconditionFailed,
    Sandbox,
    TransferInfo,
    v1,
)

MIB = 1024 * 1024
#: Bytes of a file that no single connection of the tests carries.
LARGE = 20 * MIB
#: A program at a terminal.
DOUBLES = ["sh", "-c", "echo number; read n; echo $((n * 2))"]


@pytest.fixture
def proxy(tmp_path: Path, endpoint: str) -> Iterator[Proxy]:
    proxy = Proxy(tmp_path / "proxy.sock", endpoint)
    yield proxy
    proxy.close()


@pytest.fixture
def large(tmp_path: Path) -> Path:
    path = tmp_path / "large"
    path.write_bytes(os.urandom(LARGE))
    return path


def names(place: Path) -> list[str]:
    return sorted(path.name for path in place.iterdir())


def calls(sandbox: Sandbox, operation: str) -> int:
    """How many calls of this operation began."""
    return sum(event.operation == operation for event in sandbox.audit.stream(follow=False, kinds=["call_intent"]))


def test_a_download_goes_on_at_the_next_byte(proxy: Proxy, large: Path, tmp_path: Path) -> None:
    with Sandbox.create(profile="open", endpoint=proxy.endpoint) as sandbox:
        sandbox.files.upload(large, "large")
        # Each connection is cut before the end: only one that goes on comes to it.
        proxy.cut_after, proxy.cuts = 8 * MIB, 1000
        told: list[tuple[int, int | None]] = []
        info = sandbox.files.download("large", tmp_path / "back", progress=lambda done, total: told.append((done, total)))
        read = sandbox.files.read("large", format="bytes")
        proxy.cuts = 0
        assert (tmp_path / "back").read_bytes() == read == large.read_bytes()
        assert (info.size, told[-1]) == (LARGE, (LARGE, LARGE))
        assert told == sorted(told), "it came twice"


def test_a_directory_begins_anew_and_comes_whole(proxy: Proxy, tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    for number in range(4):
        (tmp_path / "tree" / str(number)).write_bytes(os.urandom(2 * MIB))
    with Sandbox.create(profile="open", endpoint=proxy.endpoint) as sandbox:
        proxy.cut_after_sent = 5 * MIB
        assert sandbox.files.upload(tmp_path / "tree", "tree").entries == 4
        proxy.cut_after_sent = 0
        proxy.cut_after, proxy.cuts = 5 * MIB, 2
        sandbox.files.download("tree", tmp_path / "back")
        assert proxy.cuts == 0
    assert tree(tmp_path / "back") == tree(tmp_path / "tree")


def tree(top: Path) -> dict[str, bytes | str]:
    """Files and links, by path."""
    found = [path for path in top.rglob("*") if path.is_symlink() or path.is_file()]
    return {str(path.relative_to(top)): str(path.readlink()) if path.is_symlink() else path.read_bytes() for path in found}


def test_an_upload_whose_answer_is_lost_happens_once(proxy: Proxy, tmp_path: Path) -> None:
    (tmp_path / "small").write_bytes(b"small")
    with Sandbox.create(profile="open", endpoint=proxy.endpoint) as sandbox, Client() as client:
        other = Sandbox.connect(sandbox.run_id, client=client)
        sent: list[TransferInfo] = []
        proxy.mute()
        sending = threading.Thread(target=lambda: sent.append(sandbox.files.upload(tmp_path / "small", "small")))
        sending.start()
        while not other.files.exists("small"):
            time.sleep(0.02)
        proxy.cut()
        sending.join(timeout=30)
        assert [info.sha256 for info in sent] == [hashlib.sha256(b"small").hexdigest()]
        assert calls(other, "write") == 1
        assert other.files.read("small") == "small"


def test_an_upload_that_must_make_the_file_makes_it_over_connections_that_break(proxy: Proxy) -> None:
    data = os.urandom(3 * MIB)
    with Sandbox.create(profile="open", endpoint=proxy.endpoint) as sandbox:
        for number, after in enumerate((1, 50, 100, 200, 400)):
            proxy.cut()
            proxy.cut_after, proxy.cuts = after, 2
            assert sandbox.files.write(f"new{number}", data, create_only=True).size == len(data)
            proxy.cuts = 0
        assert calls(sandbox, "write") == 5
        with pytest.raises(PreconditionFailed):
            sandbox.files.write("new0", data, create_only=True)


def test_an_upload_goes_on_with_the_next_daemon(mortal: Daemon, large: Path, tmp_path: Path) -> None:
    with Sandbox.create(profile="open", endpoint=mortal.endpoint) as sandbox:
        again: list[threading.Thread] = []

        def progress(done: int, total: int | None) -> None:
            if done > LARGE // 2 and not again:
                mortal.end(signal.SIGKILL)
                again.append(threading.Thread(target=mortal.launch))
                again[0].start()

        assert sandbox.files.upload(large, "large", progress=progress).size == LARGE
        again[0].join()
        assert sandbox.info().restarts == 1
        sandbox.files.download("large", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == large.read_bytes()


def test_download_of_a_changed_file_is_refused(proxy: Proxy, large: Path, tmp_path: Path) -> None:
    (tmp_path / "back").write_text("before")
    with (
        Sandbox.create(profile="harness", endpoint=proxy.endpoint) as sandbox,
        Client() as client,
    ):
        sandbox.files.upload(large, "large")
        other = Sandbox.connect(sandbox.run_id, client=client)
        changed: list[int] = []

        def progress(done: int, total: int | None) -> None:
            if not changed:
                changed.append(done)
                other.commands.run("printf changed | dd of=large conv=notrunc", check=True)
                proxy.cut()

        with pytest.raises(PreconditionFailed, match="changed"):
            sandbox.files.download("large", tmp_path / "back", progress=progress)
    assert (tmp_path / "back").read_text() == "before"
    assert names(tmp_path) == ["back", "large", "proxy.sock"]


def test_a_callback_that_raises_ends_an_upload_and_a_download(large: Path, tmp_path: Path) -> None:
    # The last two are no answers of this daemon.
    errors = [ZeroDivisionError(), DaemonUnreachable("another"), NotFound("another", call_id="another")]
    with Sandbox.create(profile="open") as sandbox:
        sandbox.files.upload(large, "there")
        for error in errors:

            def broken(done: int, total: int | None, error: Exception = error) -> None:
                raise error

            with pytest.raises(type(error)) as caught:
                sandbox.files.upload(large, "large", progress=broken)
            assert caught.value is error
            with pytest.raises(type(error)) as caught:
                sandbox.files.download("there", tmp_path / "back", progress=broken)
            assert caught.value is error
        assert not sandbox.files.exists("large")
    assert names(tmp_path) == ["large"]


async def test_transfers_that_are_cancelled_leave_nothing(large: Path, tmp_path: Path) -> None:
    async with await AsyncSandbox.create(profile="open") as sandbox:
        begun = asyncio.Event()

        async def hold(done: int, total: int | None) -> None:
            begun.set()
            await asyncio.sleep(60)

        async def cancelled(work: "asyncio.Task[object]") -> None:
            await begun.wait()
            begun.clear()
            work.cancel()
            with pytest.raises(asyncio.CancelledError):
                await work

        await cancelled(asyncio.create_task(sandbox.files.upload(large, "large", progress=hold)))
        assert not await sandbox.files.exists("large")
        await sandbox.files.upload(large, "large")
        await cancelled(asyncio.create_task(sandbox.files.download("large", tmp_path / "back", progress=hold)))
    assert names(tmp_path) == ["large"]


def test_a_person_consents_to_an_upload(mortal: Daemon, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a\n")
    with Sandbox.create(profile="review", endpoint=mortal.endpoint) as sandbox:
        with pytest.raises(ApprovalRequired) as asked:
            sandbox.files.upload(tmp_path / "a.txt", "a.txt")
        assert asked.value.call_id is not None
        sandbox.approvals.approve(asked.value.approval_id)
        assert sandbox.calls.wait(asked.value.call_id).status == "succeeded"
        assert sandbox.files.read("a.txt") == "a\n"
        patient = sandbox.with_options(wait_for_approval=True)
        sent: list[object] = []
        waiting = threading.Thread(target=lambda: sent.append(patient.files.upload(tmp_path / "a.txt", "b.txt")))
        waiting.start()
        while not (pending := sandbox.approvals.list()):
            time.sleep(0.02)
        sandbox.approvals.approve(pending[0].approval_id)
        waiting.join(timeout=30)
        assert len(sent) == 1


def test_a_person_is_asked_once_for_an_upload_over_daemons_that_are_killed(mortal: Daemon, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a\n")
    with Sandbox.create(profile="review", endpoint=mortal.endpoint) as sandbox:
        patient = sandbox.with_options(wait_for_approval=True)
        sent: list[TransferInfo] = []
        waiting = threading.Thread(target=lambda: sent.append(patient.files.upload(tmp_path / "a.txt", "a.txt")))
        waiting.start()
        while not (asked := sandbox.approvals.list()):
            time.sleep(0.02)
        mortal.end(signal.SIGKILL)
        mortal.launch()
        assert [approval.approval_id for approval in sandbox.approvals.list()] == [asked[0].approval_id]
        # The client finds its call again, and asks for no other.
        time.sleep(1)
        assert len(sandbox.approvals.list()) == 1
        sandbox.approvals.approve(asked[0].approval_id)
        waiting.join(timeout=30)
        assert [info.sha256 for info in sent] == [hashlib.sha256(b"a\n").hexdigest()]
        assert sandbox.files.read("a.txt") == "a\n"
        assert calls(sandbox, "write") == 1


def test_an_upload_whose_call_was_interrupted_is_made_again_unless_the_file_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.txt").write_text("a\n")
    with Sandbox.create(profile="open") as sandbox:
        rpc = sandbox.client.files
        send, ids = rpc.upload_file, list[str]()

        def upload_file(messages: Iterator[v1.UploadFileRequest]) -> v1.UploadFileResponse:
            begin = next(messages)
            ids.append(begin.begin.request_id)
            if len(ids) != 2:
                raise Interrupted("the daemon ended during the call")
            return send(chain([begin], messages))

        monkeypatch.setattr(rpc, "upload_file", upload_file)
        for _ in range(2):
            assert sandbox.files.upload(tmp_path / "a.txt", "a.txt").size == 2
        assert len(set(ids)) == len(ids) == 3
        assert calls(sandbox, "write") == 1


def test_a_large_file_is_read_by_two_calls_and_written_by_one(tmp_path: Path) -> None:
    data = os.urandom(5 * MIB)
    with Sandbox.create(profile="open") as sandbox:
        assert sandbox.files.write("large", data).sha256_before is None
        assert sandbox.files.read("large", format="bytes") == data
        assert (calls(sandbox, "write"), calls(sandbox, "read")) == (1, 2)
        (tmp_path / "empty").write_bytes(b"")
        (tmp_path / "tree").mkdir()
        assert sandbox.files.upload(tmp_path / "empty", "empty").size == 0
        assert sandbox.files.upload(tmp_path / "tree", "tree").entries == 0
        # The whole workspace, under its own name.
        assert sandbox.files.download(".", tmp_path / "all").entries == 3
        assert (tmp_path / "all" / "empty").read_bytes() == b""
        assert sandbox.files.upload(tmp_path / "all", ".").path == "/workspace"


def test_special_and_missing_files_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with Sandbox.create(profile="open") as sandbox:
        with pytest.raises(InvalidArgument, match="neither"):
            sandbox.files.upload(tmp_path / "fifo", "fifo")
        with pytest.raises(FileNotFoundError):
            sandbox.files.upload(tmp_path / "none", "none")
        with pytest.raises(InvalidArgument, match="mode"):
            sandbox.files.upload(tmp_path, "tree", mode=0o600)
        with pytest.raises(FileNotFound):
            sandbox.files.download("none", tmp_path / "none")
        sandbox.files.write("a.txt", "a")
        with pytest.raises(FileNotFoundError):
            sandbox.files.download("a.txt", tmp_path / "no" / "directory")
        with pytest.raises(LimitExceeded):
            sandbox.files.write("huge", b"x" * (64 * MIB + 1))
    with pytest.raises(NotFound):
        sandbox.files.download("a.txt", tmp_path / "none")
    assert names(tmp_path) == ["fifo"]


def test_streams_of_requests_are_methods_of_the_client(tmp_path: Path) -> None:
    def pieces(run_id: str) -> Iterator[v1.UploadFileRequest]:
        yield v1.UploadFileRequest(begin=v1.BeginUpload(run_id=run_id, path="a.txt", size_bytes=2))
        yield v1.UploadFileRequest(data=b"a")
        yield v1.UploadFileRequest(data=b"\n")

    def broken(run_id: str) -> Iterator[v1.UploadFileRequest]:
        yield from islice(pieces(run_id), 2)
        raise ZeroDivisionError

    with Client() as client, Sandbox.create(profile="harness", client=client) as sandbox:
        with pytest.raises(ZeroDivisionError):
            client.files.upload_file(broken(sandbox.run_id))
        assert not sandbox.files.exists("a.txt")
        assert client.files.upload_file(pieces(sandbox.run_id)).result.bytes_written == 2
        with pytest.raises(NotFound):
            client.files.upload_file(pieces("01900000-0000-7000-8000-000000000000"))


def test_a_terminal_is_typed_at_while_it_shows() -> None:
    with Client() as client, Sandbox.create(profile="harness", client=client) as sandbox:
        shows, shown = threading.Event(), threading.Event()

        def typed(last: bool) -> Iterator[v1.OpenTerminalRequest]:
            yield v1.OpenTerminalRequest(start=v1.TerminalStart(run_id=sandbox.run_id, command=DOUBLES))
            shows.wait()
            if not last:
                raise ZeroDivisionError
            yield v1.OpenTerminalRequest(input=b"21\n")
            # The end of the requests is that of the terminal.
            shown.wait()

        def screen(last: bool) -> bytes:
            shows.clear()
            seen = b""
            for answer in client.terminals.open_terminal(typed(last)):
                seen += answer.output
                if b"number" in seen:
                    shows.set()
                if b"42" in seen:
                    shown.set()
            return seen

        with pytest.raises(ZeroDivisionError):
            screen(False)
        assert b"42" in screen(True)


async def test_streams_of_requests_are_methods_of_the_asynchronous_client() -> None:
    async with await AsyncSandbox.create(profile="harness") as sandbox:
        client = sandbox.client

        async def pieces(last: bool) -> AsyncIterator[v1.UploadFileRequest]:
            yield v1.UploadFileRequest(begin=v1.BeginUpload(run_id=sandbox.run_id, path="a.txt", size_bytes=2))
            yield v1.UploadFileRequest(data=b"a")
            if not last:
                raise ZeroDivisionError
            yield v1.UploadFileRequest(data=b"\n")

        with pytest.raises(ZeroDivisionError):
            await client.files.upload_file(pieces(False))
        assert not await sandbox.files.exists("a.txt")
        assert (await client.files.upload_file(pieces(True))).result.bytes_written == 2

        shows, shown = asyncio.Event(), asyncio.Event()

        async def typed(last: bool) -> AsyncIterator[v1.OpenTerminalRequest]:
            yield v1.OpenTerminalRequest(start=v1.TerminalStart(run_id=sandbox.run_id, command=DOUBLES))
            await shows.wait()
            if not last:
                raise ZeroDivisionError
            yield v1.OpenTerminalRequest(input=b"21\n")
            await shown.wait()

        async def screen(last: bool) -> bytes:
            shows.clear()
            seen = b""
            async for answer in client.terminals.open_terminal(typed(last)):
                seen += answer.output
                if b"number" in seen:
                    shows.set()
                if b"42" in seen:
                    shown.set()
            return seen

        with pytest.raises(ZeroDivisionError):
            await screen(False)
        assert b"42" in await screen(True)


def test_a_file_of_any_size_is_written_and_read_under_harness(endpoint: str) -> None:
    with Sandbox.create(profile="harness", endpoint=endpoint) as sandbox:
        for size in (1_400_000, 2_000_000, 2_752_513, 3_670_017, 4_200_000, LARGE):
            for content in (b"\x01" * size, b"\n" * size, os.urandom(size)):
                sandbox.files.write("f", content)
                assert sandbox.files.read("f", format="bytes") == content, size
            sandbox.files.write("f", "\x01é" * (size // 3))
            assert sandbox.files.read("f") == "\x01é" * (size // 3), size
        assert sandbox.commands.run("echo still here").stdout == "still here\n"
