"""Ray: its sandboxes over runs. Its own tests are in its source alone; these try the same behaviours."""

import inspect
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import ray
import ray.experimental.sandbox as original
from book import program
from daemon import Daemon
from lost import lose
from people import approve_next
from ray.actor import ActorHandle

import cofferdam.integrations.ray as ours
from cofferdam import ApprovalRequired, Client, InfrastructureError, RunInfo, Sandbox, v1
from cofferdam.integrations.ray import (
    CofferdamBackend,
    CofferdamRuntime,
    CofferdamSandboxConfig,
    Prefetch,
    SandboxCreationError,
    SandboxError,
    SandboxExecError,
    SandboxLost,
    SandboxNotFoundError,
    SandboxStatus,
    SandboxTimeoutError,
    create,
    node_resources,
)

#: Parts of gVisor's own backend.
LEFT_OUT = {"GVisorSandboxBackend", "ImageManager", "BaseImageManager", "get_default_oci_spec"}
# Seconds.
PATIENCE = 40.0
SHORT = 5.0


@pytest.fixture(scope="module")
def cluster(endpoint: str) -> Iterator[None]:
    # Its workers find the daemon and this package.
    os.environ["COFFERDAM_ENDPOINT"] = endpoint
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    ray.init(num_cpus=4, include_dashboard=False, object_store_memory=100 * 1024 * 1024, log_to_driver=False)
    yield
    ray.shutdown()
    del os.environ["COFFERDAM_ENDPOINT"]


@pytest.fixture
def runtime() -> Iterator[CofferdamRuntime]:
    made = CofferdamRuntime()
    yield made
    for instance_id in list(made.backend._sandbox_metadata):
        made.delete(instance_id)


@pytest.fixture
def sandbox(runtime: CofferdamRuntime, image: str) -> str:
    return runtime.create(image, readonly=False)


def runs(**metadata: str) -> list[RunInfo]:
    return list(Sandbox.list(None, metadata=metadata))


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.1)


def ends_by_its_lease(instance_id: str) -> None:
    run_id = instance_id.removeprefix("ray-sandbox-")
    with Client() as client:

        def run() -> v1.Run:
            return client.runs.get_run(v1.GetRunRequest(run_id=run_id)).run

        until(lambda: run().state == v1.Run.State.STOPPED)
        assert run().end_cause == v1.Run.EndCause.LEASE
    Sandbox.connect(run_id).kill(delete_workspace=True)
    assert run_id not in {run.run_id for run in runs()}


def test_names_and_signatures_are_those_of_ray() -> None:
    def parameters(function: Callable[..., object]) -> list[tuple[str, object, object]]:
        return [(one.name, one.kind, one.default) for one in inspect.signature(function).parameters.values()]

    assert parameters(create) == parameters(original.create)
    assert set(original.__all__) - set(ours.__all__) == LEFT_OUT
    theirs = original.Sandbox.__ray_metadata__.modified_class
    for name in [name for name in vars(theirs) if not name.startswith("_")]:
        assert parameters(getattr(ours.SandboxActor, name)) == parameters(getattr(theirs, name)), name
    for name in ("exec_command", "write_file", "read_file", "get_status", "delete_sandbox", "create_sandbox"):
        assert parameters(getattr(CofferdamBackend, name)) == parameters(getattr(original.BaseSandboxBackend, name)), name


def test_a_runtime_makes_uses_and_ends_a_sandbox(runtime: CofferdamRuntime, image: str, tmp_path: Path) -> None:
    instance_id = runtime.create(image=image, workdir="/workspace", shell="/bin/sh")
    assert instance_id.startswith("ray-sandbox-")
    assert runtime.get_status(instance_id) is SandboxStatus.RUNNING
    done = runtime.exec(instance_id, "echo 'Hello world'")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "Hello world\n", "")
    assert done.duration_ms > 0
    (tmp_path / "up").write_bytes(b"\0up")
    runtime.upload_file(instance_id, str(tmp_path / "up"), "/workspace/new/up")
    runtime.download_file(instance_id, "new/up", str(tmp_path / "down"))
    assert (tmp_path / "down").read_bytes() == b"\0up"
    runtime.delete(instance_id)
    runtime.delete(instance_id)
    assert runtime.get_status(instance_id) is SandboxStatus.TERMINATED
    with pytest.raises(SandboxNotFoundError):
        runtime.exec(instance_id, "true")
    with pytest.raises(TypeError):
        runtime.create(workdir="/workspace")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="no_such_setting"):
        runtime.create(image, no_such_setting=True)


