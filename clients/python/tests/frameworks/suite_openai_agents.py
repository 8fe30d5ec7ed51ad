"""OpenAI Agents: the tools of a plain agent, the sandbox client, and whole runs with a scripted model."""

import asyncio
import io
import re
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from agents import Agent, ApplyPatchOperation, ApplyPatchTool, RunConfig, Runner, ShellTool
from agents.sandbox import Manifest, SandboxAgent, SandboxRunConfig
from agents.sandbox.entries import File
from agents.sandbox.errors import (
    ConfigurationError,
    ExecTimeoutError,
    ExecTransportError,
    InvalidManifestPathError,
    PtySessionNotFoundError,
    WorkspaceArchiveWriteError,
    WorkspaceReadNotFoundError,
)
from agents.sandbox.session import SandboxSession
from agents.sandbox.snapshot import LocalSnapshotSpec
from agents.sandbox.types import User
from agents.testing import ModelCall, ModelStep, ScriptedModel, assistant_message, function_call
from book import program
from openai.types.responses import ResponseApplyPatchToolCall, ResponseFunctionShellToolCall
from people import approve_next

from cofferdam import (
    ApprovalDenied,
    ApprovalRequired,
    AsyncSandbox,
    CommandLost,
    CommandOutput,
    InfrastructureError,
    v1,
)
from cofferdam._async.process import Reading
from cofferdam.integrations.openai_agents import (
    CofferdamApplyPatchEditor,
    CofferdamSandboxClient,
    CofferdamSandboxClientOptions,
    CofferdamSandboxSession,
    CofferdamSandboxSessionState,
    CofferdamShellExecutor,
    _raise_failed,
)


@pytest.fixture
async def sandbox(image: str, profile: str) -> AsyncIterator[AsyncSandbox]:
    async with await AsyncSandbox.create(profile=profile, image=image) as sandbox:
        yield sandbox


@pytest.fixture
def options(image: str, profile: str) -> CofferdamSandboxClientOptions:
    return CofferdamSandboxClientOptions(profile=profile, image=image)


def only_file(directory: Path) -> bytes:
    """What the one file beneath a directory has."""
    (file,) = (path for path in directory.rglob("*") if path.is_file())
    return file.read_bytes()


def asked(*commands: str, timeout_ms: int | None = None) -> Any:
    action = SimpleNamespace(commands=list(commands), timeout_ms=timeout_ms, max_output_length=1000)
    return SimpleNamespace(data=SimpleNamespace(action=action))


async def test_the_shell_runs_each_command_and_tells_how_it_ended(sandbox: AsyncSandbox, image: str) -> None:
    execute = CofferdamShellExecutor(sandbox)
    result = await execute(asked("echo out; echo err >&2", "exit 3"))
    first, second = result.output
    assert (first.stdout, first.stderr, first.exit_code, first.status) == ("out\n", "err\n", 0, "completed")
    assert second.exit_code == 3
    async with await AsyncSandbox.create(profile="open", image=image) as strict:
        (refused,) = (await CofferdamShellExecutor(strict)(asked("rm -rf /"))).output
    assert (refused.exit_code, refused.stderr) == (126, "Command not allowed: rm")
    assert result.max_output_length == 1000
    (late,) = (await execute(asked("echo first; sleep 30", timeout_ms=3000))).output
    assert (late.stdout, late.status) == ("first\n", "timeout")


async def test_the_editor_changes_files_and_reports_mismatches(sandbox: AsyncSandbox) -> None:
    editor = CofferdamApplyPatchEditor(sandbox)
    made = await editor.create_file(ApplyPatchOperation(type="create_file", path="a/b.txt", diff="+one\n+two\n"))
    assert made.status == "completed"
    change = ApplyPatchOperation(type="update_file", path="a/b.txt", diff="@@\n one\n-two\n+three\n")
    assert (await editor.update_file(change)).status == "completed"
    assert await sandbox.files.read("a/b.txt") == "one\nthree\n"
    again = await editor.update_file(change)
    assert again.status == "failed"
    assert again.output
    moved = ApplyPatchOperation(type="update_file", path="a/b.txt", diff="@@\n-one\n+uno\n", move_to="c.txt")
    assert (await editor.update_file(moved)).status == "completed"
    assert await sandbox.files.read("c.txt") == "uno\nthree\n"
    assert (await editor.delete_file(ApplyPatchOperation(type="delete_file", path="c.txt"))).status == "completed"
    assert not await sandbox.files.exists("c.txt")
    outside = ApplyPatchOperation(type="create_file", path="../../etc/x", diff="+x\n")
    assert (await editor.create_file(outside)).status == "failed"


