"""SWE-ReX: what its own tests do not ask of a deployment, and how it is used as a whole."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from book import program
from swerex.deployment.abstract import AbstractDeployment
from swerex.deployment.hooks.abstract import DeploymentHook
from swerex.exceptions import (
    CommandTimeoutError,
    DeploymentNotStartedError,
    DeploymentStartupError,
    NonZeroExitCodeError,
    SessionDoesNotExistError,
    SessionExistsError,
)
from swerex.runtime.abstract import (
    BashAction,
    BashInterruptAction,
    Command,
    CreateBashSessionRequest,
    ReadFileRequest,
    UploadRequest,
    WriteFileRequest,
)
from warm import soon_starts_warm

from cofferdam import ApprovalRequired, Bind, Client, RunInfo, Sandbox
from cofferdam.integrations.swerex import CofferdamDeployment, CofferdamDeploymentConfig, CofferdamRuntime


@pytest.fixture
async def deployment(image: str, profile: str) -> AsyncIterator[CofferdamDeployment]:
    deployment = CofferdamDeploymentConfig(profile=profile, image=image, env={"GREETING": "hi"}).get_deployment()
    await deployment.start()
    yield deployment
    await deployment.stop()


@pytest.fixture
async def runtime(deployment: CofferdamDeployment) -> CofferdamRuntime:
    await deployment.runtime.create_session(CreateBashSessionRequest())
    return deployment.runtime


async def said(runtime: CofferdamRuntime, command: str, **options: object) -> str:
    observation = await runtime.run_in_session(BashAction.model_validate({"command": command, "timeout": 20, **options}))
    return observation.output


async def test_a_deployment_has_one_sandbox_from_start_to_stop(image: str, profile: str) -> None:
    steps: list[str] = []

    class Steps(DeploymentHook):
        def on_custom_step(self, message: str) -> None:
            steps.append(message)

    deployment = CofferdamDeployment(profile=profile, image=image)
    assert isinstance(deployment, AbstractDeployment)
    deployment.add_hook(Steps())
    with pytest.raises(DeploymentNotStartedError):
        await deployment.is_alive()
    with pytest.raises(DeploymentNotStartedError):
        _ = deployment.runtime
    await deployment.start()
    assert steps == ["Starting sandbox"]
    assert (await deployment.is_alive()).is_alive
    await deployment.runtime.create_session(CreateBashSessionRequest())
    runtime, run_id = deployment.runtime, deployment.runtime.sandbox.run_id
    await deployment.start()
    assert deployment.runtime is runtime
    await deployment.stop()
    with pytest.raises(DeploymentNotStartedError):
        _ = deployment.runtime
    with Client() as client:
        assert run_id not in [run.run_id for run in Sandbox.list("ready", client=client)]
    await deployment.stop()


@pytest.mark.parametrize("lease", [60.0, None])
async def test_a_sandbox_ends_with_its_program_unless_it_is_to_stay(image: str, profile: str, lease: float | None) -> None:
    options = {} if lease else {"lease": None}
    deployment = CofferdamDeploymentConfig.model_validate({"profile": profile, "image": image, **options}).get_deployment()
    await deployment.start()
    try:
        sandbox = deployment.runtime.sandbox
        assert ((await sandbox.info()).lease, sandbox._keeping.goes_on) == (lease, lease is not None)
    finally:
        await deployment.stop()


async def test_a_sandbox_that_cannot_be_made_is_an_error_that_says_why(profile: str) -> None:
    with pytest.raises(DeploymentStartupError, match="no-such-image"):
        await CofferdamDeployment(profile=profile, image="no-such-image").start()
    with pytest.raises(ValueError, match="extra"):
        CofferdamDeploymentConfig.model_validate({"imge": "x"})
    config = CofferdamDeploymentConfig(workspace=Bind("/srv/x"))
    assert config.type == "cofferdam"
    assert config.workspace == Bind("/srv/x")


async def test_a_call_that_needs_consent_says_how_to_get_it(image: str) -> None:
    deployment = CofferdamDeployment(profile="strict", image=image)
    await deployment.start()
    try:
        with pytest.raises(ApprovalRequired, match="coffer approval approve") as caught:
            await deployment.runtime.execute(Command(command=["ls"]))
        assert caught.value.approval_id in str(caught.value)
    finally:
        await deployment.stop()


async def test_a_session_keeps_its_state_and_its_environment(runtime: CofferdamRuntime) -> None:
    await said(runtime, "cd /usr; export A=1; f() { echo f$A; }; alias g='echo g'")
    assert await said(runtime, "pwd; f; echo $GREETING; echo ${undefined-none} hi!!") == "/usr\nf1\nhi\nnone hi!!\n"
    assert await said(runtime, "source /dev/stdin <<< 'PS1=\"(venv) $PS1\" PROMPT_COMMAND=date'") == ""
    assert await said(runtime, "echo still") == "still\n"
    with pytest.raises(SessionExistsError):
        await runtime.create_session(CreateBashSessionRequest())


async def test_a_command_that_takes_too_long_runs_on_until_it_is_interrupted(runtime: CofferdamRuntime) -> None:
    with pytest.raises(CommandTimeoutError, match="first"):
        await said(runtime, "echo first; sleep 100", timeout=3)
    with pytest.raises(CommandTimeoutError, match="interrupt"):
        await said(runtime, "echo second")
    interrupted = await runtime.run_in_session(BashInterruptAction(timeout=5))
    assert "first" in interrupted.output
    assert await said(runtime, "echo second") == "second\n"
    with pytest.raises(CommandTimeoutError):
        await said(runtime, "sh -c \"trap '' INT TSTP; sleep 100\"", timeout=0.5)
    await runtime.run_in_session(BashInterruptAction())
    assert await said(runtime, "echo third; pgrep -c sleep", check="silent") == "third\n0\n"


async def test_a_shell_that_ends_is_a_session_that_ends(runtime: CofferdamRuntime) -> None:
    with pytest.raises(SessionDoesNotExistError, match="7"):
        await said(runtime, "exit 7")
    with pytest.raises(SessionDoesNotExistError):
        await said(runtime, "echo")
    await runtime.create_session(CreateBashSessionRequest())
    assert await said(runtime, "echo again") == "again\n"


async def test_much_output_is_whole(runtime: CofferdamRuntime) -> None:
    output = await said(runtime, "head -c 20000000 /dev/zero | tr '\\0' x; echo; echo end", timeout=120)
    assert output == "x" * 20_000_000 + "\nend\n"


async def test_startup_files_are_sourced(deployment: CofferdamDeployment) -> None:
    runtime = deployment.runtime
    await runtime.write_file(WriteFileRequest(path="/tmp/a b/rc", content="echo from rc; export RC=1\n"))
    made = await runtime.create_session(
        CreateBashSessionRequest(session="rc", startup_source=["'/tmp/a b/rc'"], startup_timeout=20)
    )
    assert made.output == "from rc\n"
    assert await said(runtime, "echo $RC", session="rc") == "1\n"
    await runtime.write_file(WriteFileRequest(path="/tmp/late", content="sleep 100\n"))
    with pytest.raises(CommandTimeoutError):
        await runtime.create_session(CreateBashSessionRequest(session="late", startup_source=["/tmp/late"]))
    with pytest.raises(SessionDoesNotExistError):
        await said(runtime, "echo", session="late")


async def test_commands_have_their_own_environment_directory_and_errors(runtime: CofferdamRuntime, image: str) -> None:
    alone = await runtime.execute(Command(command=["/usr/bin/env"], env={"A": "1"}))
    assert alone.stdout == "A=1\n"
    assert (await runtime.execute(Command(command="pwd", shell=True, cwd="/usr"))).stdout == "/usr\n"
    assert (await runtime.execute(Command(command="no-such-program"))).exit_code == 127
    with pytest.raises(NonZeroExitCodeError, match="sorry"):
        await runtime.execute(Command(command="echo out; exit 3", shell=True, check=True, error_msg="sorry"))
    strict = CofferdamDeployment(profile="open", image=image)
    await strict.start()
    try:
        refused = await strict.runtime.execute(Command(command=["rm", "x"]))
    finally:
        await strict.stop()
    assert refused.exit_code == 126
    assert "rm" in refused.stderr


async def test_files_keep_their_modes(runtime: CofferdamRuntime, tmp_path: Path) -> None:
    (tmp_path / "d" / "e").mkdir(parents=True)
    program = tmp_path / "d" / "run.sh"
    program.write_text("#!/bin/sh\necho ran\n")
    program.chmod(0o755)
    (tmp_path / "d" / "e" / "large").write_bytes(b"\xff" * 3_000_000)
    await runtime.upload(UploadRequest(source_path=str(tmp_path / "d"), target_path="/workspace/new/place"))
    await runtime.upload(UploadRequest(source_path=str(program), target_path="/workspace/other.sh"))
    assert await said(runtime, "/workspace/new/place/run.sh; ./other.sh; wc -c < new/place/e/large") == "ran\nran\n3000000\n"
    with pytest.raises(UnicodeDecodeError):
        await runtime.read_file(ReadFileRequest(path="/workspace/new/place/e/large"))
    read = await runtime.read_file(ReadFileRequest(path="/workspace/new/place/e/large", errors="ignore"))
    assert read.content == ""
    await said(runtime, "mkdir -m 500 shut")
    with pytest.raises(PermissionError):
        await runtime.write_file(WriteFileRequest(path="/workspace/shut/x", content=""))


async def test_the_second_deployment_of_an_image_is_warm(image: str, profile: str) -> None:
    async def live() -> RunInfo:
        deployment = CofferdamDeployment(profile=profile, image=image, env={"GREETING": "hi"})
        await deployment.start()
        try:
            return await deployment.runtime.sandbox.info()
        finally:
            await deployment.stop()

    await soon_starts_warm(live)


async def test_the_program_of_the_book(image: str) -> None:
    assert await program("swerex_deployment")["main"](image) == "/tmp 42\n"
