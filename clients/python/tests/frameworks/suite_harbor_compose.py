"""Harbor: tasks with several services. The service `main` is the sandbox, and its commands reach the others."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from beside import FETCH, SERVE, daemon
from trials import Make, maker, trial

COMPOSE = """
services:
  main:
    build: {{ context: "${{CONTEXT_DIR}}" }}
    image: ${{MAIN_IMAGE_NAME}}
    environment: {{ WORD: "${{WORD:-hello}}" }}
    depends_on: {{ files: {{ condition: service_healthy }} }}
  files:
    image: {image}
    command: ["sh", "-c", "{serve}"]
    healthcheck: {{ test: "test -e /tmp/site/given.txt", interval: 200ms, timeout: 5s }}
    expose: [8000]
"""


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARBOR_TELEMETRY", "off")


@pytest.fixture
def make(tmp_path: Path, image: str) -> Make:
    return maker(tmp_path, image, "beside")


@pytest.fixture
def beside(tmp_path: Path, image: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A daemon whose profile `beside` allows companions."""
    with daemon(tmp_path, image) as started:
        monkeypatch.setenv("COFFERDAM_ENDPOINT", started.endpoint)
        yield


def given(tmp_path: Path, text: str) -> None:
    """The Compose file of the task."""
    place = tmp_path / "task" / "environment"
    place.mkdir(parents=True, exist_ok=True)
    (place / "docker-compose.yaml").write_text(text)


async def test_commands_reach_the_other_services_by_their_names(
    beside: None, make: Make, tmp_path: Path, image: str
) -> None:
    given(tmp_path, COMPOSE.format(image=image, serve=SERVE))
    environment = make(task={"env": {"WORD": "hi"}})
    await environment.start(force_build=False)
    try:
        done = await environment.exec(f"for n in 1 2 3 4 5; do {FETCH} && break; sleep 1; done; echo $WORD")
        assert (done.stdout or "").split() == ["42", "hi"], done
        (status,) = (await environment.sandbox.info()).companions
        assert (status.name, status.state, status.ports) == ("files", "ready", (8000,))
    finally:
        await environment.stop(delete=True)


def test_a_whole_run_with_a_companion(beside: None, tmp_path: Path, image: str) -> None:
    given(tmp_path, COMPOSE.format(image=image, serve=SERVE))
    source = f"for n in 1 2 3 4 5; do {FETCH} && break; sleep 1; done"
    result = trial(tmp_path, image, "beside", "Fetch it.", "oracle", source=source)
    assert result["verifier_result"]["rewards"] == {"reward": 1.0}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("services: { main: { volumes: ['/:/host'] } }", "docker-compose.yaml:1: services.main.volumes"),
        ("services: { main: { privileged: true } }", "no more rights"),
        ("services: { main: { build: ../other } }", "can be built"),
        ("services: { db: { image: '${DB}', expose: [1] } }", "not known"),
        ("x-cofferdam: { profile: a }\nservices: { main: {} }", "--ek"),
    ],
)
def test_a_compose_file_with_anything_else_is_refused(make: Make, tmp_path: Path, text: str, told: str) -> None:
    given(tmp_path, text)
    with pytest.raises(ValueError, match=told):
        make()


def test_the_image_of_a_compose_file_is_that_of_the_sandbox(make: Make, tmp_path: Path) -> None:
    given(tmp_path, "services: { main: { image: 'task:1', mem_limit: 256m }, db: { image: a, expose: [1] } }")
    environment = make(task={"docker_image": None})
    assert environment._ready_image(force_build=False) == "task:1"
    assert environment._limits().memory_bytes == 256 << 20
