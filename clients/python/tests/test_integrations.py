"""The parts of integrations that need no framework. Their own suites are in `frameworks`."""

import io
import logging
import os
import tarfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from cofferdam import (
    AsyncSandbox,
    CommandInterrupted,
    CommandNotAllowed,
    CommandResult,
    CommandTimedOut,
    DaemonTimedOut,
    InfrastructureError,
    NotFound,
    RunLost,
    RunNotReady,
    Sandbox,
)
from cofferdam._async.posix import Posix as AsyncPosix
from cofferdam._status import Blame, made_of
from cofferdam._sync.posix import Posix, is_mounted
from cofferdam.integrations._archive import _unpack, download, upload
from cofferdam.integrations._image import pack
from cofferdam.integrations._session import BashSession
from cofferdam.integrations._shell import merged, said, said_of
from cofferdam.types import Fault


@pytest.fixture(scope="module")
def sandbox(endpoint: str, image: str) -> Iterator[Sandbox]:
    with Sandbox.create(profile="open", image=image, endpoint=endpoint) as sandbox:
        yield sandbox


@pytest.mark.parametrize(
    ("path", "mounted"),
    [("a", True), ("/workspace", True), ("/state/x", True), ("/workspaces", False), ("/tmp", False), ("../etc", False)],
)
def test_paths_of_mounts_are_recognised(path: str, mounted: bool) -> None:
    assert is_mounted(path) is mounted


def test_commands_run_in_any_directory(sandbox: Sandbox) -> None:
    posix = Posix(sandbox)
    for cwd in ("/usr/bin", "/tmp", "/workspace"):
        assert posix.run(["pwd"], cwd=cwd).stdout == f"{cwd}\n"
    assert posix.run(["pwd"], cwd="/no such").exit_code != 0
    assert posix.run(["no-such-program"]).exit_code == 127
    assert posix.run(["/etc/hostname"]).exit_code == 126


def test_a_sandbox_that_is_gone_is_no_program_that_is_missing(endpoint: str, image: str) -> None:
    with Sandbox.create(profile="open", image=image, endpoint=endpoint) as sandbox:
        assert Posix(sandbox).run(["true"]).ok
    with pytest.raises(NotFound, match="no such run"):
        Posix(sandbox).run(["true"])
    sandbox.close()


@pytest.mark.parametrize("code", [None, 0, 3])
def test_a_command_that_ended_its_own_worker_has_failed(code: int | None) -> None:
    def run(*_: object, **__: object) -> None:
        raise stopped

    posix = Posix(cast(Sandbox, SimpleNamespace(commands=SimpleNamespace(run=run))))
    stopped = CommandInterrupted("the worker was ended", CommandResult("c", code, b"out", b"", fault="program"))
    result = posix.run(["true"])
    assert (result.exit_code, result.stdout, result.stderr) == (code or 137, "out", "the worker was ended\n")
    stopped = CommandInterrupted("the run was stopped", CommandResult("c", code, b"", b"", fault="caller"))
    with pytest.raises(CommandInterrupted):
        posix.run(["true"])


def test_commands_of_a_sandbox_that_its_programs_have_ended_have_failed() -> None:
    def run(*_: object, **__: object) -> None:
        raise made_of("RUN_LOST", "the run has ended", {}, None, None, Blame(fault))

    posix = Posix(cast(Sandbox, SimpleNamespace(commands=SimpleNamespace(run=run))))
    fault: Fault = "program"
    result = posix.run(["true"])
    assert (result.exit_code, result.stderr, result.fault) == (137, "the run has ended\n", "program")
    assert posix.run(["cat"], stdin=bytes(2 * 1024 * 1024)) == result
    for use in (lambda: posix.read("/a"), lambda: posix.write("/a", b"")):
        with pytest.raises(FileNotFoundError, match="the run has ended"):
            use()
    fault = "infrastructure"
    with pytest.raises(RunLost):
        posix.run(["true"])
    fault = "caller"
    with pytest.raises(RunNotReady):
        posix.run(["true"])


def test_a_daemon_that_does_not_answer_is_no_timeout_of_a_command() -> None:
    def run(*_: object, **__: object) -> None:
        raise DaemonTimedOut("no answer", call_id="c", fault="infrastructure")

    posix = Posix(cast(Sandbox, SimpleNamespace(commands=SimpleNamespace(run=run))))
    with pytest.raises(InfrastructureError, match="no answer") as told:
        posix.run(["true"])
    assert not isinstance(told.value, TimeoutError)
    assert (told.value.message, told.value.call_id, told.value.fault) == ("no answer", "c", "infrastructure")


def test_input_of_any_size_arrives(sandbox: Sandbox) -> None:
    data = bytes(range(256)) * 12_000
    assert Posix(sandbox).run(["cat"], stdin=data).stdout_bytes == data
    assert Posix(sandbox).run(["wc", "-c"], stdin="").stdout.strip() == "0"