def test_a_backend_takes_settings_of_ray_alone(image: str) -> None:
    backend = CofferdamBackend()
    instance_id = backend.create_sandbox(original.config.SandboxConfig(image=image, cpu=1.0, memory="512Mi", env={"A": "b"}))
    try:
        assert backend.exec_command(instance_id, ["sh", "-c", "echo $A"]).stdout == "b\n"
        with Client() as client:
            run = client.runs.get_run(v1.GetRunRequest(run_id=instance_id.removeprefix("ray-sandbox-"))).run
        assert (run.limits.cpu_millis, run.limits.memory_bytes) == (1000, 512 * 1024 * 1024)
    finally:
        backend.delete_sandbox(instance_id)
    with pytest.raises(SandboxCreationError, match="host"):
        backend.create_sandbox(original.config.SandboxConfig(image=image, network="host"))


def test_commands_have_their_shell_directory_and_environment(runtime: CofferdamRuntime, sandbox: str) -> None:
    failed = runtime.exec(sandbox, "echo out; echo err >&2; exit 3")
    assert (failed.exit_code, failed.stdout, failed.stderr) == (3, "out\n", "err\n")
    assert runtime.exec(sandbox, "echo $0").stdout == "/bin/bash\n"
    assert runtime.exec(sandbox, "echo $0", shell="/bin/sh").stdout == "/bin/sh\n"
    assert runtime.exec(sandbox, ["printf", "%s", "a b; $X"]).stdout == "a b; $X"
    assert runtime.exec(sandbox, "pwd").stdout == "/workspace\n"
    assert runtime.exec(sandbox, "pwd; echo $X", cwd="/usr", env={"X": "y"}).stdout == "/usr\ny\n"
    assert runtime.exec(sandbox, ["no-such-program"]).exit_code == 127
    with pytest.raises(SandboxExecError, match="one user"):
        runtime.exec(sandbox, "id", user="root")


def test_a_command_that_takes_too_long_is_ended(runtime: CofferdamRuntime, sandbox: str) -> None:
    with pytest.raises(SandboxTimeoutError):
        runtime.exec(sandbox, "sleep 60", timeout=1)
    assert "sleep" not in runtime.exec(sandbox, "cat /proc/[0-9]*/comm").stdout


def test_files_are_written_appended_to_and_missing(runtime: CofferdamRuntime, sandbox: str) -> None:
    data = bytes(range(256)) * 5000
    runtime.write_file(sandbox, "/tmp/new/file", data)
    runtime.write_file(sandbox, "/tmp/new/file", "more\n", append=True)
    assert runtime.read_file(sandbox, "/tmp/new/file") == data + b"more\n"
    runtime.write_file(sandbox, "fresh/log", b"1", append=True)
    runtime.write_file(sandbox, "fresh/log", b"2")
    assert runtime.read_file(sandbox, "/workspace/fresh/log") == b"2"
    with pytest.raises(SandboxError, match="No such file"):
        runtime.read_file(sandbox, "/no such file")
    with pytest.raises(SandboxError, match="directory"):
        runtime.write_file(sandbox, "/workspace", b"")


def test_a_read_only_root_takes_no_writes(runtime: CofferdamRuntime, image: str) -> None:
    instance_id = runtime.create(image, workdir="/workspace/deep/er")
    assert runtime.exec(instance_id, "pwd && touch here").stdout == "/workspace/deep/er\n"
    for path in ("/probe", "/etc/probe"):
        refused = runtime.exec(instance_id, f"touch {path}")
        assert refused.exit_code != 0
        assert "Read-only file system" in refused.stderr
    with pytest.raises(ValueError, match="read-only root"):
        runtime.create(image, workdir="/data")


def test_a_writable_root_is_the_sandboxes_own(runtime: CofferdamRuntime, image: str) -> None:
    first, second = (runtime.create(image, workdir="/data", readonly=False) for _ in range(2))
    assert runtime.exec(first, "pwd && echo 1 > here && echo 1 > /etc/probe").stdout == "/data\n"
    assert runtime.exec(second, "ls here /etc/probe").exit_code != 0


@pytest.mark.parametrize(
    "setting",
    [
        {"network": "host"},
        {"network": "sandbox", "rootless": False},
        {"dns": ["192.0.2.1"], "network": "public"},
        {"capabilities": ["CAP_CHOWN"]},
        {"_oci_spec_transform_fn": dict},
        {"lease": 0.5},
        {"cpu": -1.0},
        {"image": " "},
    ],
)
def test_settings_that_a_sandbox_cannot_have_are_refused(image: str, setting: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(name for name in setting)):
        CofferdamSandboxConfig(**{"image": image, **setting}).request()


