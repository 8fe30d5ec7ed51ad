"""The same API over a network: TLS with certificates or tokens, and in the clear on this host alone."""

import random
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from daemon import PATIENCE, Daemon, coffer

from cofferdam import (
    AsyncSandbox,
    AuthenticationFailed,
    Client,
    DaemonUnreachable,
    Denied,
    InvalidArgument,
    Sandbox,
    Tls,
    v1,
)

ACCESS = "access: [{ certificate: ci, roles: [orchestrator] }]\n"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Those that `coffer tls init` makes."""
    place = tmp_path_factory.mktemp("tls") / "tls"
    coffer("tls", "init", str(place), "--client", "ci", "--client", "other")
    return place


@pytest.fixture(scope="module")
def secured(certificates: Path) -> Iterator[Daemon]:
    server = certificates / "server"
    tls = f"certificate: {server}/cert.pem, key: {server}/key.pem, client_ca: {server}/ca.pem"
    daemon = Daemon(ACCESS, f"address: '127.0.0.1:0', tls: {{ {tls} }}, tokens: {{}}, handshake_timeout: 60s")
    # It answers on its socket; on a busy machine the first handshake can take longer than a client waits for it.
    until = time.monotonic() + PATIENCE
    while True:
        try:
            with Client(f"https://localhost:{daemon.port}", tls=certificates / "clients" / "ci") as client:
                client.runs.list_runs(v1.ListRunsRequest())
            break
        except DaemonUnreachable:
            assert time.monotonic() < until, (daemon.place / "log").read_text()
    yield daemon
    daemon.remove()


@pytest.fixture(scope="module")
def plain() -> Iterator[Daemon]:
    daemon = Daemon(tcp="address: '127.0.0.1:0', plaintext: true, tokens: {}")
    yield daemon
    daemon.remove()


@pytest.fixture(scope="module")
def token(secured: Daemon) -> str:
    return secured.coffer("token", "create", "ci", "--role", "orchestrator")


def works(sandbox: Sandbox) -> None:
    with sandbox:
        sandbox.files.write("a.txt", "hi")
        assert sandbox.commands.run(["cat", "a.txt"]).stdout == "hi"
        handle = sandbox.commands.run(["cat"], background=True, stdin_open=True)
        handle.send_stdin("there", close=True)
        assert [piece.text for piece in handle] == ["there"]


def test_the_certificate_has_the_name_that_the_client_was_told(secured: Daemon, certificates: Path) -> None:
    endpoint, directory = f"https://127.0.0.1:{secured.port}", certificates / "clients" / "ci"
    with Client(endpoint, tls=directory, server_name="localhost") as client:
        client.runs.list_runs(v1.ListRunsRequest())
    with Client(endpoint, tls=directory, server_name="other.example.org") as client, pytest.raises(DaemonUnreachable):
        client.runs.list_runs(v1.ListRunsRequest())


def test_a_client_certificate_is_enough(secured: Daemon, certificates: Path) -> None:
    endpoint = f"https://localhost:{secured.port}"
    directory = certificates / "clients" / "ci"
    works(Sandbox.create(profile="harness", endpoint=endpoint, tls=directory))
    files = Tls(ca=directory / "ca.pem", cert=directory / "cert.pem", key=str(directory / "key.pem"))
    works(Sandbox.create(profile="harness", endpoint=f"https://127.0.0.1:{secured.port}/", tls=files))


async def test_the_asynchronous_half_does_the_same(secured: Daemon, certificates: Path, token: str) -> None:
    endpoint = f"https://localhost:{secured.port}"
    ways: list[tuple[Path | Tls, str | None]] = [
        (certificates / "clients" / "ci", None),
        (Tls(ca=certificates / "server" / "ca.pem"), token),
    ]
    for tls, shown in ways:
        async with await AsyncSandbox.create(profile="open", endpoint=endpoint, tls=tls, token=shown) as sandbox:
            assert (await sandbox.commands.run("echo hi")).stdout == "hi\n"


def test_environment_variables_configure_the_client(
    secured: Daemon, certificates: Path, token: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COFFERDAM_ENDPOINT", f"https://localhost:{secured.port}")
    monkeypatch.setenv("COFFERDAM_TLS", str(certificates / "clients" / "ci"))
    works(Sandbox.create(profile="harness"))
    # A directory with an authority alone, and a token.
    (tmp_path / "ca.pem").write_bytes((certificates / "server" / "ca.pem").read_bytes())
    monkeypatch.setenv("COFFERDAM_TLS", str(tmp_path))
    monkeypatch.setenv("COFFERDAM_TOKEN", token)
    works(Sandbox.create(profile="harness"))


def test_in_the_clear_a_token_is_needed(plain: Daemon) -> None:
    token = plain.coffer("token", "create", "ci", "--role", "orchestrator")
    for host in ("127.0.0.1", "localhost"):
        works(Sandbox.create(profile="harness", endpoint=f"http://{host}:{plain.port}", token=token))
    with pytest.raises((AuthenticationFailed, Denied)):
        Sandbox.create(profile="open", endpoint=f"http://localhost:{plain.port}")


def test_transfers_and_much_input_end_no_connection(plain: Daemon, tmp_path: Path) -> None:
    token = plain.coffer("token", "create", "transfers", "--role", "orchestrator")
    content = random.Random(7).randbytes(32 << 20)
    (tmp_path / "large").write_bytes(content)
    with Sandbox.create(profile="harness", endpoint=f"http://127.0.0.1:{plain.port}", token=token) as sandbox:
        for _ in range(2):
            sandbox.files.upload(tmp_path / "large", "large")
            sandbox.files.download("large", tmp_path / "back")
            assert (tmp_path / "back").read_bytes() == content
        handle = sandbox.commands.run(["wc", "-c"], background=True, stdin_open=True)
        for _ in range(1_000):
            handle.send_stdin("k")
        handle.send_stdin("", close=True)
        assert [piece.text.strip() for piece in handle] == ["1000"]
    # The client connects again by itself: only the daemon's log says that it had to.
    assert "connections were closed" not in (plain.place / "log").read_text()


def test_clients_without_credentials_are_refused(secured: Daemon, certificates: Path) -> None:
    endpoint, authority = f"https://localhost:{secured.port}", Tls(ca=certificates / "server" / "ca.pem")
    ways: list[tuple[Path | Tls, str | None]] = [
        (authority, None),
        (authority, "cft_" + "A" * 43),
        (certificates / "clients" / "other", None),
    ]
    for tls, token in ways:
        with pytest.raises((AuthenticationFailed, Denied)):
            Sandbox.create(profile="open", endpoint=endpoint, tls=tls, token=token)
    auditor = secured.coffer("token", "create", "auditor", "--role", "auditor")
    with Client(endpoint, auditor, tls=authority) as client:
        assert client.audit.verify_log(v1.VerifyLogRequest()).intact
        with pytest.raises(Denied):
            Sandbox.create(profile="open", client=client)


def test_revoked_token_is_refused(secured: Daemon, certificates: Path) -> None:
    token = secured.coffer("token", "create", "brief", "--role", "orchestrator", "--profile", "open")
    with Client(f"https://localhost:{secured.port}", token, tls=Tls(ca=certificates / "server" / "ca.pem")) as client:
        with pytest.raises(Denied):
            Sandbox.create(profile="build", client=client)
        sandbox = Sandbox.create(profile="open", client=client)
        [made] = [one for one in client_tokens(secured) if one.name == "brief"]
        secured.coffer("token", "revoke", made.token_id)
        with pytest.raises(Denied, match="revoked"):
            sandbox.files.list()


def client_tokens(daemon: Daemon) -> list[v1.Token]:
    with Client(daemon.endpoint) as client:
        return list(client.tokens.list_tokens(v1.ListTokensRequest()).tokens)


def test_a_daemon_that_is_another_is_not_trusted(secured: Daemon, certificates: Path, tmp_path: Path) -> None:
    coffer("tls", "init", str(tmp_path / "tls"), "--client", "ci")
    endpoint = f"https://localhost:{secured.port}"
    begun = time.monotonic()
    for tls in (tmp_path / "tls" / "clients" / "ci", None):
        with pytest.raises(DaemonUnreachable):
            Sandbox.create(profile="open", endpoint=endpoint, tls=tls)
    with pytest.raises(DaemonUnreachable):
        Sandbox.create(profile="open", endpoint=f"http://localhost:{secured.port}")
    # Less than the patience of a client.
    assert time.monotonic() - begun < 25


def test_a_daemon_that_is_killed_is_found_again(certificates: Path) -> None:
    server = certificates / "server"
    tls = f"certificate: {server}/cert.pem, key: {server}/key.pem, client_ca: {server}/ca.pem"
    daemon = Daemon(ACCESS, f"address: '127.0.0.1:{free_port()}', tls: {{ {tls} }}")
    try:
        endpoint = f"https://localhost:{daemon.port}"
        with Sandbox.create(profile="harness", endpoint=endpoint, tls=certificates / "clients" / "ci") as sandbox:
            handle = sandbox.commands.run("echo a; read line; echo $line", background=True, stdin_open=True)
            pieces = iter(handle)
            assert next(pieces).text == "a\n"
            daemon.end(signal.SIGKILL)
            daemon.launch()
            handle.send_stdin("b\n")
            assert [piece.text for piece in pieces] == ["b\n"]
            assert handle.wait().stdout == "a\nb\n"
    finally:
        daemon.remove()


def free_port() -> int:
    """One below those that outgoing connections are given: none of them takes it while the daemon does not listen."""
    lowest = max(2024, int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0]))
    while True:
        port = random.randrange(1024, lowest)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


@pytest.mark.parametrize(
    "endpoint",
    [
        "https://localhost",
        "https://:7443",
        "https://user@localhost:7443",
        "https://localhost:7443/path",
        "https://localhost:7443?x",
        "https://localhost:port",
        "https://localhost:99999",
        "https://",
        "https://[::1:7443",
        "http://cofferd.example.org:7443",
        "http://192.0.2.1:7443",
        "http://0.0.0.0:7443",
        "http://localhost.example.org:7443",
        "ftp://localhost:7443",
        "localhost:7443",
    ],
)
def test_invalid_endpoints_are_refused(endpoint: str) -> None:
    with pytest.raises(InvalidArgument, match="endpoint"):
        Client(endpoint)


def test_missing_tls_files_are_refused(certificates: Path, tmp_path: Path, endpoint: str) -> None:
    for tls in (tmp_path, tmp_path / "none", Tls(ca=tmp_path / "none"), Tls(cert=certificates / "server" / "cert.pem")):
        with pytest.raises(InvalidArgument, match="tls"):
            Client("https://localhost:7443", tls=tls)
    with pytest.raises(InvalidArgument, match="https"):
        Client(endpoint, tls=certificates)
    with pytest.raises(InvalidArgument, match="https"):
        Client("http://localhost:7443", tls=certificates)


@pytest.mark.parametrize(
    ("endpoint", "target"),
    [
        ("https://cofferd.example.org:7443/", "cofferd.example.org:7443"),
        ("https://[::1]:7443", "[::1]:7443"),
        ("http://[::1]:7443", "[::1]:7443"),
        ("http://127.9.9.9:1", "127.9.9.9:1"),
        ("unix:///run/cofferd.sock", "unix:/run/cofferd.sock"),
    ],
)
def test_an_endpoint_is_understood(endpoint: str, target: str) -> None:
    assert Client(endpoint)._transport.settings.target == target


def test_a_key_is_in_no_representation(certificates: Path) -> None:
    client = Client("https://localhost:7443", tls=certificates / "clients" / "ci")
    assert "PRIVATE" not in repr(client._transport.settings)
    assert "PRIVATE" not in repr(client._transport.settings.certificates)