@pytest.mark.parametrize("size", [0, 1, 3_000_000])
def test_files_are_read_and_written_at_any_path(sandbox: Sandbox, size: int) -> None:
    posix, data = Posix(sandbox), (b"\x00\xff\n" * 1_000_000)[:size]
    posix.write("/tmp/new dir/a file", data)
    assert posix.read("/tmp/new dir/a file") == data


def test_files_are_appended_to_in_pieces(sandbox: Sandbox) -> None:
    posix, data = Posix(sandbox), b"\x00\xff\n" * 300_000
    posix.write("/tmp/another dir/log", b"first\n", append=True)
    posix.write("/tmp/another dir/log", data, append=True)
    assert posix.read("/tmp/another dir/log") == b"first\n" + data


def test_file_content_is_not_judged_as_a_command(sandbox: Sandbox) -> None:
    Posix(sandbox).write("/tmp/clean.sh", b"#!/bin/sh\nsudo rm -rf /\n")
    assert sandbox.commands.run(["wc", "-l", "/tmp/clean.sh"]).stdout.startswith("2 ")


def test_path_problems_raise_the_matching_python_errors(sandbox: Sandbox) -> None:
    posix = Posix(sandbox)
    posix.write("/tmp/plain", b"x")
    sandbox.commands.run(["chmod", "000", "/tmp/plain"], check=True)
    for kind, path in [(FileNotFoundError, "/no/such"), (IsADirectoryError, "/etc"), (PermissionError, "/tmp/plain")]:
        with pytest.raises(kind, match=path):
            posix.read(path)
    for kind, path in [(IsADirectoryError, "/tmp"), (PermissionError, "/etc/new"), (NotADirectoryError, "/etc/hostname/a")]:
        with pytest.raises(kind, match=path):
            posix.write(path, b"x")


def test_a_model_gets_both_streams_in_order_and_the_cause_of_the_end(sandbox: Sandbox) -> None:
    done = said(sandbox.commands.run(merged("echo a; echo b >&2; echo c; exit 4")))
    assert (done.output, done.exit_code) == ("a\nb\nc\n", 4)
    with pytest.raises(CommandTimedOut) as ended:
        sandbox.commands.run(merged("echo a; sleep 30"), timeout=3)
    told = said_of(ended.value)
    assert (told.exit_code, told.timed_out) == (124, True)
    assert told.output.startswith("a\n")
    with pytest.raises(CommandNotAllowed) as refused:
        sandbox.commands.run(["rm", "a"])
    assert said_of(refused.value).exit_code == 126


@pytest.fixture
async def harness(endpoint: str, image: str) -> AsyncIterator[AsyncSandbox]:
    async with await AsyncSandbox.create(profile="harness", image=image, endpoint=endpoint) as sandbox:
        yield sandbox


async def test_a_session_tells_each_command_from_the_next(harness: AsyncSandbox) -> None:
    session = await BashSession.open(harness)
    await session.run("cd /usr; a=1; f() { return 4; }")
    shown = await session.run("pwd; echo $a >&2; f")
    assert (shown.state, shown.output, shown.exit_code) == ("done", "/usr\n1\n", 4)
    text = "".join(map(chr, range(1, 0x180))).replace("\n", "") + "\\'\"" + "x" * 9000
    await session.run(f"t=$(cat <<'END'\n{text}\nEND\n)")
    assert (await session.run('printf %s "$t" | wc -m')).output.strip() == str(len(text))
    assert (await session.run("printf 'a\\r\\n\\033[31mred\\033[0m\\377'")).output == "a\nred\ufffd"
    assert (await session.run(" \n")).state == "done"
    assert (await session.run("seq 200000")).output == "".join(f"{number}\n" for number in range(1, 200_001))
    shown = await session.run("exit 5")
    assert (shown.state, shown.exit_code) == ("ended", 5)
    await session.close()


async def test_a_session_continues_after_an_interrupted_command(harness: AsyncSandbox) -> None:
    session = await BashSession.open(harness)
    await session.run("sleep 1000 &")
    shown = await session.run("echo first; sleep 100", timeout=3)
    assert (shown.state, shown.output, session.busy) == ("running", "first\n", True)
    shown = await session.interrupt(timeout=10, attempts=1)
    assert (shown.state, shown.exit_code, session.busy) == ("done", 130, False)
    await session.run("sh -c \"trap '' INT; sleep 100\"", timeout=0.5)
    assert (await session.interrupt(timeout=1, attempts=1)).state == "done"
    shown = await session.run("cat", timeout=0.5)
    shown = await session.type("one two", timeout=10, expect=["absent", "t.o"])
    assert (shown.state, shown.output, shown.matched) == ("matched", "one ", 1)
    await session.interrupt(timeout=10, attempts=1)
    # The one in the background is none of those that were interrupted.
    assert (await session.run("pgrep -a sleep | cut -d ' ' -f 2-")).output == "sleep 1000\n"
    await session.close()


