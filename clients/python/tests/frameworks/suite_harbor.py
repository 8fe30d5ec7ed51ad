"""Harbor: environments as its trials use them, and whole trials by its own command. Harbor has no suite for environments."""

import asyncio
import importlib.util
import json
import subprocess
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from book import program
from daemon import PATIENCE, Daemon
from harbor.environments.base import BaseEnvironment
from harbor.environments.capabilities import EnvironmentResourceCapabilities
from trials import Make, maker, trial

from cofferdam import (
    ApprovalDenied,
    ApprovalRequired,
    BuildFailed,
    Client,
    CofferdamError,
    Denied,
    InvalidArgument,
    NotFound,
    Sandbox,
    v1,
)
from cofferdam.integrations.harbor import CofferdamEnvironment


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARBOR_TELEMETRY", "off")


@pytest.fixture
def make(tmp_path: Path, image: str, profile: str) -> Make:
    return maker(tmp_path, image, profile)


@pytest.fixture
async def started(make: Make) -> AsyncIterator[CofferdamEnvironment]:
    environment = make(persistent_env={"GREETING": "hi"})
    await environment.start(force_build=False)
    yield environment
    await environment.stop(delete=True)


async def test_an_environment_has_one_sandbox_from_start_to_stop(make: Make) -> None:
    # Before 0.25 there are whole processors alone.
    cpus = 0.5 if "fractional_cpus" in EnvironmentResourceCapabilities.model_fields else 1
    environment = make(task={"cpus": cpus, "memory_mb": 512, "workdir": "/workspace/app"})
    assert isinstance(environment, BaseEnvironment)
    assert environment.type() == "cofferdam"
    with pytest.raises(RuntimeError, match="not been started"):
        await environment.exec("true")
    await environment.start(force_build=False)
    run_id = environment.sandbox.run_id
    assert (await environment.exec("pwd")).stdout == "/workspace/app\n"
    with Client() as client:
        assert [run.metadata for run in Sandbox.list(client=client) if run.run_id == run_id] == [{"harbor.session": "t__1"}]
        await environment.stop(delete=True)
        assert run_id not in [run.run_id for run in Sandbox.list("ready", client=client)]
    await environment.stop(delete=True)
    kept = make()
    await kept.start(force_build=False)
    run_id = kept.sandbox.run_id
    await kept.stop(delete=False)
    with Client() as client:
        assert run_id not in [run.run_id for run in Sandbox.list("ready", client=client)]


@pytest.mark.parametrize("lease", [60, None])
async def test_a_sandbox_ends_with_its_program_if_that_is_wanted(make: Make, lease: int | None) -> None:
    environment = make(**({"lease": lease} if lease else {}))
    await environment.start(force_build=False)
    try:
        assert ((await environment.sandbox.info()).lease, environment.sandbox._keeping.goes_on) == (lease, lease is not None)
    finally:
        await environment.stop(delete=True)


async def test_commands_run_with_bash_as_the_one_user(started: CofferdamEnvironment) -> None:
    done = await started.exec("set -o pipefail; echo $GREETING $A; echo err >&2; false | true", env={"A": "1"})
    assert (done.stdout, done.stderr, done.return_code) == ("hi 1\n", "err\n", 1)
    assert (await started.exec("pwd", cwd="/usr/bin")).stdout == "/usr/bin\n"
    first = (await started.exec("id -u")).stdout
    for user in ("root", "0", 0):
        assert (await started.exec("id -u", user=user)).stdout == first
    with started.with_default_user("root"):
        assert (await started.exec("id -u")).stdout == first
    with pytest.raises(ValueError, match="one user"):
        await started.exec("id -u", user="alice")
    with pytest.raises(RuntimeError, match="timed out after 1 seconds"):
        await started.exec("sleep 100", timeout_sec=1)
    assert (await started.exec("kill -TERM $$")).return_code == 143
    with started.scoped_exec_env({"GREETING": "hello"}):
        assert (await started.exec("echo $GREETING")).stdout == "hello\n"


