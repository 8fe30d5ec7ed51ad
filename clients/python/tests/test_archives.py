"""Directories that are copied: nothing leads out of them, here or there."""

import io
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from cofferdam import Sandbox
from cofferdam._tree import pack, unpack


def test_links_are_copied_as_links_and_none_is_followed_out(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "key").write_text("private")
    top = tmp_path / "top"
    (top / "in").mkdir(parents=True)
    (top / "in" / "a.txt").write_text("a\n")
    (top / "in" / "script").write_text("#!/bin/sh\n")
    (top / "in" / "script").chmod(0o755)
    for name, target in [
        ("near", "in/a.txt"),
        ("in/up", "../in"),
        ("out", "../secret"),
        ("far", str(secret)),
        ("gone", "in/x"),
    ]:
        (top / name).symlink_to(target)
    os.mkfifo(top / "fifo")
    (top / ".git").mkdir()
    (top / ".git" / "config").write_text("[core]\n")
    with Sandbox.create(profile="open", workspace=None) as sandbox:
        info = sandbox.files.upload(top, "copy")
        # Not: out, far, fifo, .git.
        assert (info.entries, info.left_out) == (6, 4)
        listed = sandbox.commands.run("cd copy && find . -type l -o -type f | sort && cat in/up/a.txt && test -x in/script")
        assert listed.stdout.split() == ["./gone", "./in/a.txt", "./in/script", "./in/up", "./near", "a"]
        assert listed.ok
        sandbox.files.download("copy", tmp_path / "back")
    assert (tmp_path / "back" / "in" / "up").readlink() == Path("../in")
    assert os.access(tmp_path / "back" / "in" / "script", os.X_OK)


def test_a_directory_of_a_hostile_sandbox_stays_in_its_destination(image: str, tmp_path: Path) -> None:
    """From inside a real container, as root of its own directories."""
    outside = tmp_path / "outside"
    outside.mkdir()
    script = """
        mkdir -p t/deep/deeper t/.git/hooks t/node_modules/.bin && cd t
        echo bad > .git/hooks/post-checkout && echo bad > node_modules/.bin/tsc && echo good > good
        ln -s /etc/passwd absolute && ln -s ../outside up && ln -s ../.. deep/deeper/top
        ln -s deep/deeper/top/.. through && ln -s deep/deeper/top/../outside past && ln -s . self
        mkfifo fifo && ln good hard
    """
    with Sandbox.create(profile="harness", image=image) as sandbox:
        assert sandbox.commands.run(script).ok
        info = sandbox.files.download("t", tmp_path / "into")
    assert info.left_out >= 5
    found = {str(path.relative_to(tmp_path / "into")) for path in (tmp_path / "into").rglob("*")}
    assert found == {"deep", "deep/deeper", "deep/deeper/top", "good", "hard", "node_modules", "self"}
    assert not list(outside.iterdir())


