"""Ray: rollouts on three nodes, of which one is killed, and a worker of another."""

import csv
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import ray
from book import program
from daemon import Daemon
from ray.cluster_utils import Cluster
from repositories import commit, repository_of

from cofferdam import Client, RunInfo, Sandbox

NODES = 3
EPISODES = 200
# Seconds.
LONGEST = 540
LIVING = ("creating", "ready", "paused", "stopping")


@pytest.fixture
def nodes(tmp_path: Path, image: str, profile: str) -> Iterator[list[Daemon]]:
    roots = Path("/var/tmp") / f"cofferdam-ray-{os.getpid()}"
    config = f"pool: [{{ profile: {profile}, image: '{image}', min: 0, max: 2 }}]\n"
    # All nodes have the same repository at the same place.
    made = [Daemon(config, roots=roots) for _ in range(NODES)]
    yield made
    for daemon in made:
        daemon.remove()
    shutil.rmtree(roots)


@pytest.fixture
def repository(nodes: list[Daemon]) -> Path:
    place = repository_of(nodes[0].roots / "task", "given\n")
    (place / "area.sh").write_text("area() { echo $(($1 + $2)); }\n")
    (place / "test.sh").write_text('. ./area.sh\n[ "$(area 6 7)" = 42 ]\n')
    commit(place, "changed\n")
    return place


@pytest.fixture
def cluster(nodes: list[Daemon]) -> Iterator[tuple[Cluster, list[Any]]]:
    made = Cluster()
    share = {"num_cpus": 2, "object_store_memory": 80 * 1024 * 1024, "include_dashboard": False}
    members = [made.add_node(**share, env_vars={"COFFERDAM_ENDPOINT": daemon.endpoint}) for daemon in nodes]
    ray.init(address=made.address, log_to_driver=False, logging_level="ERROR")
    yield made, members
    ray.shutdown()
    made.shutdown()


def runs(daemon: Daemon) -> list[RunInfo]:
    with Client(daemon.endpoint) as client:
        return list(Sandbox.list(None, client=client, metadata={"rollouts": "toy"}))


def until(holds: Callable[[], bool], patience: float = 120.0) -> None:
    end = time.monotonic() + patience
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.5)


def worker_of(daemon: Daemon) -> int | None:
    """A process of Ray that plays episodes at a daemon."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            title, environment = (process / "cmdline").read_bytes(), (process / "environ").read_bytes()
        except OSError:
            continue
        if title.startswith(b"ray::Rollouts") and daemon.endpoint.encode() in environment:
            return int(process.name)
    return None


def test_a_whole_run_on_three_nodes_outlives_a_node_and_a_worker(
    cluster: tuple[Cluster, list[Any]], nodes: list[Daemon], repository: Path, image: str, tmp_path: Path
) -> None:
    signal.alarm(LONGEST)
    members, table = cluster[1], tmp_path / "results.csv"

    def kill() -> None:
        until(lambda: len(runs(nodes[1])) > 0 and worker_of(nodes[1]) is not None)
        until(lambda: len(runs(nodes[2])) > 5)
        os.kill(worker_of(nodes[1]) or 0, signal.SIGKILL)
        # Its daemon dies with its node.
        cluster[0].remove_node(members[2], allow_graceful=False)
        nodes[2].end(signal.SIGKILL)

    with ThreadPoolExecutor() as pool:
        killed = pool.submit(kill)
        results = program("ray_rollouts")["main"](image, str(repository), EPISODES, str(table))
        killed.result()
    assert [result["episode"] for result in results] == list(range(EPISODES))
    assert {result["reward"] for result in results} == {0.0, 1.0}
    assert len({result["run"] for result in results}) == EPISODES
    # Those of the dead node's two workers, until they are given up, and of the worker that was killed.
    assert 2 <= sum(result["broken"] for result in results) <= 9
    with table.open() as file:
        assert [int(row["episode"]) for row in csv.DictReader(file)] == list(range(EPISODES))
    nodes[2].launch()
    for daemon in nodes:
        until(lambda daemon=daemon: not [run for run in runs(daemon) if run.state in LIVING])  # type: ignore[misc]
