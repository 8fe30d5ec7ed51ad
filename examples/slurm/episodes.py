"""Episodes of a toy repair task as jobs of Slurm, by submitit: each episode in a sandbox on the node of its job.

    episodes.py [NUMBER] [PER_JOB] [DIRECTORY]     8 episodes, 4 in each job, files of the jobs in ./jobs unless given

The nodes need the prolog, epilog and task prolog of deploy/slurm, which start a cofferd for each job and say where it
listens. Prints a line of JSON for each episode, and a summary at last. A job that fails fails no other one: its episodes
have no reward, and are counted apart from those with the reward 0. An agent whose program never ends, or breaks its own
sandbox, has the reward 0: otherwise it could choose to have no score. The agent is a script, `attempt()`: put yours in its
place.
"""

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import submitit

from cofferdam import CofferdamError, CommandError, Sandbox

TEST = '[ "$(sh answer.sh 6 7)" = 42 ] && [ "$(sh answer.sh 5 5)" = 25 ]'
Result = dict[str, object]


def attempt(sandbox: Sandbox, seed: int) -> None:
    """An agent that guesses an operator."""
    sandbox.files.write("answer.sh", f"echo $(($1 {'+-*'[seed % 3]} $2))\n")
    sandbox.commands.run(["sh", "answer.sh", "1", "1"], timeout=10)


def is_own(error: CofferdamError) -> bool:
    """True if the agent's programs have failed, also by a limit that they reached."""
    return error.fault == "program" or (error.fault == "policy" and isinstance(error, CommandError))


def episode(seed: int) -> Result:
    where = {"seed": seed, "job": os.environ["SLURM_JOB_ID"], "node": os.environ["SLURMD_NODENAME"]}
    try:
        # Rate limits count the runs of one agent together. The lease ends the sandbox of a process that is killed.
        with Sandbox.create(
            profile="open", agent_id=f"episode-{seed}", metadata={"seed": str(seed)}, timeout=600, lease=60, keep_alive=True
        ) as sandbox:
            attempt(sandbox, seed)
            test = sandbox.commands.run(TEST, timeout=10)
            return {**where, "run_id": sandbox.run_id, "reward": float(test.ok)}
    except CofferdamError as error:
        return {**where, **({"reward": 0.0} if is_own(error) else {}), "failed": str(error)}


def episodes(seeds: Sequence[int]) -> list[Result]:
    """The work of a job: a few episodes, because each job starts a daemon."""
    return [episode(seed) for seed in seeds]


def main(number: int, per_job: int, directory: Path) -> None:
    executor = submitit.SlurmExecutor(directory, python=sys.executable)
    executor.update_parameters(
        job_name="episodes", time=30, nodes=1, ntasks_per_node=1, cpus_per_task=1, array_parallelism=64
    )
    parts = [range(first, min(first + per_job, number)) for first in range(0, number, per_job)]
    results: list[Result] = []
    for part, job in zip(parts, executor.map_array(episodes, parts), strict=True):
        try:
            results += job.result()
        except Exception as error:  # of any kind: the job was killed, its node was lost, its prolog failed
            results += [{"seed": seed, "job": job.job_id, "failed": str(error)} for seed in part]
    for result in results:
        print(json.dumps(result), flush=True)
    rewards = [float(str(result["reward"])) for result in results if "reward" in result]
    mean = f"{sum(rewards) / len(rewards):.2f}" if rewards else "none"
    print(f"{number} episodes in {len(parts)} jobs: mean reward {mean}, {number - len(rewards)} failed without a reward")


if __name__ == "__main__":
    given = dict(enumerate(sys.argv))
    main(int(given.get(1, "8")), int(given.get(2, "4")), Path(given.get(3, "jobs")))
