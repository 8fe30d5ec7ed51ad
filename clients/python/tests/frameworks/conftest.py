"""A daemon whose containers wait for the suites' runs. Marks the checks that cannot hold (known.py), and counts."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from daemon import Daemon
from known import KNOWN, LEFT_OUT
from people import ASKING

from cofferdam import Client, v1

PROFILE = os.environ.get("COFFERDAM_TEST_PROFILE", "harness")
#: Most containers that wait for a suite's runs. They follow the demand.
WAITING = 4

# Of the runs that became ready: how many got a container that waited, and how many there were.
starts = pytest.StashKey[tuple[int, int]]()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        suite, name = item.path.stem, getattr(item, "originalname", item.name)
        reason = KNOWN.get(suite, {}).get(name)
        if reason is not None:
            item.add_marker(pytest.mark.xfail(reason=reason, strict=True))
        reason = LEFT_OUT.get(suite, {}).get(name)
        if reason is not None:
            item.add_marker(pytest.mark.skip(reason=reason))
        if isinstance(item, pytest.Function):
            item.user_properties.append(("module", item.function.__module__))


def is_whole_run(report: pytest.TestReport) -> bool:
    """Of an agent, or an evaluation."""
    return "test_a_whole_run" in report.nodeid


def is_the_frameworks(report: pytest.TestReport) -> bool:
    """One of its own checks, not one of ours beside them."""
    return not str(dict(report.user_properties).get("module", "suite_")).startswith("suite_")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """For frameworks.sh: passed, failed, skipped; of those that passed the framework's own checks and whole runs; starts."""
    warm, ready = terminalreporter.config.stash.get(starts, (0, 0))
    terminalreporter.write_line(f"{warm} of {ready} runs got a container that waited")
    target = os.environ.get("COFFERDAM_TEST_COUNTS")
    if target:
        count = {kind: len(reports) for kind, reports in terminalreporter.stats.items()}
        passed = count.get("passed", 0) + count.get("xpassed", 0)
        failed = count.get("failed", 0) + count.get("error", 0)
        skipped = count.get("skipped", 0) + count.get("xfailed", 0)
        held = terminalreporter.stats.get("passed", [])
        own, whole = (sum(map(which, held)) for which in (is_the_frameworks, is_whole_run))
        Path(target).write_text(f"{passed} {failed} {skipped} {own} {whole} {warm} {ready}\n")


@pytest.fixture(scope="session")
def own_daemon(pytestconfig: pytest.Config, image: str) -> Iterator[Daemon]:
    # Containers of the suites' image alone: tests remove other images, which none may hold.
    daemon = Daemon(f"pool: [{{ profile: {PROFILE}, image: '{image}', min: 0, max: {WAITING} }}]\n")
    yield daemon
    with Client(daemon.endpoint) as client:
        asked = v1.StreamEventsRequest(filter=v1.EventFilter(kinds=["run_state"]))
        details = [json.loads(told.event.record_json)["details"] for told in client.audit.stream_events(asked)]
    kinds = [detail["start_kind"] for detail in details if "start_kind" in detail]
    pytestconfig.stash[starts] = (kinds.count("WARM"), len(kinds))
    daemon.remove()


@pytest.fixture(scope="session")
def profile() -> str:
    """The profile that the suites run with."""
    return PROFILE


@pytest.fixture
def asking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A profile under which a person is asked, and a daemon that has it."""
    policy = tmp_path / "policy"
    policy.mkdir()
    (policy / "asking.yaml").write_text(ASKING)
    daemon = Daemon(f"policy_dir: {policy}\n")
    monkeypatch.setenv("COFFERDAM_ENDPOINT", daemon.endpoint)
    yield "asking"
    daemon.remove()


@pytest.fixture
def reviewing(asking: str) -> str:
    """A profile under which a person is asked for changes of files, too. Its commands cannot write to the workspace."""
    return "reviewing" if asking else asking
