"""Samples of Inspect that begin on a base."""

import json
from pathlib import Path

import pytest
from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.scorer import includes
from inspect_ai.solver import Generate, Solver, TaskState, solver
from inspect_ai.util import SandboxEnvironmentSpec, sandbox
from repositories import bases

from cofferdam import Client, Sandbox
from cofferdam.integrations.inspect import CofferdamSandboxConfig, CofferdamSandboxEnvironment

SAMPLES = 3


@solver
def changes_what_it_reads() -> Solver:
    """Answers with the file as its sample finds it, and changes it."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        read = await sandbox().exec(["cat", "given.txt"])
        await sandbox().write_file("given.txt", "changed")
        state.output.completion = read.stdout + read.stderr
        return state

    return solve


def evaluated(config: CofferdamSandboxConfig | str, place: Path, **options: object) -> None:
    dataset = [Sample(input=f"Read given.txt, {number}.", target="42") for number in range(SAMPLES)]
    task = Task(
        dataset=dataset,
        solver=changes_what_it_reads(),
        scorer=includes(),
        sandbox=SandboxEnvironmentSpec("cofferdam", config),
    )
    (log,) = eval(task, model="mockllm/model", display="none", log_dir=str(place / "logs"), **options)
    assert log.status == "success", log.error
    assert log.results is not None
    assert log.results.scores[0].metrics["accuracy"].value == 1.0


def samples(client: Client) -> list[str]:
    """Runs of samples that are there."""
    return [run.run_id for run in Sandbox.list(None, client=client) if "inspect.task" in run.metadata]


def test_all_samples_begin_on_one_base_of_a_repository_which_stays(
    client: Client, repository: Path, image: str, profile: str, tmp_path: Path
) -> None:
    before = bases(client)
    config = CofferdamSandboxConfig(profile=profile, image=image, repository=str(repository), revision="main")
    evaluated(config, tmp_path)
    (base_id,) = bases(client) - before
    evaluated(config, tmp_path)
    evaluated(CofferdamSandboxConfig(profile=profile, image=image, base=base_id), tmp_path)
    assert bases(client) - before == {base_id}
    assert not samples(client)
    assert (repository / "given.txt").read_text() == "42\n"


@pytest.mark.parametrize("cleanup", [True, False])
def test_a_base_of_a_directory_is_deleted_after_its_task_unless_sandboxes_stay(
    client: Client, repository: Path, image: str, profile: str, tmp_path: Path, cleanup: bool
) -> None:
    before = bases(client)
    config = CofferdamSandboxConfig(profile=profile, image=image, directory=str(repository))
    evaluated(config, tmp_path, sandbox_cleanup=cleanup)
    left = samples(client)
    assert len(left) == (0 if cleanup else SAMPLES)
    assert len(bases(client) - before) == (0 if cleanup else 1)
    for run_id in left:
        Sandbox.connect(run_id, client=client).kill(delete_workspace=True)


def test_options_are_read_from_a_file(client: Client, repository: Path, image: str, profile: str, tmp_path: Path) -> None:
    file = tmp_path / "sandbox.yaml"
    # JSON is YAML.
    file.write_text(json.dumps({"profile": profile, "image": image, "directory": str(repository)}))
    before = bases(client)
    evaluated(str(file), tmp_path)
    assert bases(client) == before


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("profil: harness\n", "profil"),
        ("base: a\nrepository: /b\n", "exclude"),
        ("- profile\n", "profile"),
        ("profile: [\n", "sandbox.yaml"),
    ],
)
async def test_a_file_with_other_options_is_refused(tmp_path: Path, text: str, told: str) -> None:
    file = tmp_path / "sandbox.yaml"
    file.write_text(text)
    with pytest.raises(ValueError, match=told):
        await CofferdamSandboxEnvironment.task_init("t", str(file))
