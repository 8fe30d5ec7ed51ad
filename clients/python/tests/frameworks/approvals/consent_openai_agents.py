"""OpenAI Agents: parallel tool calls of an agent in a sandbox, and commands of a plain agent's shell tool."""

from types import SimpleNamespace
from typing import Any, cast

from agents import Agent, RunConfig, Runner, ShellTool
from agents.sandbox import SandboxAgent, SandboxRunConfig
from agents.testing import ScriptedModel, assistant_message, function_call
from consent import Batch, Review
from openai.types.responses import ResponseFunctionShellToolCall

from cofferdam import AsyncSandbox
from cofferdam.integrations.openai_agents import (
    CofferdamSandboxClient,
    CofferdamSandboxClientOptions,
    CofferdamSandboxSessionState,
    CofferdamShellExecutor,
)


async def test_parallel_tool_calls_wait_for_their_reviewer(review: Review, profile: str, image: str) -> None:
    batch = Batch.of(6, deny=True)
    client = CofferdamSandboxClient()
    options = CofferdamSandboxClientOptions(profile=profile, image=image, wait_for_approval=True)
    session = await client.create(options=options)
    run_id = cast(CofferdamSandboxSessionState, session.state).run_id
    calls = [function_call("exec_command", {"cmd": command}, call_id=command) for command in batch.commands]
    model = ScriptedModel([calls, [assistant_message("done")]])
    try:
        async with session:
            config = RunConfig(sandbox=SandboxRunConfig(session=session))
            result = await Runner.run(SandboxAgent(name="a", model=model), "go", run_config=config)
        assert result.final_output == "done"
        items = [cast(Any, item) for item in result.new_items if item.type == "tool_call_output_item"]
        answers = {item.raw_item["call_id"]: str(item.output) for item in items}
        batch.check_answers([answers[command] for command in batch.commands])
        async with await AsyncSandbox.connect(run_id) as sandbox:
            batch.check_log(await sandbox.files.read("log"))
        review.check(batch)
    finally:
        await client.delete(session)


async def test_commands_of_a_shell_tool_wait_for_their_reviewer(review: Review, profile: str, image: str) -> None:
    batches = [Batch.of(1), Batch.of(1, deny=True), Batch.of(1)]
    commands = [command for batch in batches for command in batch.commands]
    call = {
        "id": "s1",
        "call_id": "c1",
        "type": "shell_call",
        "status": "completed",
        "action": {"commands": commands, "timeout_ms": 20_000, "max_output_length": 1000},
    }
    model = ScriptedModel([[ResponseFunctionShellToolCall.model_validate(call)], [assistant_message("done")]])
    async with await AsyncSandbox.create(profile=profile, image=image, wait_for_approval=True) as sandbox:
        agent = Agent(name="a", model=model, tools=[ShellTool(executor=CofferdamShellExecutor(sandbox))])
        result = await Runner.run(agent, "go")
        assert result.final_output == "done"
        (item,) = (cast(Any, item) for item in result.new_items if item.type == "tool_call_output_item")
        output = [SimpleNamespace(**one) for one in item.raw_item["output"]]
        for batch, one in zip(batches, output, strict=True):
            batch.check_answers([f"{one.stdout}{one.stderr}"])
        assert [one.outcome["exit_code"] for one in output] == [0, 126, 0]
        assert (await sandbox.files.read("log")).split() == [word for batch in batches for word in batch.approved]
        review.check(*batches)
