"""Local addresses of servers in a sandbox."""

import asyncio
import socket
import threading
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from daemon import Daemon

from cofferdam import (
    AsyncSandbox,
    CofferdamError,
    Denied,
    InvalidArgument,
    PreconditionFailed,
    RunLost,
    RunNotReady,
    Sandbox,
)

POLICY = """
profiles:
  in: { operations: { process: allow }, exec: { default: allow }, forward: allow, allowed_images: ["*"] }
  shut: { operations: { process: allow }, exec: { default: allow }, allowed_images: ["*"] }
roles: { director: { allow: "*" }, worker: { allow: "*" } }
"""
ECHO = """
import socket, threading
server = socket.create_server(("127.0.0.1", 7000), backlog=128)
print("up", flush=True)
def serve(one):
    while data := one.recv(65536):
        one.sendall(data)
    one.close()
while True:
    threading.Thread(target=serve, args=(server.accept()[0],), daemon=True).start()
"""
WEB = ["python3", "-u", "-m", "http.server", "--bind", "0.0.0.0", "8000"]


@pytest.fixture(scope="module")
def forwarding(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    policy = tmp_path_factory.mktemp("policy")
    Path(policy, "in.yaml").write_text(POLICY)
    policy.chmod(0o755)
    daemon = Daemon(config=f"policy_dir: {policy}\n")
    yield daemon
    daemon.remove()


@pytest.fixture
def sandbox(forwarding: Daemon, image: str) -> Iterator[Sandbox]:
    with Sandbox.create(profile="in", image=image, endpoint=forwarding.endpoint) as sandbox:
        yield sandbox


def dial(address: str) -> socket.socket:
    host, port = address.split(":")
    return socket.create_connection((host, int(port)), timeout=60)


def up(sandbox: Sandbox, command: list[str], sign: str) -> None:
    seen = threading.Event()

    def look(text: str) -> None:
        if sign in text:
            seen.set()

    sandbox.commands.run(command, background=True, on_stdout=look)
    assert seen.wait(60)


def test_a_page_is_read_at_a_local_address_until_the_block_ends(sandbox: Sandbox) -> None:
    up(sandbox, WEB, "Serving")
    with sandbox.forward(8000) as address:
        assert address.startswith("127.0.0.1:")
        for _ in range(3):
            assert b"Directory listing" in urllib.request.urlopen(f"http://{address}/", timeout=30).read()
        held = dial(address)
    assert held.recv(1) == b"", "open connections end with the block"
    with pytest.raises(ConnectionRefusedError):
        dial(address)


def test_many_connections_pass_all_bytes_and_each_side_finishes_by_itself(sandbox: Sandbox) -> None:
    up(sandbox, ["python3", "-c", ECHO], "up")
    sent = bytes(range(256)) * 4096

    def send(one: socket.socket) -> None:
        one.sendall(sent)
        one.shutdown(socket.SHUT_WR)

    def echoed(_: int) -> bool:
        with dial(address) as one:
            sender = threading.Thread(target=send, args=(one,))
            sender.start()
            received = b"".join(iter(lambda: one.recv(65536), b""))
            sender.join()
            return received == sent

    with sandbox.forward(7000) as address, ThreadPoolExecutor(20) as pool:
        assert all(pool.map(echoed, range(20)))


def test_a_connection_that_is_refused_or_lost_tells_its_reason(forwarding: Daemon, sandbox: Sandbox, image: str) -> None:
    told: list[CofferdamError] = []
    with sandbox.forward(9, on_error=told.append) as address, dial(address) as one:
        assert one.recv(1) == b""
    assert [type(error) for error in told] == [PreconditionFailed]
    assert "nothing in the run listens on port 9" in str(told[0])

    with (
        Sandbox.create(profile="shut", image=image, endpoint=forwarding.endpoint) as shut,
        shut.forward(9, on_error=told.append) as address,
        dial(address) as one,
    ):
        assert one.recv(1) == b""
    assert type(told[1]) is Denied

    up(sandbox, ["python3", "-c", ECHO], "up")
    with sandbox.forward(7000, on_error=told.append) as address, dial(address) as one:
        one.sendall(b"x")
        assert one.recv(1) == b"x"
        sandbox.stop()
        assert one.recv(1) == b""
        # It ends before its reason is known.
        while len(told) < 3:
            time.sleep(0.02)
    assert type(told[2]) is RunNotReady
    for port, local in ((0, 0), (65536, 0), (80, -1), (80, 65536)):
        with pytest.raises(InvalidArgument):
            sandbox.forward(port, local_port=local)


def test_a_connection_of_a_lost_sandbox_is_lost_to_the_infrastructure(forwarding: Daemon, sandbox: Sandbox) -> None:
    told: list[CofferdamError] = []
    ended = threading.Event()

    def tell(error: CofferdamError) -> None:
        told.append(error)
        ended.set()

    up(sandbox, ["python3", "-c", ECHO], "up")
    with sandbox.forward(7000, on_error=tell) as address, dial(address) as one:
        one.sendall(b"x")
        assert one.recv(1) == b"x"
        forwarding.kill_containers()
        assert ended.wait(60)
    [lost] = told
    assert isinstance(lost, RunLost)
    assert (lost.fault, lost.evidence["engine.exit_code"], lost.retry_safe) == ("infrastructure", "137", False)


async def test_the_asynchronous_half_does_the_same(forwarding: Daemon, image: str) -> None:
    told: list[CofferdamError] = []
    async with await AsyncSandbox.create(profile="in", image=image, endpoint=forwarding.endpoint) as sandbox:
        seen = asyncio.Event()
        await sandbox.commands.run(["python3", "-c", ECHO], background=True, on_stdout=lambda _: seen.set())
        await asyncio.wait_for(seen.wait(), 60)
        sent = bytes(range(256)) * 4096

        async def echoed() -> bool:
            host, port = address.split(":")
            reader, writer = await asyncio.open_connection(host, int(port))

            async def send() -> None:
                writer.write(sent)
                await writer.drain()
                writer.write_eof()

            _, received = await asyncio.gather(send(), reader.read(-1))
            writer.close()
            return received == sent

        async with sandbox.forward(7000, on_error=told.append) as address:
            assert all(await asyncio.gather(*(echoed() for _ in range(20))))
        async with sandbox.forward(9, on_error=told.append) as address:
            reader, writer = await asyncio.open_connection(*address.split(":"))
            assert await reader.read() == b""
            writer.close()
        ended = asyncio.Event()

        def tell(error: CofferdamError) -> None:
            told.append(error)
            ended.set()

        async with sandbox.forward(7000, on_error=tell) as address:
            reader, writer = await asyncio.open_connection(*address.split(":"))
            writer.write(b"x")
            assert await reader.readexactly(1) == b"x"
            await asyncio.to_thread(forwarding.kill_containers)
            await asyncio.wait_for(ended.wait(), 60)
            writer.close()
    assert [type(error) for error in told] == [PreconditionFailed, RunLost]
