"""Companions of a sandbox: how they are asked for, what is known of them, and what they write."""

import time
from collections.abc import Iterator

import pytest
from beside import FETCH, SERVE, daemon

from cofferdam import AsyncClient, AsyncSandbox, Client, CofferdamError, Companion, InvalidArgument, Sandbox, _requests, v1


@pytest.fixture(scope="module")
def beside(tmp_path_factory: pytest.TempPathFactory, image: str) -> Iterator[str]:
    """The endpoint of a daemon whose profile `beside` allows companions of the image."""
    with daemon(tmp_path_factory.mktemp("beside"), image) as started:
        yield started.endpoint


def files(image: str) -> Companion:
    return Companion(name="files", image=image, command=["sh", "-c", SERVE], ready=8000, ready_timeout=30)


def test_commands_reach_a_companion_whose_state_and_log_are_known(beside: str, image: str) -> None:
    with (
        Client(beside) as client,
        Sandbox.create(profile="beside", image=image, companions=[files(image)], client=client) as sandbox,
    ):
        assert sandbox.commands.run(FETCH).stdout.strip() == "42"
        (info,) = sandbox.info().companions
        assert (info.name, info.image, info.state, info.exit_code, info.ports) == ("files", image, "ready", None, (8000,))
        assert info.image_digest
        assert info.address
        # The engine may get the line after its answer.
        while b"GET /given.txt" not in (log := b"".join(sandbox.companion_logs("files"))):
            time.sleep(0.05)
        assert b"".join(sandbox.companion_logs("files", tail_bytes=10)) == log[-10:]
        with pytest.raises(CofferdamError):
            list(sandbox.companion_logs("other"))


async def test_a_log_is_followed_until_it_is_left(beside: str, image: str) -> None:
    async with (
        AsyncClient(beside) as client,
        await AsyncSandbox.create(profile="beside", image=image, companions=[files(image)], client=client) as sandbox,
    ):
        await sandbox.commands.run(FETCH)
        log = b""
        parts = sandbox.companion_logs("files", follow=True)
        async for part in parts:
            log += part
            if b"GET /given.txt" in log:
                break
        await parts.aclose()
        (info,) = (await sandbox.info()).companions
        assert info.state == "ready"


def test_a_companion_that_ends_before_it_is_ready_fails_the_sandbox_by_its_name(beside: str, image: str) -> None:
    ends = Companion(name="ends", image=image, command=["sh", "-c", "echo no disk; exit 3"], ready=8000, ready_timeout=20)
    with Client(beside) as client, pytest.raises(CofferdamError, match="ends") as caught:
        Sandbox.create(profile="beside", image=image, companions=[ends], client=client)
    assert "no disk" in caught.value.message


def test_other_images_are_refused_and_so_are_all_without_the_key(beside: str, image: str, endpoint: str) -> None:
    other = Companion(name="db", image="postgres:15", ports=[5432])
    with Client(beside) as client, pytest.raises(CofferdamError, match=r"postgres:15"):
        Sandbox.create(profile="beside", image=image, companions=[other], client=client)
    with pytest.raises(CofferdamError, match="companions"):
        Sandbox.create(profile="open", image=image, companions=[files(image)], endpoint=endpoint)


def test_arguments_become_a_request() -> None:
    given = Companion(
        name="db",
        image="postgres:15",
        command=["postgres"],
        env={"A": "1"},
        secret_env={"B": "2"},
        ready=["pg_isready"],
        ready_timeout=1.5,
        ready_interval=0.25,
        memory_mib=512,
        ports=[5432],
        depends_on=["cache"],
        egress={"only": ["files.example.org"]},
    )
    assert _requests.companion(given) == v1.Companion(
        name="db",
        image="postgres:15",
        command=["postgres"],
        env={"A": "1"},
        secret_env={"B": "2"},
        ready=v1.Readiness(command=v1.Readiness.Command(args=["pg_isready"]), timeout_seconds=2, interval_milliseconds=250),
        memory_mib=512,
        ports=[5432],
        depends_on=["cache"],
        egress_json='{"only": ["files.example.org"]}',
    )
    assert _requests.companion(Companion("a", "b")) == v1.Companion(name="a", image="b")
    assert "hunter2" not in repr(Companion("a", "b", secret_env={"P": "hunter2"}))
    for bad in (
        Companion("a", "b", ready="redis-cli ping"),
        Companion("a", "b", command="redis-server"),
        Companion("a", "b", ready_timeout=5),
        Companion("a", "b", ready=1, ready_timeout=0),
        Companion("a", "b", ports=[-1]),
        Companion("a", "b", memory_mib=2**32),
    ):
        with pytest.raises(InvalidArgument, match="companion a"):
            _requests.companion(bad)