async def test_files_go_both_ways_with_their_modes(started: CofferdamEnvironment, tmp_path: Path) -> None:
    given = tmp_path / "given"
    (given / "d" / "empty").mkdir(parents=True)
    (given / "run.sh").write_text("#!/bin/bash\necho ran\n")
    (given / "run.sh").chmod(0o755)
    (given / "link").symlink_to("run.sh")
    (given / "large").write_bytes(bytes(range(256)) * 20_000)
    await started.upload_dir(given, "/tests/a b")
    assert (await started.exec("'/tests/a b/link'; ls '/tests/a b/d'")).stdout == "ran\nempty\n"
    await started.upload_file(given / "run.sh", "/tests/other.sh")
    assert (await started.exec("/tests/other.sh")).stdout == "ran\n"
    fetched = tmp_path / "fetched"
    (fetched / "d").mkdir(parents=True)
    (fetched / "run.sh").write_text("old")
    await started.download_dir("/tests/a b", fetched)
    assert sorted(path.name for path in fetched.rglob("*")) == ["d", "empty", "large", "link", "run.sh"]
    assert (fetched / "large").read_bytes() == (given / "large").read_bytes()
    assert (fetched / "run.sh").stat().st_mode & 0o777 == 0o755
    assert (fetched / "link").readlink() == Path("run.sh")
    await started.download_file("/tests/a b/large", tmp_path / "new" / "large")
    assert (tmp_path / "new" / "large").read_bytes() == (given / "large").read_bytes()
    await started.download_dir_with_exclusions(source_dir="/tests/a b", target_dir=tmp_path / "part", exclude=["large"])
    assert sorted(path.name for path in (tmp_path / "part").iterdir()) == ["d", "link", "run.sh"]
    for missing in (started.download_dir("/no", tmp_path / "no"), started.download_file("/no", tmp_path / "no2")):
        with pytest.raises(OSError, match="/no"):
            await missing
    assert await started.is_dir("/tests")
    assert not await started.is_file("/tests")


async def test_harbors_own_bookkeeping_works(started: CofferdamEnvironment) -> None:
    await started.exec("echo x > /logs/verifier/f; mkdir -p /logs/agent/d")
    for done in (
        await started.empty_dirs(["/logs/verifier"]),
        await started.reset_dirs(remove_dirs=["/logs/agent"], create_dirs=["/logs/agent"], chmod_dirs=["/logs/agent"]),
    ):
        assert done is not None
        assert done.return_code == 0, done.stderr
    assert (await started.exec("ls /logs/verifier /logs/agent; ls -d /logs/artifacts")).stdout == (
        "/logs/agent:\n\n/logs/verifier:\n/logs/artifacts\n"
    )


def test_a_task_that_cannot_run_is_refused_with_a_remedy(make: Make) -> None:
    with pytest.raises(ValueError, match="neither an image nor a Dockerfile"):
        make(task={"docker_image": None})
    with pytest.raises(ValueError, match="mounted"):
        make(mounts=[{"type": "bind", "source": "/srv", "target": "/data"}])
    with pytest.raises(ValueError, match="mounted"):
        make(mounts=[{"type": "volume", "target": "/data"}])
    with pytest.raises(RuntimeError, match="GPU"):
        make(task={"gpus": 1})
    (make().environment_dir / "docker-compose.yaml").write_text("services: {}\n")
    with pytest.raises(ValueError, match="Compose"):
        make()


async def test_a_read_only_root_is_reported_at_once(make: Make) -> None:
    with pytest.raises(CofferdamError, match="writable"):
        await make(profile="open").start(force_build=False)


async def test_a_working_directory_is_where_the_task_wants_it(make: Make) -> None:
    environment = make(task={"workdir": "/app"})
    (environment.environment_dir / "given.txt").write_text("given")
    await environment.start(force_build=False)
    try:
        assert (await environment.exec("cat given.txt; pwd; touch new")).stdout == "given/app\n"
    finally:
        await environment.stop(delete=True)


