"""Inspect: parallel tool calls of an evaluation, and calls of a sandbox that need no consent beside those that do."""

import asyncio
from pathlib import Path

import pytest
from consent import Batch, Review
from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.log import EvalLog
from inspect_ai.model import ChatMessageAssistant, ChatMessageTool, ModelOutput, ModelUsage, get_model
from inspect_ai.solver import generate, use_tools
from inspect_ai.tool import ToolCall, bash
from inspect_ai.util import SandboxEnvironmentSpec

from cofferdam.integrations.inspect import CofferdamSandboxConfig, CofferdamSandboxEnvironment

MODEL = "mockllm/model"


def step(*commands: str) -> ModelOutput:
    """Of a model that makes all of these calls at once, or says that it is done."""
    calls = [ToolCall(id=command, function="bash", arguments={"command": command}) for command in commands]
    output = ModelOutput.from_content(MODEL, "done")
    output.choices[0].message = ChatMessageAssistant(content="done", tool_calls=calls or None)
    # Otherwise Inspect counts tokens, with tables that it fetches.
    output.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)
    return output


def evaluated(config: CofferdamSandboxConfig, *outputs: ModelOutput) -> EvalLog:
    task = Task(
        dataset=[Sample(input="Go.")],
        solver=[use_tools(bash(timeout=30)), generate()],
        sandbox=SandboxEnvironmentSpec("cofferdam", config),
    )
    (log,) = eval(task, model=get_model(MODEL, custom_outputs=list(outputs)), display="none")
    return log


def test_parallel_tool_calls_wait_for_their_reviewer(
    review: Review, profile: str, image: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    batch, last = Batch.of(6, deny=True), Batch.of(1)
    log_shown = f"cat log; : {last.words[0]}"
    config = CofferdamSandboxConfig(profile=profile, image=image, wait_for_approval=True)
    log = evaluated(config, step(*batch.commands), step(log_shown), step())
    assert log.status == "success", log.error
    assert log.samples is not None
    told = {one.tool_call_id: one for one in log.samples[0].messages if isinstance(one, ChatMessageTool)}
    errors = {command: one.error for command, one in told.items() if one.error}
    batch.check_answers([errors[one].message if one in errors else told[one].text for one in batch.commands])
    assert [error.type for error in errors.values()] == ["permission"]
    batch.check_log(told[log_shown].text)
    review.check(batch, last)


async def test_a_call_without_consent_outlasts_the_reviewer_of_another_one(review: Review, profile: str, image: str) -> None:
    batch = Batch.of(2, how="-hold")
    config = CofferdamSandboxConfig(profile=profile, image=image, wait_for_approval=True)
    made = await CofferdamSandboxEnvironment.sample_init("t", config, {})
    environment = made["default"].as_type(CofferdamSandboxEnvironment)
    run_id = environment.sandbox.run_id
    try:
        asking = [asyncio.create_task(environment.exec(["bash", "-c", command])) for command in batch.commands]
        await asyncio.to_thread(review.wait_for, run_id, batch)
        # `touch` is allowed. It may wait for a second, and the reviewer takes longer.
        beside = asyncio.create_task(environment.exec(["touch", "beside"], timeout=1))
        await asyncio.to_thread(review.wait_for_refusal, run_id)
        assert not beside.done()
        review.release()
        batch.check_answers([(await one).stdout for one in asking])
        assert (await beside).success
        batch.check_log((await environment.exec(["cat", "log"])).stdout)
        assert (await environment.exec(["ls"])).stdout.split() == ["beside", "log"]
        review.check(batch)
    finally:
        await CofferdamSandboxEnvironment.sample_cleanup("t", config, made, False)
