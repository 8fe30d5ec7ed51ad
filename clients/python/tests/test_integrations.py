"""The parts of integrations that need no framework. Their own suites are in `frameworks`."""

from collections.abc import Iterator

import pytest

from cofferdam import CommandNotAllowed, CommandTimedOut, Denied, Sandbox
from cofferdam._sync.posix import Posix, is_mounted
from cofferdam.integrations._shell import merged, said, said_of


@pytest.fixture(scope="module")
def sandbox(endpoint: str, image: str) -> Iterator[Sandbox]:
    with Sandbox.create(profile="open", image=image, endpoint=endpoint) as sandbox:
        yield sandbox


@pytest.mark.parametrize(
    ("path", "mounted"),
    [("a", True), ("/workspace", True), ("/state/x", True), ("/workspaces", False), ("/tmp", False), ("../etc", False)],
)
def test_it_is_known_which_paths_the_daemon_reaches(path: str, mounted: bool) -> None:
    assert is_mounted(path) is mounted


def test_commands_run_in_any_directory(sandbox: Sandbox) -> None:
    posix = Posix(sandbox)
    for cwd in ("/usr/bin", "/tmp", "/workspace"):
        assert posix.run(["pwd"], cwd=cwd).stdout == f"{cwd}\n"
    assert posix.run(["pwd"], cwd="/no such").exit_code != 0
    assert posix.run(["no-such-program"]).exit_code == 127
    with pytest.raises(Denied):
        posix.run(["/etc/hostname"])


def test_input_of_any_size_arrives(sandbox: Sandbox) -> None:
    data = bytes(range(256)) * 12_000
    assert Posix(sandbox).run(["cat"], stdin=data).stdout_bytes == data
    assert Posix(sandbox).run(["wc", "-c"], stdin="").stdout.strip() == "0"


@pytest.mark.parametrize("size", [0, 1, 3_000_000])
def test_files_are_read_and_written_at_any_path(sandbox: Sandbox, size: int) -> None:
    posix, data = Posix(sandbox), (b"\x00\xff\n" * 1_000_000)[:size]
    posix.write("/tmp/new dir/a file", data)
    assert posix.read("/tmp/new dir/a file") == data


def test_the_content_of_a_file_is_no_command(sandbox: Sandbox) -> None:
    Posix(sandbox).write("/tmp/clean.sh", b"#!/bin/sh\nsudo rm -rf /\n")
    assert sandbox.commands.run(["wc", "-l", "/tmp/clean.sh"]).stdout.startswith("2 ")


def test_what_is_wrong_with_a_path_is_the_error_that_python_has_for_it(sandbox: Sandbox) -> None:
    posix = Posix(sandbox)
    posix.write("/tmp/plain", b"x")
    sandbox.commands.run(["chmod", "000", "/tmp/plain"], check=True)
    for kind, path in [(FileNotFoundError, "/no/such"), (IsADirectoryError, "/etc"), (PermissionError, "/tmp/plain")]:
        with pytest.raises(kind, match=path):
            posix.read(path)
    for kind, path in [(IsADirectoryError, "/tmp"), (PermissionError, "/etc/new"), (NotADirectoryError, "/etc/hostname/a")]:
        with pytest.raises(kind, match=path):
            posix.write(path, b"x")


def test_a_model_is_told_both_streams_in_order_and_what_was_ended(sandbox: Sandbox) -> None:
    done = said(sandbox.commands.run(merged("echo a; echo b >&2; echo c; exit 4")))
    assert (done.output, done.exit_code) == ("a\nb\nc\n", 4)
    with pytest.raises(CommandTimedOut) as ended:
        sandbox.commands.run(merged("echo a; sleep 30"), timeout=0.5)
    told = said_of(ended.value)
    assert (told.exit_code, told.timed_out) == (124, True)
    assert told.output.startswith("a\n")
    with pytest.raises(CommandNotAllowed) as refused:
        sandbox.commands.run(["rm", "a"])
    assert said_of(refused.value).exit_code == 126