async def test_call_that_needs_consent_explains_how_or_waits(make: Make, asking: str) -> None:
    with pytest.raises(ApprovalRequired, match="coffer approval approve"):
        await make(profile=asking).start(force_build=False)
    waiting = make(profile=asking, wait_for_approval=True)
    starting = asyncio.create_task(waiting.start(force_build=False))
    asked = None
    while asked is None:
        assert not starting.done()
        await asyncio.sleep(0.1)
        if waiting._sandbox is not None:
            asked = next(iter(await waiting.sandbox.approvals.list()), None)
    assert asked.operation == "exec"
    await waiting.sandbox.approvals.deny(asked.approval_id, comment="not today")
    with pytest.raises(ApprovalDenied, match="not today"):
        await starting


class Dockerfile:
    """That of `make`'s task, and the images that are built of it."""

    def __init__(self, place: Path, image: str) -> None:
        self._place, self._image = place, image
        # Images of other tests are none of its.
        self._label = f"org.example.test={uuid.uuid4().hex}"

    def write(self, commands: str) -> None:
        self._place.mkdir(parents=True, exist_ok=True)
        (self._place / "Dockerfile").write_text(f"FROM {self._image}\nLABEL {self._label}\nUSER root\n{commands}")

    def images(self) -> set[str]:
        command = ["docker", "image", "ls", "--format", "{{.Repository}}:{{.Tag}}", "--filter", f"label={self._label}"]
        listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
        return {name for name in listed if name.startswith("harbor-task:")}

    def remove(self) -> None:
        """A run's container may be there for a moment after its end."""
        until = time.monotonic() + PATIENCE
        for name in self.images():
            while subprocess.run(["docker", "image", "rm", name], capture_output=True, check=False).returncode:
                assert time.monotonic() < until, name
                time.sleep(0.2)


@pytest.fixture
def dockerfile(tmp_path: Path, image: str) -> Iterator[Dockerfile]:
    if importlib.util.find_spec("dockerfile_parse") is None:
        pytest.skip("Harbor reads no Dockerfile without dockerfile-parse")
    dockerfile = Dockerfile(tmp_path / "task" / "environment", image)
    yield dockerfile
    dockerfile.remove()


def builds() -> int:
    """That were begun, by the record."""
    with Client() as client:
        asked = v1.QueryEventsRequest(filter=v1.EventFilter(kinds=["image_built"]), page_size=100)
        records = [json.loads(event.record_json) for event in client.audit.query_events(asked).events]
    return sum(record["details"]["phase"] == "begun" for record in records)


def of_dockerfile(make: Make) -> CofferdamEnvironment:
    return make(task={"docker_image": None}, build_network=False)


async def first_line(environment: CofferdamEnvironment, force_build: bool = False) -> str | None:
    """Of `/made`, in a sandbox from start to stop."""
    await environment.start(force_build=force_build)
    try:
        return (await environment.exec("cat /made")).stdout
    finally:
        await environment.stop(delete=True)


async def test_a_dockerfile_is_built_once_for_its_content(make: Make, dockerfile: Dockerfile) -> None:
    dockerfile.write("RUN echo first > /made\n")
    before = builds()
    assert await asyncio.gather(*(first_line(of_dockerfile(make)) for _ in range(3))) == ["first\n"] * 3
    assert (builds(), len(dockerfile.images())) == (before + 1, 1)
    assert await first_line(of_dockerfile(make), force_build=True) == "first\n"
    assert (builds(), len(dockerfile.images())) == (before + 2, 1)
    dockerfile.write("RUN echo second > /made\n")
    assert await first_line(of_dockerfile(make)) == "second\n"
    assert (builds(), len(dockerfile.images())) == (before + 3, 2)
    # An image that the task names is not built, unless Harbor wants that.
    assert await first_line(make()) == ""
    assert await first_line(make(build_network=False), force_build=True) == "second\n"


async def test_a_working_directory_of_a_dockerfile_is_the_agents(make: Make, dockerfile: Dockerfile) -> None:
    dockerfile.write("WORKDIR /app\nCOPY given.txt tools/ ./\n")
    place = of_dockerfile(make).environment_dir
    (place / "given.txt").write_text("given\n")
    (place / "tools").mkdir()
    (place / "tools" / "tool").write_text("#!/bin/sh\necho ran\n")
    (place / "tools" / "tool").chmod(0o755)
    environment = of_dockerfile(make)
    await environment.start(force_build=False)
    try:
        done = await environment.exec("pwd; cat given.txt; ./tool; echo more >> given.txt; rm tool; cat given.txt")
        assert (done.stdout, done.stderr) == ("/app\ngiven\nran\ngiven\nmore\n", "")
    finally:
        await environment.stop(delete=True)