def test_refused_sandboxes_are_not_failures_of_the_infrastructure(runtime: CofferdamRuntime, image: str) -> None:
    for refused in ({"image": "no-such-image:1"}, {"image": image, "profile": "none"}, {"image": image, "cpu": 1000.0}):
        with pytest.raises(SandboxCreationError) as caught:
            runtime.create(**refused)
        assert not isinstance(caught.value, InfrastructureError)
    assert runtime.pull_image(image) == image
    with pytest.raises(SandboxCreationError, match="coffer image import"):
        runtime.pull_image("no-such-image")


def test_a_public_network_needs_rules_of_the_profile(runtime: CofferdamRuntime, image: str) -> None:
    with pytest.raises(SandboxCreationError, match="egress"):
        runtime.create(image, network="public", metadata={"test": "public"})
    assert not [run for run in runs(test="public") if run.state == "ready"]


def test_a_refused_command_is_a_result(runtime: CofferdamRuntime, image: str) -> None:
    refused = runtime.exec(runtime.create(image, profile="open"), ["rm", "-rf", "/"])
    assert (refused.exit_code, refused.stdout, refused.stderr) == (126, "", "Command not allowed: rm\n")
    assert refused.call_id
    assert refused.fault == "policy"


@pytest.mark.parametrize("wait", [False, True])
def test_call_that_needs_consent_explains_how_or_waits(asking: str, image: str, wait: bool) -> None:
    runtime = CofferdamRuntime()
    instance_id = runtime.create(image, profile=asking, wait_for_approval=wait)
    if wait:
        with ThreadPoolExecutor() as pool:
            person = pool.submit(approve_next, instance_id.removeprefix("ray-sandbox-"))
            assert runtime.exec(instance_id, "echo done").stdout == "done\n"
            assert person.result().operation == "exec"
    else:
        with pytest.raises(ApprovalRequired, match="coffer approval approve"):
            runtime.exec(instance_id, "echo done")
    runtime.delete(instance_id)


def test_the_same_request_is_the_same_sandbox(runtime: CofferdamRuntime, image: str) -> None:
    other = CofferdamRuntime()
    made = runtime.create(image, request_id="ray-test-1")
    assert runtime.create(image, request_id="ray-test-1") == made
    assert other.create(image, request_id="ray-test-1") == made
    with pytest.raises(SandboxCreationError, match="ALREADY_EXISTS"):
        runtime.create(image, request_id="ray-test-1", profile="harness")
    Sandbox.connect(made.removeprefix("ray-sandbox-")).stop()
    with pytest.raises(SandboxCreationError, match="has ended"):
        runtime.create(image, request_id="ray-test-1")


def test_a_sandbox_goes_from_one_owner_to_the_next(runtime: CofferdamRuntime, image: str) -> None:
    first = CofferdamRuntime()
    made = first.create(image, lease=SHORT)
    first.write_file(made, "kept", "kept")
    handover = first.release(made)
    with pytest.raises(SandboxNotFoundError):
        first.exec(made, "true")
    assert runtime.attach(handover) == made
    # Two leases, without a call that would show whether they were renewed.
    time.sleep(2 * SHORT)
    assert runtime.read_file(made, "kept") == b"kept"
    handover = runtime.release(made)
    ends_by_its_lease(made)
    with pytest.raises(SandboxNotFoundError):
        runtime.attach(handover)


def test_a_sandbox_that_is_taken_late_has_a_whole_lease_again(runtime: CofferdamRuntime, image: str) -> None:
    first = CofferdamRuntime()
    handover = first.release(first.create(image, lease=2 * SHORT))
    time.sleep(1.6 * SHORT)
    made = runtime.attach(handover)
    time.sleep(SHORT)
    assert runtime.get_status(made) is SandboxStatus.RUNNING


def test_a_sandbox_that_ended_before_it_was_taken_is_a_failure_of_the_infrastructure(
    runtime: CofferdamRuntime, image: str
) -> None:
    handover = runtime.release(runtime.create(image))
    Sandbox.connect(handover.instance_id.removeprefix("ray-sandbox-")).stop()
    with pytest.raises(SandboxLost, match="before it was taken") as caught:
        runtime.attach(handover)
    assert caught.value.retry_safe


