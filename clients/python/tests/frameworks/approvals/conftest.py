"""Daemons whose agents cannot consent to their own calls, and a reviewer who does.

Commands of frameworks ask under `build` as shipped, and the run is frozen meanwhile.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from consent import Books, Review
from daemon import Daemon

from cofferdam import Client

POLICIES = Path(__file__).parents[5] / "crates" / "policy" / "policies"

# Of all calls of a suite: how many asked, and how many of these were approved and denied.
asked = pytest.StashKey[tuple[int, int, int]]()


def with_a_written_root(build: str) -> str:
    """`build` for Harbor, whose trials write at the root of the image. Such a profile says nothing of programs."""
    document = yaml.safe_load(build)
    (profile,) = document["profiles"].values()
    profile |= {"root": "writable-layer", "container_paths": "allow", "tmp": "exec"}
    profile["operations"] |= {"exec": "ask"}
    profile["exec"] |= {"deny_list": "off", "default": "allow", "read_only_commands": False, "rules": [], "env": ["*"]}
    profile["exec"].pop("env_paths")
    profile["approvals"] |= {"remember": []}
    return yaml.safe_dump({"profiles": {"build-written-root": profile}})


@pytest.fixture(scope="session")
def own_daemon(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    policy = tmp_path_factory.mktemp("policy")
    for name in ("build.yaml", "roles.yaml"):
        (policy / name).write_text((POLICIES / name).read_text())
    (policy / "build-written-root.yaml").write_text(with_a_written_root((POLICIES / "build.yaml").read_text()))
    daemon = Daemon(f"policy_dir: {policy}\n", self_approval=False)
    try:
        yield daemon
        with Client(daemon.endpoint) as client:
            states = list(Books.of(client).check().values())
        pytestconfig.stash[asked] = (len(states), states.count("APPROVED"), states.count("DENIED"))
    finally:
        daemon.remove()


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """For frameworks.sh, after the line of the suites: calls that asked, were approved, and were denied."""
    counts = terminalreporter.config.stash.get(asked, (0, 0, 0))
    terminalreporter.write_line("{} calls asked, {} approved, {} denied".format(*counts))
    target = os.environ.get("COFFERDAM_TEST_COUNTS")
    if target:
        with Path(target).open("a") as file:
            file.write("{} {} {}\n".format(*counts))


@pytest.fixture(scope="session")
def tokens(own_daemon: Daemon) -> dict[str, str]:
    """Of the agent, of the reviewer, and of the one who reads the log."""
    wanted = {"agent": ["orchestrator"], "reviewer": ["approver", "director"], "clerk": ["operator", "auditor"]}
    return {
        name: own_daemon.coffer("token", "create", name, *(word for role in roles for word in ("--role", role)))
        for name, roles in wanted.items()
    }


@pytest.fixture
def review(
    own_daemon: Daemon, tokens: dict[str, str], environment: None, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Review]:
    """A reviewer at work, and an agent's own rights for everything else."""
    monkeypatch.setenv("COFFERDAM_TOKEN", tokens["agent"])
    with (
        Client(own_daemon.endpoint, token=tokens["clerk"]) as client,
        Review(own_daemon, tokens["reviewer"], client) as review,
    ):
        yield review


@pytest.fixture
def profile() -> str:
    return "build"
