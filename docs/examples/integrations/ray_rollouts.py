"""Ray: many attempts at one repair on all nodes, each in a sandbox on the same base, and a table of the results.

    ray_rollouts.py IMAGE REPOSITORY [NUMBER] [TABLE]     200 attempts and results.csv unless given

REPOSITORY is an absolute path of a git repository on each node, beneath a workspace root of its daemon. Its `test.sh` tests
`area.sh`. The agent is a script, `attempt()`: put yours in its place.
"""

import csv
import random
import sys
import time
from collections import Counter, deque
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import ActorUnschedulableError, RayActorError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from cofferdam import Client, InfrastructureError, v1
from cofferdam.integrations.ray import CofferdamRuntime, Prefetch, SandboxError, SandboxTimeoutError

# Of a node: attempts at the same time, and sandboxes that are ready for the next ones.
WORKERS, AHEAD = 2, 4
# Seconds that a sandbox outlives a worker or a node that was killed.
LEASE = 20.0
# Attempts at an episode that the infrastructure may break, losses until a worker is given up, and seconds between them.
BREAKS, LOST, REST = 5, 3, 4.0
COLUMNS = ["episode", "reward", "broken", "node", "run", "seconds"]
LOSSES = (RayActorError, ActorUnschedulableError)
Worker = Any


def attempt(runtime: CofferdamRuntime, sandbox: str, seed: int) -> None:
    """An agent that guesses an operator."""
    operator = random.Random(seed).choice("+-*")
    runtime.write_file(sandbox, "area.sh", f"area() {{ echo $(($1 {operator} $2)); }}\n")


@ray.remote(num_cpus=0)
def make_base(repository: str) -> str:
    """Has the daemon of a node make the base, unless it has it."""
    with Client() as client:
        source = v1.BaseSource(clone=v1.CloneWorkspace(repository=repository))
        return client.bases.create_base(v1.CreateBaseRequest(source=source, reuse=True), timeout=600).base.base_id


@ray.remote(num_cpus=0, max_restarts=-1)
class Rollouts:
    """Episodes of one node, one after the other."""

    def __init__(self, node: str) -> None:
        # By name: it finds them again when it was restarted.
        self.node, self.ready, self.runtime = node, ray.get_actor(f"ready-{node}"), CofferdamRuntime()

    def episode(self, seed: int) -> dict[str, Any]:
        began = time.monotonic()
        sandbox = self.runtime.attach(ray.get(self.ready.take.remote()))
        try:
            attempt(self.runtime, sandbox, seed)
            passed = self.runtime.exec(sandbox, ["sh", "test.sh"], timeout=30).exit_code == 0
        except InfrastructureError:
            raise
        except SandboxError:
            # Its program never ended, or has broken its own sandbox: a score of 0.
            passed = False
        finally:
            self.runtime.delete(sandbox)
        reward, seconds = float(passed), round(time.monotonic() - began, 3)
        return {"episode": seed, "reward": reward, "node": self.node, "run": sandbox, "seconds": seconds}


def place(image: str, repository: str) -> tuple[list[Any], list[Worker]]:
    """Prepares each node. Returns what has sandboxes ready, and those that use them."""
    nodes = [node["NodeID"] for node in ray.nodes() if node["Alive"]]
    here = {node: {"scheduling_strategy": NodeAffinitySchedulingStrategy(node, soft=False)} for node in nodes}
    bases = {node: make_base.options(**here[node]).remote(repository) for node in nodes}
    ready, workers = [], []
    for node in nodes:
        settings = {"base": ray.get(bases[node]), "readonly": False, "lease": LEASE, "metadata": {"rollouts": "toy"}}
        ready.append(Prefetch.options(name=f"ready-{node}", **here[node]).remote(image, AHEAD, **settings))
        workers += [Rollouts.options(**here[node]).remote(node) for _ in range(WORKERS)]
    return ready, workers


def without_score(seed: int, broken: int) -> dict[str, Any]:
    """The result of an episode that was never played to its end."""
    return {**dict.fromkeys(COLUMNS, ""), "episode": seed, "broken": broken}


def roll_out(workers: list[Worker], number: int) -> list[dict[str, Any]]:
    """Has each episode played once to its end. One that the infrastructure broke is played anew: that is no score."""
    waiting, results, running = deque(range(number)), [], {}
    broken: Counter[int] = Counter()
    lost: Counter[Worker] = Counter()
    # Workers without an episode, and when they may have one.
    resting = dict.fromkeys(workers, 0.0)
    while waiting or running:
        for worker in [worker for worker, until in resting.items() if until <= time.monotonic()][: len(waiting)]:
            del resting[worker]
            seed = waiting.popleft()
            running[worker.episode.remote(seed)] = worker, seed
        if not running:
            if not resting:
                print("no node is left", file=sys.stderr)
                results += [without_score(seed, broken[seed]) for seed in waiting]
                break
            time.sleep(1)
            continue
        for done in ray.wait(list(running), timeout=1)[0]:
            worker, seed = running.pop(done)
            try:
                results.append({**ray.get(done), "broken": broken[seed]})
                lost[worker], resting[worker] = 0, 0.0
            except (InfrastructureError, SandboxTimeoutError, *LOSSES) as error:
                print(f"episode {seed}: {type(error).__name__}", file=sys.stderr)
                broken[seed] += 1
                lost[worker] += isinstance(error, LOSSES)
                if lost[worker] < LOST:
                    resting[worker] = time.monotonic() + REST
                if broken[seed] < BREAKS:
                    waiting.append(seed)
                else:
                    results.append(without_score(seed, broken[seed]))
    return sorted(results, key=lambda result: result["episode"])


def main(image: str, repository: str, number: int = 200, table: str = "results.csv") -> list[dict[str, Any]]:
    ready, workers = place(image, repository)
    results = roll_out(workers, number)
    for waiting in ready:
        try:
            ray.get(waiting.close.remote(), timeout=60)
        except LOSSES:
            # Its node is gone. The daemon ends its sandboxes when their lease is over.
            continue
    with Path(table).open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(results)
    scores = [result["reward"] for result in results if result["reward"] != ""]
    print(f"{len(results)} episodes, {len(scores)} scores, mean reward {sum(scores) / max(len(scores), 1):.2f}")
    print(f"{sum(result['broken'] for result in results)} attempts broken by the infrastructure")
    return results


if __name__ == "__main__":
    ray.init()
    main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:4]), *sys.argv[4:5])