def archive(*members: tuple[str, bytes, str], **changes: object) -> io.BytesIO:
    """Of names, types and the targets of links; files have a content."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, kind, target in members:
            member = tarfile.TarInfo(name)
            member.type, member.linkname, member.mode = kind, target, 0o4777
            member.size = 4 if kind in (tarfile.REGTYPE, tarfile.CONTTYPE) else 0
            tar.addfile(member, io.BytesIO(b"evil"))
    return packed


HOSTILE = {
    "an absolute name": [("/{outside}/x", tarfile.REGTYPE, "")],
    "a name that goes up": [("../outside/x", tarfile.REGTYPE, ""), ("a/../../outside/x", tarfile.REGTYPE, "")],
    "a link that leads out": [("l", tarfile.SYMTYPE, "../outside"), ("l/x", tarfile.REGTYPE, "")],
    "an absolute link": [("l", tarfile.SYMTYPE, "/{outside}"), ("l/x", tarfile.REGTYPE, "")],
    "links that lead out together": [
        ("d/e", tarfile.DIRTYPE, ""),
        ("d/e/top", tarfile.SYMTYPE, "../.."),
        ("m", tarfile.SYMTYPE, "d/e/top/../outside"),
        ("m/x", tarfile.REGTYPE, ""),
    ],
    "a file through a link that stays": [
        ("d", tarfile.DIRTYPE, ""),
        ("l", tarfile.SYMTYPE, "d"),
        ("l/x", tarfile.REGTYPE, ""),
    ],
    "a hard link": [("h", tarfile.LNKTYPE, "../outside/there")],
    "devices and FIFOs": [("c", tarfile.CHRTYPE, ""), ("b", tarfile.BLKTYPE, ""), ("f", tarfile.FIFOTYPE, "")],
    "git's own": [
        (name, tarfile.REGTYPE, "") for name in (".git/config", "a/.GIT/x", "git~1/x", ".git /x", ".g\u200cit/x", "x\\.git")
    ],
    "programs of packages": [("node_modules/.bin/tsc", tarfile.REGTYPE, "")],
    "no name": [("", tarfile.REGTYPE, ""), (".", tarfile.SYMTYPE, "..")],
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_no_member_of_an_archive_leads_out(kind: str, tmp_path: Path) -> None:
    outside, into = tmp_path / "outside", tmp_path / "into"
    outside.mkdir()
    (outside / "there").write_text("there")
    members = [
        (name.replace("/{outside}", str(outside)), type_, target.replace("/{outside}", str(outside)))
        for name, type_, target in HOSTILE[kind]
    ]
    unpacked = unpack(archive(*members), into)
    assert unpacked.left_out >= 1
    assert unpacked.entries + unpacked.left_out == len(members)
    assert [path.read_text() for path in outside.iterdir()] == ["there"]
    for path in into.rglob("*"):
        assert path.resolve().is_relative_to(into)
        assert path.is_symlink() or path.is_dir() or path.is_file()


def test_a_file_with_holes_is_left_out(tmp_path: Path) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar:
        member = tarfile.TarInfo("holes")
        member.pax_headers = {"GNU.sparse.major": "0", "GNU.sparse.minor": "1", "GNU.sparse.name": "holes"}
        member.pax_headers |= {"GNU.sparse.size": str(1 << 40), "GNU.sparse.map": f"{1 << 40},0"}
        tar.addfile(member)
    assert unpack(packed, tmp_path / "into").left_out == 1
    assert not list((tmp_path / "into").iterdir())


def test_a_link_that_is_there_is_not_followed_and_a_file_is_replaced_whole(tmp_path: Path) -> None:
    outside, into = tmp_path / "outside", tmp_path / "into"
    outside.mkdir()
    into.mkdir()
    (into / "d").symlink_to(outside)
    (into / "f").symlink_to(outside / "f")
    unpacked = unpack(archive(("d/x", tarfile.REGTYPE, ""), ("f", tarfile.REGTYPE, ""), ("g", tarfile.REGTYPE, "")), into)
    assert (unpacked.entries, unpacked.left_out, unpacked.size) == (2, 1, 8)
    assert not list(outside.iterdir())
    assert not (into / "f").is_symlink()
    assert (into / "g").stat().st_mode & 0o7000 == 0


def test_a_directory_that_is_replaced_by_a_link_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outside, top = tmp_path / "outside", tmp_path / "top"
    outside.mkdir()
    (outside / "key").write_text("private")
    (top / "d").mkdir(parents=True)
    looked: Callable[..., os.stat_result] = os.stat

    def replaced(path: object, **arguments: object) -> os.stat_result:
        status = looked(path, **arguments)
        if path == "d" and not (top / "d").is_symlink():
            (top / "d").rmdir()
            (top / "d").symlink_to(outside)
        return status

    monkeypatch.setattr(os, "stat", replaced)
    packed = io.BytesIO()
    with pytest.raises(NotADirectoryError):
        pack(top, packed)
    assert b"private" not in packed.getvalue()
