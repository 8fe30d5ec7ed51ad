"""A profile whose runs may have companions, and a daemon that has it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from daemon import Daemon

HARNESS = Path(__file__).parents[3] / "crates/policy/policies/harness.yaml"
#: A server of one file, for a companion of an image with Python.
SERVE = "mkdir /tmp/site && cd /tmp/site && echo 42 >given.txt && exec python3 -m http.server 8000"
#: The command that prints the file of a companion.
FETCH = "python3 -c 'import urllib.request; print(urllib.request.urlopen(\"http://files:8000/given.txt\").read().decode())'"


@contextmanager
def daemon(place: Path, image: str) -> Iterator[Daemon]:
    """Its profile `beside` is the shipped `harness`, with companions of this image."""
    policy = place / "policy"
    policy.mkdir()
    _, harness = HARNESS.read_text().split("\n  harness:\n")
    profile = f"profiles:\n  beside:\n{harness}    companions: {{ images: ['{image}'], max: 2, memory_mib: 512 }}\n"
    (policy / "beside.yaml").write_text(f'{profile}roles: {{ director: {{ allow: "*" }} }}\n')
    started = Daemon(f"policy_dir: {policy}\n")
    try:
        yield started
    finally:
        started.remove()
