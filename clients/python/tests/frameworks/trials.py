"""Environments of Harbor, and whole trials by its own command."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from harbor.models.task.config import EnvironmentConfig, NetworkMode, NetworkPolicy
from harbor.models.trial.paths import TrialPaths

from cofferdam.integrations.harbor import CofferdamEnvironment

NAME = "cofferdam.integrations.harbor:CofferdamEnvironment"
OFFLINE = NetworkPolicy(network_mode=NetworkMode.NO_NETWORK)

Make = Callable[..., CofferdamEnvironment]


def maker(tmp_path: Path, image: str, profile: str) -> Make:
    """Returns a function that makes environments for one task."""

    def make(*, task: dict[str, Any] | None = None, **options: Any) -> CofferdamEnvironment:
        place = tmp_path / "task" / "environment"
        place.mkdir(parents=True, exist_ok=True)
        trial = TrialPaths(tmp_path / "trial")
        trial.trial_dir.mkdir(exist_ok=True)
        return CofferdamEnvironment(
            environment_dir=place,
            environment_name="t",
            session_id="t__1",
            trial_paths=trial,
            task_env_config=EnvironmentConfig.model_validate({"docker_image": image, **(task or {})}),
            **{"network_policy": OFFLINE, "profile": profile, **options},
        )

    return make


TASK = """
schema_version = "1.4"
[environment]
{image}
{network}
[verifier.env]
WANTED = "42"
"""
TEST = """#!/bin/bash
if [[ $(cat answer) == "$WANTED" ]]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
"""


def trial(
    tmp_path: Path,
    image: str,
    profile: str,
    instruction: str,
    agent: str,
    *,
    built: bool = False,
    network: str = 'network_mode = "no-network"',
    source: str = "cat given.txt",
    options: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """The result of a whole run by Harbor's own command.

    `source`: the command by which the oracle learns the answer. `options`: further ones of the environment.
    """
    task = tmp_path / "task"
    for name, text in {
        "task.toml": TASK.format(image="" if built else f'docker_image = "{image}"', network=network),
        "instruction.md": instruction,
        "environment/given.txt": "42\n",
        "solution/solve.sh": f"#!/bin/bash\n{source} | tee answer > /logs/artifacts/answer\n",
        "tests/test.sh": TEST,
    }.items():
        (task / name).parent.mkdir(parents=True, exist_ok=True)
        (task / name).write_text(text)
    program = Path(sys.executable).with_name("harbor")
    places = ["--path", str(task), "--jobs-dir", str(tmp_path / "jobs")]
    given = {"profile": profile, "build_network": "false", **(options or {})}
    arguments = ["--agent", agent, "--env", NAME]
    arguments += [word for name, value in given.items() for word in ("--ek", f"{name}={value}")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [str(program), "run", "--yes", *places, *arguments]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    (result,) = tmp_path.glob("jobs/*/*/result.json")
    found: dict[str, Any] = json.loads(result.read_text())
    assert found["exception_info"] is None, found["exception_info"]
    found["place"] = result.parent
    return found
