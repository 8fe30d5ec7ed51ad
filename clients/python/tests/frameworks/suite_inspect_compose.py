"""Samples of Inspect with several services: the sandbox, and companions that its tools reach."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from beside import FETCH, SERVE, daemon
from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.scorer import includes
from inspect_ai.solver import Generate, Solver, TaskState, solver
from inspect_ai.util import ComposeConfig, SandboxEnvironmentSpec, parse_compose_yaml, sandbox

from cofferdam.integrations.inspect import CofferdamSandboxConfig, CofferdamSandboxEnvironment

TWO = """
x-cofferdam: {{ profile: beside }}
services:
  default:
    image: {image}
    command: tail -f /dev/null
    init: true
    depends_on: {{ files: {{ condition: service_healthy }} }}
  files:
    image: {image}
    command: ["sh", "-c", "{serve}"]
    healthcheck: {{ test: "test -e /tmp/site/given.txt", interval: 200ms, timeout: 5s }}
    expose: [8000]
"""


@pytest.fixture
def compose(tmp_path: Path, image: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A Compose file with two services, and a daemon whose profile `beside` allows them."""
    with daemon(tmp_path, image) as started:
        monkeypatch.setenv("COFFERDAM_ENDPOINT", started.endpoint)
        file = tmp_path / "compose.yaml"
        file.write_text(TWO.format(image=image, serve=SERVE))
        yield file


@solver
def fetches() -> Solver:
    """Answers with the file of the companion."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        # A server may listen a moment after its file is there.
        done = await sandbox().exec(["sh", "-c", f"for n in 1 2 3 4 5; do {FETCH} && break; sleep 1; done"])
        state.output.completion = done.stdout + done.stderr
        return state

    return solve


def evaluated(spec: SandboxEnvironmentSpec, place: Path) -> None:
    task = Task(dataset=[Sample(input="Fetch it.", target="42")], solver=fetches(), scorer=includes(), sandbox=spec)
    (log,) = eval(task, model="mockllm/model", display="none", log_dir=str(place / "logs"))
    assert log.status == "success", log.error
    assert log.results is not None
    assert log.results.scores[0].metrics["accuracy"].value == 1.0


def test_services_of_a_compose_file_are_reached_by_their_names(compose: Path, tmp_path: Path) -> None:
    evaluated(SandboxEnvironmentSpec("cofferdam", str(compose)), tmp_path)


def test_a_compose_file_that_inspect_has_parsed_is_taken(compose: Path, tmp_path: Path) -> None:
    evaluated(SandboxEnvironmentSpec("cofferdam", parse_compose_yaml(str(compose))), tmp_path)


def test_options_name_a_compose_file_beside_them(compose: Path, tmp_path: Path) -> None:
    options = tmp_path / "sandbox.yaml"
    options.write_text("profile: beside\ncompose: compose.yaml\n")
    evaluated(SandboxEnvironmentSpec("cofferdam", str(options)), tmp_path)


def test_a_compose_file_beside_a_task_is_found() -> None:
    assert "compose.yaml" in CofferdamSandboxEnvironment.config_files()
    assert CofferdamSandboxEnvironment.is_docker_compatible()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("services: { other: { image: a, expose: [1] } }", "one service must be the sandbox"),
        ("services: { default: { image: a, volumes: ['/:/host'] } }", "compose.yaml:1: services.default.volumes"),
        ("x-cofferdam: { profil: a }\nservices: { default: { image: a } }", "profil"),
    ],
)
def test_a_compose_file_with_anything_else_is_refused(tmp_path: Path, text: str, told: str) -> None:
    file = tmp_path / "compose.yaml"
    file.write_text(text)
    with pytest.raises(ValueError, match=told):
        CofferdamSandboxConfig.of(str(file))


def test_options_of_a_compose_file_are_read_by_either_way(tmp_path: Path) -> None:
    file = tmp_path / "compose.yaml"
    file.write_text(TWO.format(image="a", serve=SERVE))
    assert CofferdamSandboxConfig.of(str(file)) == CofferdamSandboxConfig(profile="beside", compose=str(file))
    parsed = parse_compose_yaml(str(file))
    assert isinstance(parsed, ComposeConfig)
    assert CofferdamSandboxConfig.of(parsed) == CofferdamSandboxConfig(profile="beside")
    with pytest.raises(ValueError, match="no image is built"):
        CofferdamSandboxConfig.of("Dockerfile")