async def test_a_failed_build_reports_its_last_output(make: Make, dockerfile: Dockerfile) -> None:
    dockerfile.write("RUN seq 10000; printf 'before-the-end\\033[2J\\n'; exit 7\n")
    with pytest.raises(BuildFailed, match="before-the-end") as failed:
        await of_dockerfile(make).start(force_build=False)
    assert "10000" in failed.value.log
    assert len(failed.value.log) <= 4_000
    assert "before-the-end\n" in failed.value.log
    assert "\033" not in str(failed.value)
    assert "7" in failed.value.message
    assert not dockerfile.images()
    environment = of_dockerfile(make)
    (environment.environment_dir / "link").symlink_to("../../../etc/passwd")
    with pytest.raises(InvalidArgument, match="leads out"):
        await environment.start(force_build=False)


async def test_denied_build_names_the_command_for_an_operator(
    make: Make, dockerfile: Dockerfile, monkeypatch: pytest.MonkeyPatch
) -> None:
    dockerfile.write("RUN echo first > /made\n")
    daemon = Daemon(tcp="address: '127.0.0.1:0', plaintext: true, tokens: {}")
    try:
        token = daemon.coffer("token", "create", "ci", "--role", "orchestrator")
        monkeypatch.setenv("COFFERDAM_ENDPOINT", f"http://127.0.0.1:{daemon.port}")
        monkeypatch.setenv("COFFERDAM_TOKEN", token)
        with pytest.raises(Denied, match="coffer image build") as refused:
            await first_line(of_dockerfile(make))
        command = refused.value.hint.split("`")[1].split()
        assert command[:3] == ["coffer", "image", "build"]
        monkeypatch.delenv("COFFERDAM_TOKEN")
        daemon.coffer(*command[1:], "--no-network")
        monkeypatch.setenv("COFFERDAM_TOKEN", token)
        assert await first_line(of_dockerfile(make)) == "first\n"
        with pytest.raises(NotFound, match="IMAGE_MISSING"):
            await make(image="harbor-task:none").start(force_build=False)
    finally:
        daemon.remove()


def test_a_whole_run_of_the_oracle(tmp_path: Path, image: str, profile: str) -> None:
    result = trial(tmp_path, image, profile, "Write the answer.", "oracle")
    assert result["verifier_result"]["rewards"] == {"reward": 1.0}
    assert (result["place"] / "artifacts" / "logs" / "artifacts" / "answer").read_text() == "42\n"
    with Client() as client:
        assert not [run for run in Sandbox.list("ready", client=client) if "harbor.session" in run.metadata]


def test_a_whole_run_of_a_task_with_a_dockerfile(tmp_path: Path, image: str, profile: str, dockerfile: Dockerfile) -> None:
    dockerfile.write("WORKDIR /app\nCOPY given.txt .\n")
    result = trial(tmp_path, image, profile, "Write the answer.", "oracle", built=True)
    assert result["verifier_result"]["rewards"] == {"reward": 1.0}
    assert len(dockerfile.images()) == 1


@pytest.mark.parametrize(("answer", "reward"), [("42", 1.0), ("41", 0.0)])
def test_a_whole_run_of_a_scripted_agent(tmp_path: Path, image: str, profile: str, answer: str, reward: float) -> None:
    instruction = f"cat given.txt\necho {answer} > answer\ntest -d /logs/agent"
    result = trial(tmp_path, image, profile, instruction, "harbor_agent:Scripted")
    assert result["verifier_result"]["rewards"] == {"reward": reward}
    assert (result["place"] / "agent" / "log.txt").read_text() == "42\n"
    assert result["agent_result"]["metadata"] == {"commands": 3}


def test_the_program_of_the_book(tmp_path: Path, image: str) -> None:
    assert program("harbor_trial")["main"](tmp_path, image) == {"reward": 1.0}
