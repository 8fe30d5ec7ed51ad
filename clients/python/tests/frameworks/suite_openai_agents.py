"""OpenAI Agents: the tools of a plain agent, the sandbox client, and whole runs with a scripted model."""

import io
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from agents import Agent, ApplyPatchOperation, ApplyPatchTool, RunConfig, Runner, ShellTool
from agents.sandbox import Manifest, SandboxAgent, SandboxRunConfig
from agents.sandbox.entries import File
from agents.sandbox.errors import ExecTimeoutError, InvalidManifestPathError, WorkspaceReadNotFoundError
from agents.testing import ScriptedModel, assistant_message, function_call

from cofferdam import AsyncSandbox
from cofferdam.integrations.openai_agents import (
    CofferdamApplyPatchEditor,
    CofferdamSandboxClient,
    CofferdamSandboxClientOptions,
    CofferdamSandboxSession,
    CofferdamSandboxSessionState,
    CofferdamShellExecutor,
)


@pytest.fixture
async def sandbox(image: str, profile: str) -> AsyncIterator[AsyncSandbox]:
    async with await AsyncSandbox.create(profile=profile, image=image) as sandbox:
        yield sandbox


@pytest.fixture
def options(image: str, profile: str) -> CofferdamSandboxClientOptions:
    return CofferdamSandboxClientOptions(profile=profile, image=image)


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
    (late,) = (await execute(asked("echo first; sleep 30", timeout_ms=500))).output
    assert (late.stdout, late.status) == ("first\n", "timeout")


async def test_the_editor_changes_files_and_says_what_does_not_fit(sandbox: AsyncSandbox) -> None:
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


async def test_they_fit_the_tools(sandbox: AsyncSandbox) -> None:
    shell = ShellTool(executor=CofferdamShellExecutor(sandbox))
    patch = ApplyPatchTool(editor=CofferdamApplyPatchEditor(sandbox))
    model = ScriptedModel([[assistant_message("done")]])
    result = await Runner.run(Agent(name="a", model=model, tools=[shell, patch]), "go")
    assert result.final_output == "done"


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