def output_of(items: Sequence[Any], kind: str) -> Any:
    """What a tool answered: its item of this type that goes back to the model."""
    (found,) = (item.raw_item for item in items if item.type == "tool_call_output_item" and item.raw_item["type"] == kind)
    return found


async def test_a_plain_agent_runs_commands_and_changes_files_by_its_tools(sandbox: AsyncSandbox) -> None:
    shell = ShellTool(executor=CofferdamShellExecutor(sandbox))
    patch = ApplyPatchTool(editor=CofferdamApplyPatchEditor(sandbox))
    commands = ["echo given > given.txt; cat given.txt", "echo err >&2; exit 3"]
    change = {"type": "update_file", "path": "given.txt", "diff": "@@\n-given\n+changed\n"}
    model = ScriptedModel(
        [
            [
                ResponseFunctionShellToolCall.model_validate(
                    {
                        "id": "s1",
                        "call_id": "c1",
                        "type": "shell_call",
                        "status": "completed",
                        "action": {"commands": commands, "timeout_ms": 20_000, "max_output_length": 1000},
                    }
                )
            ],
            [
                ResponseApplyPatchToolCall.model_validate(
                    {"id": "p1", "call_id": "c2", "type": "apply_patch_call", "status": "completed", "operation": change}
                )
            ],
            [assistant_message("done")],
        ]
    )
    result = await Runner.run(Agent(name="a", model=model, tools=[shell, patch]), "go")
    assert result.final_output == "done"
    told = output_of(result.new_items, "shell_call_output")
    assert told["call_id"] == "c1"
    assert [(one["stdout"], one["stderr"], one["outcome"]["exit_code"]) for one in told["output"]] == [
        ("given\n", "", 0),
        ("", "err\n", 3),
    ]
    patched = output_of(result.new_items, "apply_patch_call_output")
    assert (patched["call_id"], patched["status"], patched["output"]) == ("c2", "completed", "updated given.txt")
    assert await sandbox.files.read("given.txt") == "changed\n"
    operations = [event.operation async for event in sandbox.audit.stream(follow=False, kinds=["call_receipt"])]
    assert operations[:3] == ["shell", "shell", "patch"]


async def test_a_session_executes_reads_and_writes(options: CofferdamSandboxClientOptions) -> None:
    client = CofferdamSandboxClient()
    session = await client.create(manifest=Manifest(entries={"in.txt": File(content=b"given")}), options=options)
    async with session:
        assert await session.running()
        assert (await session.read(Path("in.txt"))).read() == b"given"
        await session.write(Path("d/out.bin"), io.BytesIO(b"\x00\xff"))
        assert (await session.read(Path("/workspace/d/out.bin"))).read() == b"\x00\xff"
        done = await session.exec("cat in.txt; echo err >&2; exit 3")
        assert (done.stdout, done.stderr, done.exit_code) == (b"given", b"err\n", 3)
        with pytest.raises(ExecTimeoutError):
            await session.exec("sleep 30", timeout=0.5)
        with pytest.raises(WorkspaceReadNotFoundError):
            await session.read(Path("none"))
        with pytest.raises(InvalidManifestPathError):
            await session.read(Path("/etc/passwd"))
        assert [Path(entry.path).name for entry in await session.ls("d")] == ["out.bin"]
        await session.mkdir("e/f", parents=True)
    await client.delete(session)
    assert not await cast(CofferdamSandboxSession, session._inner).sandbox.is_running()