def test_an_actor_has_a_sandbox(cluster: None, image: str) -> None:
    actor = create(image, cpu=0.5, workdir="/workspace", readonly=False)
    assert isinstance(actor, ActorHandle)
    instance_id = ray.get(actor.get_instance_id.remote())
    assert ray.get(actor.get_config.remote()).cpu == 0.5
    ray.get(actor.write_file.remote("/workspace/file", "content"))
    assert ray.get(actor.read_file.remote("file")) == b"content"
    assert ray.get(actor.exec.remote("cat file")).stdout == "content"
    assert ray.get(actor.get_status.remote()) is SandboxStatus.RUNNING
    ray.get(actor.terminate.remote())
    assert ray.get(actor.get_status.remote()) is SandboxStatus.TERMINATED
    with pytest.raises(SandboxNotFoundError):
        ray.get(actor.get_config.remote())
    assert not [run for run in runs() if run.run_id in instance_id]


def test_the_program_of_the_book(cluster: None, image: str) -> None:
    assert program("ray_sandbox")["main"](image) == "42\n"


def test_a_lost_sandbox_is_told_apart_in_another_process(cluster: None, image: str) -> None:
    actor = create(image)
    instance_id = ray.get(actor.get_instance_id.remote())
    lose(instance_id.removeprefix("ray-sandbox-"))
    until(lambda: ray.get(actor.get_status.remote()) is SandboxStatus.ERROR)
    with pytest.raises(SandboxLost) as caught:
        ray.get(actor.exec.remote("true"))
    assert isinstance(caught.value, InfrastructureError)
    assert isinstance(caught.value, SandboxExecError)
    assert caught.value.evidence["engine.exit_code"] == "137"
    ray.get(actor.delete.remote())


def test_the_sandbox_of_a_dead_actor_ends_by_its_lease(cluster: None, image: str) -> None:
    actor = create(image, lease=SHORT)
    instance_id = ray.get(actor.get_instance_id.remote())
    time.sleep(2 * SHORT)
    assert ray.get(actor.get_status.remote()) is SandboxStatus.RUNNING
    ray.kill(actor)
    ends_by_its_lease(instance_id)


def test_sandboxes_are_ready_before_a_step_asks(cluster: None, runtime: CofferdamRuntime, image: str) -> None:
    ready = Prefetch.remote(image, 3, makers=2, metadata={"test": "prefetch"})
    until(lambda: bool(ray.get(ready.waiting.remote()) == 3))
    assert len(runs(test="prefetch")) == 3
    taken = [runtime.attach(ray.get(ready.take.remote())) for _ in range(2)]
    assert len(set(taken)) == 2
    assert all(runtime.exec(one, "true").exit_code == 0 for one in taken)
    until(lambda: bool(ray.get(ready.waiting.remote()) == 3))
    ray.get(ready.close.remote())
    assert {run.run_id for run in runs(test="prefetch")} == {one.removeprefix("ray-sandbox-") for one in taken}


def test_a_prefetch_says_why_it_has_none(cluster: None) -> None:
    ready = Prefetch.remote("no-such-image:1", 1, makers=1)
    with pytest.raises(SandboxCreationError, match="no-such-image"):
        ray.get(ready.take.remote(timeout=3))
    ray.get(ready.close.remote())


def test_a_node_declares_what_runs_may_take() -> None:
    capacity = v1.NodeAmounts(runs=64, memory_mib=1024, cpu_millis=2500)
    node = v1.Node(node_id=7, state=v1.Node.State.SERVING, capacity=capacity)
    assert node_resources(node) == {
        "cofferdam_runs": 64.0,
        "cofferdam_memory_mib": 1024.0,
        "cofferdam_cores": 2.5,
        "cofferdam_node_7": 1.0,
    }
    node.state = v1.Node.State.DRAINING
    assert node_resources(node) == {}


def test_the_resources_of_a_daemon_are_printed_for_ray() -> None:
    daemon = Daemon("node: { id: 7, capacity: { runs: 5, memory_mib: 4096 } }\n")
    try:
        environment = {**os.environ, "COFFERDAM_ENDPOINT": daemon.endpoint}
        command = [sys.executable, "-m", "cofferdam.integrations.ray"]
        printed = json.loads(subprocess.run(command, env=environment, capture_output=True, check=True).stdout)
    finally:
        daemon.remove()
    assert printed["cofferdam_runs"] == 5
    assert printed["cofferdam_memory_mib"] == 4096
    assert printed["cofferdam_node_7"] == 1
