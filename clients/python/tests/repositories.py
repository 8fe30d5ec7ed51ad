"""Repositories that tests make bases of."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

from cofferdam import Client, v1


def git(place: Path, *words: str) -> None:
    identity = ["-c", "user.name=T", "-c", "user.email=t@example.org"]
    subprocess.run(["git", *identity, *words], cwd=place, check=True)


def commit(place: Path, text: str) -> None:
    """Commits `given.txt` with a text."""
    (place / "given.txt").write_text(text)
    git(place, "add", "-A")
    git(place, "commit", "-q", "-m", text.strip())


def repository_of(place: Path, text: str) -> Path:
    """A repository with `given.txt` and one commit."""
    place.mkdir()
    git(place, "init", "-q", "-b", "main")
    commit(place, text)
    return place


def bases(client: Client) -> set[str]:
    """The ids of all bases."""
    return {base.base_id for base in client.bases.list_bases(v1.ListBasesRequest(page_size=500)).bases}


def deleted_bases(endpoint: str) -> Iterator[Client]:
    """A client whose test begins with the bases that there are, and whose own are deleted afterwards."""
    with Client(endpoint) as client:
        before = bases(client)
        yield client
        for base_id in bases(client) - before:
            client.bases.delete_base(v1.DeleteBaseRequest(base_id=base_id))