async def test_directories_go_both_ways(harness: AsyncSandbox, tmp_path: Path) -> None:
    posix, given, fetched = AsyncPosix(harness), tmp_path / "given", tmp_path / "fetched"
    (given / "d").mkdir(parents=True)
    (given / "d" / "run.sh").write_text("#!/bin/sh\necho ran\n")
    (given / "d" / "run.sh").chmod(0o755)
    # More than the daemon keeps of a command's output, and than a command takes.
    content = os.urandom(70 * 1024 * 1024)
    (given / "large").write_bytes(content)
    (given / ".git").mkdir()
    (given / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    await upload(harness, given, "/tmp/a b")
    await upload(harness, given / "d" / "run.sh", "/workspace/c/other.sh")
    ran = await posix.run(["/bin/sh", "-c", "sh '/tmp/a b/d/run.sh' && /workspace/c/other.sh"])
    assert ran.stdout == "ran\nran\n"
    await download(harness, "/tmp", fetched, logging.getLogger("t"))
    assert (fetched / "a b" / "d" / "run.sh").read_text() == (given / "d" / "run.sh").read_text()
    assert (fetched / "a b" / "d" / "run.sh").stat().st_mode & 0o777 == 0o755
    assert (fetched / "a b" / "large").read_bytes() == content
    assert (fetched / "a b" / ".git" / "HEAD").exists()
    # No archive stays.
    assert {info.size for info in await harness.files.list("/state") if info.type == "file"} == {0}
    with pytest.raises(OSError, match="/no"):
        await download(harness, "/no", fetched, logging.getLogger("t"))


def test_an_archive_of_a_sandbox_stays_where_it_is_unpacked(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, kind, link in [
            ("good", tarfile.REGTYPE, ""),
            ("../over", tarfile.REGTYPE, ""),
            ("absolute", tarfile.SYMTYPE, "/etc/passwd"),
            ("up", tarfile.SYMTYPE, ".."),
            ("up/through", tarfile.REGTYPE, ""),
            ("hard", tarfile.LNKTYPE, "../outside"),
            ("device", tarfile.CHRTYPE, ""),
            ("pipe", tarfile.FIFOTYPE, ""),
            ("last", tarfile.REGTYPE, ""),
        ]:
            member = tarfile.TarInfo(name)
            member.type, member.linkname, member.mode = kind, link, 0o6777
            archive.addfile(member)
    (tmp_path / "outside").write_text("mine")
    (tmp_path / "archive").write_bytes(packed.getvalue())
    _unpack(tmp_path / "archive", tmp_path / "in", logging.getLogger("t"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["archive", "in", "outside"]
    found = {str(path.relative_to(tmp_path / "in")) for path in (tmp_path / "in").rglob("*")}
    assert found == {"good", "last", "up", "up/through"}
    assert not (tmp_path / "in" / "up").is_symlink()
    assert (tmp_path / "in" / "good").stat().st_mode & 0o7000 == 0
    assert "left out" in caplog.text


def test_the_directory_of_a_build_is_the_same_tar_for_the_same_content(tmp_path: Path) -> None:
    def packed(place: Path) -> tuple[str, list[tuple[str, bytes, int]]]:
        tar = io.BytesIO()
        digest = pack(place, tar)
        tar.seek(0)
        with tarfile.open(fileobj=tar) as members:
            return digest, [(member.name, member.type, member.mode) for member in members]

    def made(name: str) -> Path:
        place = tmp_path / name
        (place / "a" / "b").mkdir(parents=True)
        (place / "Dockerfile").write_text("FROM scratch\n")
        (place / "a" / "b" / "file").write_text("x")
        (place / "a" / "tool").write_text("y")
        (place / "a" / "tool").chmod(0o700)
        (place / "a" / "link").symlink_to("/etc")
        return place

    first, second = made("first"), made("second")
    os.utime(second / "a" / "b" / "file", (1, 1))
    (second / "a" / "b" / "file").chmod(0o600)
    os.link(second / "a" / "tool", tmp_path / "elsewhere")
    digest, members = packed(first)
    assert members == [
        ("Dockerfile", tarfile.REGTYPE, 0o644),
        ("a", tarfile.DIRTYPE, 0o755),
        ("a/b", tarfile.DIRTYPE, 0o755),
        ("a/link", tarfile.SYMTYPE, 0o755),
        ("a/tool", tarfile.REGTYPE, 0o755),
        ("a/b/file", tarfile.REGTYPE, 0o644),
    ]
    assert packed(second) == (digest, members)
    (second / "a" / "tool").chmod(0o600)
    assert packed(second)[0] != digest
    os.mkfifo(first / "pipe")
    with pytest.raises(OSError, match="pipe is neither"):
        packed(first)
