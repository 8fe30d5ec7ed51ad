"""Harbor: tasks that ask for a network, under profiles whose egress allows two servers of the test's."""

import threading
from collections.abc import Iterable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from daemon import Daemon
from harbor.models.task.config import NetworkMode, NetworkPolicy
from trials import OFFLINE, Make, maker, trial
from typing_extensions import override

from cofferdam import Client, v1
from cofferdam.integrations.harbor import CofferdamEnvironment

HARNESS = Path(__file__).parents[4] / "crates/policy/policies/harness.yaml"
RULE = "{{ host: '{host}', ports: [{port}], scheme: http, decision: allow }}"
FETCH = """python3 -c 'import urllib.request; print(urllib.request.urlopen("{url}", timeout=20).read().decode())'"""
PUBLIC = NetworkPolicy(network_mode=NetworkMode.PUBLIC)


def profile(name: str, rules: Iterable[str]) -> str:
    """The shipped `harness` by another name, and with egress."""
    _, harness = HARNESS.read_text().split("\n  harness:\n")
    return f"  {name}:\n{harness}    egress: {{ networks: ['127.0.0.0/8'], rules: [{', '.join(rules)}] }}\n"


def only(*hosts: str) -> NetworkPolicy:
    return NetworkPolicy(network_mode=NetworkMode.ALLOWLIST, allowed_hosts=list(hosts))


class Site:
    """A server on the loopback of this host, by a name that the daemon knows."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.requests = 0
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                site.requests += 1
                self.send_response(200)
                self.end_headers()
                self.wfile.write(text.encode())

            @override
            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def fetch(self) -> str:
        """The command that prints its text."""
        return FETCH.format(url=f"http://{self.name}:{self.port}/")

    def rule(self, host: str) -> str:
        return RULE.format(host=host, port=self.port)

    def end(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def sites() -> Iterator[tuple[Site, Site]]:
    sites = Site("files.example.org", "42"), Site("other.example.org", "41")
    yield sites
    for site in sites:
        site.end()


@pytest.fixture
def networked(sites: tuple[Site, Site], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A daemon with the profiles `named`, whose egress allows both by name, and `every`, which allows every name."""
    policy = tmp_path / "policy"
    policy.mkdir()
    named = profile("named", (site.rule(site.name) for site in sites))
    every = profile("every", (site.rule("*") for site in sites))
    (policy / "network.yaml").write_text(f'profiles:\n{named}{every}roles: {{ director: {{ allow: "*" }} }}\n')
    hosts = ", ".join(f"{site.name}: 127.0.0.1" for site in sites)
    daemon = Daemon(f"policy_dir: {policy}\negress: {{ hosts: {{ {hosts} }} }}\n")
    monkeypatch.setenv("COFFERDAM_ENDPOINT", daemon.endpoint)
    monkeypatch.setenv("HARBOR_TELEMETRY", "off")
    yield
    daemon.remove()


@pytest.fixture
def make(networked: None, tmp_path: Path, image: str) -> Make:
    return maker(tmp_path, image, "named")


async def reached(environment: CofferdamEnvironment, sites: tuple[Site, Site]) -> list[str]:
    """Returns the texts of the sites that an environment reaches, from start to stop."""
    before = [site.requests for site in sites]
    await environment.start(force_build=False)
    try:
        fetched = [await environment.exec(site.fetch) for site in sites]
    finally:
        await environment.stop(delete=True)
    # The servers agree.
    asked = [site.requests - count for site, count in zip(sites, before, strict=True)]
    assert asked == [int(done.return_code == 0) for done in fetched], fetched
    return [(done.stdout or "").strip() for done in fetched if done.return_code == 0]


async def test_an_allowlist_is_all_that_a_task_reaches(make: Make, sites: tuple[Site, Site]) -> None:
    assert await reached(make(network_policy=only("files.example.org")), sites) == ["42"]
    assert await reached(make(network_policy=only("other.example.org", "FILES.example.org.")), sites) == ["42", "41"]
    assert await reached(make(network_policy=only("*.example.org"), profile="every"), sites) == ["42", "41"]
    assert await reached(make(network_policy=only("files.example.org"), profile="every"), sites) == ["42"]
    assert await reached(make(network_policy=only()), sites) == []


async def test_the_rules_of_a_run_are_those_of_its_task(make: Make) -> None:
    environment = make(network_policy=only("files.example.org"), profile="every")
    await environment.start(force_build=False)
    try:
        with Client() as client:
            asked = v1.GetEgressRequest(run_id=environment.sandbox.run_id)
            words = client.egress.get_egress(asked).egress.words
    finally:
        await environment.stop(delete=True)
    assert "files.example.org" in words
    assert "any name" not in words


async def test_a_task_without_a_network_has_none_where_its_profile_has_one(make: Make, sites: tuple[Site, Site]) -> None:
    assert await reached(make(network_policy=OFFLINE), sites) == []
    assert await reached(make(network_policy=PUBLIC, offline=True), sites) == []
    assert await reached(make(network_policy=only("example.net"), offline=True, profile="every"), sites) == []


async def test_a_public_network_needs_a_profile_that_allows_every_name(make: Make, sites: tuple[Site, Site]) -> None:
    assert await reached(make(network_policy=PUBLIC, profile="every"), sites) == ["42", "41"]
    with pytest.raises(ValueError, match=r"the profile named does not allow .*allowed_hosts.*offline=true"):
        await make(network_policy=PUBLIC).start(force_build=False)


@pytest.mark.parametrize("host", ["files.example.net", "example.org", "*.example.org", "127.0.0.1", "127.0.0.0/8", "::1"])
async def test_a_host_that_the_profile_does_not_allow_is_refused_with_a_remedy(make: Make, host: str) -> None:
    environment = make(network_policy=only("files.example.org", host))
    with pytest.raises(ValueError, match=r"the egress of the profile named does not allow .*offline=true") as refused:
        await environment.start(force_build=False)
    assert f"`only` has {host}, which" in str(refused.value)
    with pytest.raises(RuntimeError, match="not been started"):
        await environment.exec("true")


def test_a_whole_run_of_a_task_with_an_allowlist(
    networked: None, sites: tuple[Site, Site], tmp_path: Path, image: str
) -> None:
    files, other = sites
    network = 'network_mode = "allowlist"\nallowed_hosts = ["files.example.org"]'
    source = f"set -o pipefail; ! {other.fetch} && {files.fetch}"
    result = trial(tmp_path, image, "named", "Fetch the answer.", "oracle", network=network, source=source)
    assert result["verifier_result"]["rewards"] == {"reward": 1.0}
    assert (files.requests, other.requests) == (1, 0)