async def test_a_snapshot_is_a_checkpoint_that_the_run_or_another_one_gets(
    options: CofferdamSandboxClientOptions, tmp_path: Path
) -> None:
    client = CofferdamSandboxClient()
    snapshot = LocalSnapshotSpec(base_path=tmp_path)
    wanted = options.model_copy(update={"snapshots": "checkpoint"})
    session = await client.create(options=wanted, snapshot=snapshot, manifest=Manifest())
    inner = session._inner
    assert isinstance(inner, CofferdamSandboxSession)
    async with session:
        for text in (b"first", b"second", b"kept"):
            await session.write(Path("kept.txt"), io.BytesIO(text))
            await session.stop()
        stored = only_file(tmp_path)
        assert len(stored) < 100
        assert len(inner.state.checkpoints) == 2
        # The same run gets the files of the last one.
        await session.write(Path("kept.txt"), io.BytesIO(b"changed"))
        await session.hydrate_workspace(io.BytesIO(stored))
        assert (await session.read(Path("kept.txt"))).read() == b"kept"
        # A run whose root has changed cannot have them: another one begins on them.
        before = inner.sandbox.run_id
        assert (await session.exec("echo changed > /usr/local/changed")).ok()
        await session.hydrate_workspace(io.BytesIO(stored))
        assert inner.state.run_id == inner.sandbox.run_id != before
        assert not (await session.exec("cat /usr/local/changed")).ok()
        assert (await session.read(Path("kept.txt"))).read() == b"kept"
        state = client.serialize_session_state(session.state)
    first = inner.sandbox.run_id
    async with await AsyncSandbox.connect(first) as ended:
        await ended.stop()
    # It has ended: another one begins on them.
    resumed = await client.resume(client.deserialize_session_state(state))
    async with resumed:
        assert (await resumed.read(Path("kept.txt"))).read() == b"kept"
        other = resumed._inner
        assert isinstance(other, CofferdamSandboxSession)
        forked_from = (await other.sandbox.info()).forked_from
        assert forked_from is not None
        assert forked_from.run_id == first
        assert other.state.run_id == other.sandbox.run_id != first
        with pytest.raises(WorkspaceArchiveWriteError):
            await resumed.hydrate_workspace(io.BytesIO(stored[:-4] + b"0000"))
    await client.delete(resumed)
    await client.delete(session)


async def test_a_session_is_resumed_by_its_state(options: CofferdamSandboxClientOptions) -> None:
    client = CofferdamSandboxClient()
    async with await client.create(options=options) as session:
        await session.write(Path("kept.txt"), io.BytesIO(b"kept"))
        state = client.serialize_session_state(session.state)
    resumed = await client.resume(client.deserialize_session_state(state))
    async with resumed:
        assert (await resumed.read(Path("kept.txt"))).read() == b"kept"
        packed = await resumed.persist_workspace()
    fresh = await client.create(options=options)
    async with fresh:
        await fresh.hydrate_workspace(packed)
        assert (await fresh.read(Path("kept.txt"))).read() == b"kept"
    ended = cast(CofferdamSandboxSessionState, fresh.state)
    await client.delete(fresh)
    another = await client.resume(ended)
    async with another:
        assert (await another.exec("ls kept.txt")).exit_code != 0
    for session in (resumed, another):
        await client.delete(session)


@pytest.mark.parametrize("lease", [60, None])
async def test_a_sandbox_ends_with_its_program_if_that_is_wanted(
    options: CofferdamSandboxClientOptions, lease: int | None
) -> None:
    client = CofferdamSandboxClient()
    async with await client.create(options=options.model_copy(update={"lease": lease})) as session:
        state = client.serialize_session_state(session.state)
    resumed = await client.resume(client.deserialize_session_state(state))
    async with resumed:
        sandbox = cast(CofferdamSandboxSession, resumed._inner).sandbox
        assert ((await sandbox.info()).lease, sandbox._keeping.goes_on) == (lease, lease is not None)
    await client.delete(resumed)


async def test_a_whole_run_with_a_scripted_model(options: CofferdamSandboxClientOptions) -> None:
    model = ScriptedModel(
        [
            [function_call("exec_command", {"cmd": "echo made > made.txt; cat made.txt"}, call_id="c1")],
            [assistant_message("done")],
        ]
    )
    agent = SandboxAgent(name="a", model=model)
    config = RunConfig(sandbox=SandboxRunConfig(client=CofferdamSandboxClient(), options=options))
    result = await Runner.run(agent, "go", run_config=config)
    assert result.final_output == "done"
    assert any("made" in str(getattr(item, "output", "")) for item in result.new_items)


@pytest.fixture
async def session(options: CofferdamSandboxClientOptions) -> AsyncIterator[SandboxSession]:
    client = CofferdamSandboxClient()
    session = await client.create(options=options)
    async with session:
        yield session
    await client.delete(session)


