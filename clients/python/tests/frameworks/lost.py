"""A sandbox that is lost: its container is killed from outside."""

import subprocess

from cofferdam import Client, v1


def lose(run_id: str) -> None:
    """Kills the container of a run, as a host without memory does."""
    with Client() as client:
        container = client.runs.get_run(v1.GetRunRequest(run_id=run_id)).run.container_id
    subprocess.run(["docker", "kill", container], capture_output=True, check=True)