async def test_a_command_continues_after_its_tool_stops_waiting(session: SandboxSession) -> None:
    assert session.supports_pty()
    begun = await session.pty_exec_start("echo first; sleep 9; echo second; exit 7", yield_time_s=3)
    assert (begun.output, begun.exit_code) == (b"first\n", None)
    assert begun.process_id is not None
    shown, update = b"", begun
    while update.process_id is not None:
        update = await session.pty_write_stdin(session_id=begun.process_id, chars="", yield_time_s=10)
        shown += update.output
    assert (shown, update.exit_code) == (b"second\n", 7)
    with pytest.raises(PtySessionNotFoundError):
        await session.pty_write_stdin(session_id=begun.process_id, chars="")
    at_once = await session.pty_exec_start("echo out; echo err >&2; kill -TERM $$", yield_time_s=20)
    assert (sorted(at_once.output.split()), at_once.exit_code, at_once.process_id) == ([b"err", b"out"], 143, None)
    missing = await session.pty_exec_start("no-such-program", shell=False)
    assert (missing.exit_code, missing.process_id) == (127, None)


async def test_a_process_that_the_host_ended_is_an_error_and_has_no_exit_code_for_the_model() -> None:
    process = v1.Process(state=v1.Process.State.INTERRUPTED, failure="the container was killed")
    process.evidence.add(what="engine.exit_code", value="137")
    said = v1.ProcessOutput(stream=v1.ProcessStream.STDOUT, data=b"half")

    async def read(reading: Reading, **_: object) -> AsyncIterator[CommandOutput]:
        for event in (v1.AttachProcessResponse(output=said), v1.AttachProcessResponse(process=process)):
            piece = reading.take(event)
            if piece is not None:
                yield piece

    async def run(*_: object, **__: object) -> object:
        return SimpleNamespace(_process=SimpleNamespace(read=read))

    sandbox = cast(AsyncSandbox, SimpleNamespace(run_id="r", commands=SimpleNamespace(run=run)))
    session = CofferdamSandboxSession(state=cast(Any, SimpleNamespace(run_id="")), sandbox=sandbox)
    process.fault = v1.Fault.FAULT_INFRASTRUCTURE
    with pytest.raises(ExecTransportError, match="the container was killed") as told:
        await session.pty_exec_start("make")
    lost = told.value.__cause__
    assert isinstance(lost, CommandLost)
    assert isinstance(lost, InfrastructureError)
    assert (lost.result.stdout, lost.evidence["engine.exit_code"]) == ("half", "137")
    # No command is made in its place.
    assert told.value.context["retry_safe"] is False
    assert session._terminals._terminals == {}
    process.fault = v1.Fault.FAULT_PROGRAM
    ended = await session.pty_exec_start("make")
    assert (ended.output, ended.exit_code, ended.process_id) == (b"half", -1, None)


async def test_a_terminal_takes_input_and_interrupts(session: SandboxSession) -> None:
    begun = await session.pty_exec_start("test -t 0 && read -r x; echo got-$x; sleep 100", tty=True, yield_time_s=0.3)
    assert begun.process_id is not None
    shown = begun.output
    shown += (await session.pty_write_stdin(session_id=begun.process_id, chars="äb\n", yield_time_s=5)).output
    assert "got-äb" in shown.decode()
    ended = await session.pty_write_stdin(session_id=begun.process_id, chars="\x03", yield_time_s=20)
    assert (ended.exit_code, ended.process_id) == (130, None)
    piped = await session.pty_exec_start("cat; sleep 100", yield_time_s=0.3)
    assert piped.process_id is not None
    with pytest.raises(RuntimeError, match=r"^stdin is not available for this process$"):
        await session.pty_write_stdin(session_id=piped.process_id, chars="x")
    inner = cast(CofferdamSandboxSession, session._inner)
    assert [one.state for one in await inner.sandbox.commands.list()].count("running") == 1
    await session.pty_terminate_all()
    assert [one.state for one in await inner.sandbox.commands.list()].count("running") == 0
    with pytest.raises(PtySessionNotFoundError):
        await session.pty_write_stdin(session_id=piped.process_id, chars="")


async def test_much_output_is_cut_where_the_answer_says(session: SandboxSession) -> None:
    cut = await session.pty_exec_start("seq 1000", yield_time_s=20, max_output_tokens=50)
    assert cut.original_token_count is not None
    assert cut.original_token_count > 50
    assert len(cut.output) < 1000
    much = await session.pty_exec_start(
        "echo first; head -c 5000000 /dev/zero | tr '\\0' x; echo; echo last", yield_time_s=30
    )
    while much.process_id is not None:
        much = await session.pty_write_stdin(session_id=much.process_id, chars="", yield_time_s=30)
    assert len(much.output) < 1_200_000
    assert much.output.endswith(b"x\nlast\n")
    assert b"characters left out]" in much.output


async def test_another_user_is_refused(session: SandboxSession) -> None:
    for call in (
        session.exec("true", user="alice"),
        session.pty_exec_start("true", user=User(name="alice")),
        session.read(Path("x"), user="alice"),
        session.write(Path("x"), io.BytesIO(b""), user="root"),
        session.rm(Path("x"), user="alice"),
    ):
        with pytest.raises(ConfigurationError, match="one user"):
            await call


async def test_a_profile_without_processes_still_runs_commands(image: str) -> None:
    client = CofferdamSandboxClient()
    session = await client.create(options=CofferdamSandboxClientOptions(profile="open", image=image))
    try:
        with pytest.raises(ExecTransportError) as refused:
            await session.pty_exec_start("echo done", shell=False)
        assert refused.value.context["retry_safe"] is True
    finally:
        await client.delete(session)


@pytest.mark.parametrize("wait", [False, True])
async def test_call_that_needs_consent_explains_how_or_waits(asking: str, image: str, wait: bool) -> None:
    client = CofferdamSandboxClient()
    options = CofferdamSandboxClientOptions(profile=asking, image=image, wait_for_approval=wait)
    session = await client.create(options=options)
    run_id = cast(CofferdamSandboxSessionState, session.state).run_id
    try:
        if wait:
            person = asyncio.to_thread(approve_next, run_id)
            done, asked = await asyncio.gather(session.exec("echo done"), person)
            assert (done.stdout, asked.operation) == (b"done\n", "exec")
            state = client.serialize_session_state(session.state)
            resumed = await client.resume(client.deserialize_session_state(state))
            person = asyncio.to_thread(approve_next, run_id)
            update, asked = await asyncio.gather(resumed.pty_exec_start("echo done", yield_time_s=20), person)
            assert (update.output, asked.operation) == (b"done\n", "process")
        else:
            for call in (session.exec("true"), session.pty_exec_start("true")):
                with pytest.raises(ApprovalRequired, match="coffer approval approve"):
                    await call
    finally:
        await client.delete(session)


async def test_a_whole_run_goes_on_with_a_process_of_an_earlier_step(options: CofferdamSandboxClientOptions) -> None:
    def follow(call: ModelCall) -> list[Any]:
        """Names the process that the first step has started."""
        told = call.input[-1]["output"]
        number = re.search(r"running with session ID (\d+)", told)
        assert number is not None, told
        assert "begun" in told
        arguments = {"session_id": int(number[1]), "chars": "on\n", "yield_time_ms": 20_000}
        return [function_call("write_stdin", arguments, call_id="c2")]

    wanted = {"cmd": "echo begun; read -r x; echo goes-$x; exit 5", "tty": True, "yield_time_ms": 500}
    model = ScriptedModel(
        [
            [function_call("exec_command", wanted, call_id="c1")],
            ModelStep.respond(follow),
            [assistant_message("done")],
        ]
    )
    config = RunConfig(sandbox=SandboxRunConfig(client=CofferdamSandboxClient(), options=options))
    result = await Runner.run(SandboxAgent(name="a", model=model), "go", run_config=config)
    assert result.final_output == "done"
    told = [item.output for item in result.new_items if item.type == "tool_call_output_item"]
    assert "goes-on" in told[1]
    assert "Process exited with code 5" in told[1]


async def test_the_program_of_the_book(image: str) -> None:
    said = await program("openai_agents_agent")["main"](image)
    assert "\n42\n" in said
    assert said.endswith("It says 42.")


def test_a_command_that_a_reviewer_denied_is_not_made_again() -> None:
    # The daemon has done nothing.
    denied = ApprovalDenied("no", reason="APPROVAL_DENIED", retry_safe=True)
    with pytest.raises(ExecTransportError) as failed:
        _raise_failed(["rm", "a"], denied)
    assert failed.value.context["retry_safe"] is False
    assert failed.value.retryable is False
