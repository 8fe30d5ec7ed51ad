"""A whole evaluation of Inspect with a scripted model, whose sandbox is found by its name."""

import asyncio
from pathlib import Path

import pytest
from book import program
from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import includes
from inspect_ai.solver import Generate, Solver, TaskState, generate, solver, use_tools
from inspect_ai.tool import bash
from inspect_ai.util import OutputLimitExceededError, SandboxEnvironmentSpec, sandbox
from lost import lose
from people import approve_next
from warm import soon_starts_warm

from cofferdam import ApprovalRequired, Client, RunInfo, Sandbox
from cofferdam.integrations.inspect import CofferdamSandboxConfig, CofferdamSandboxEnvironment


def test_a_sample_is_solved_and_its_sandbox_ends(
    image: str, profile: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    outputs = [
        ModelOutput.for_tool_call("mockllm/model", "bash", {"command": "cat given.txt; echo err >&2"}),
        ModelOutput.from_content("mockllm/model", "it says 42"),
    ]
    for output in outputs:
        # Otherwise Inspect counts tokens, with tables that it fetches.
        output.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)
    task = Task(
        dataset=[Sample(input="Read given.txt", target="42", files={"given.txt": "42\n"})],
        solver=[use_tools(bash(timeout=30)), generate()],
        scorer=includes(),
        sandbox=SandboxEnvironmentSpec("cofferdam", CofferdamSandboxConfig(profile=profile, image=image)),
    )
    (log,) = eval(task, model=get_model("mockllm/model", custom_outputs=outputs), display="none")
    assert log.status == "success", log.error
    assert log.results is not None
    assert log.results.scores[0].metrics["accuracy"].value == 1.0
    assert log.samples is not None
    (answer,) = (message for message in log.samples[0].messages if message.role == "tool")
    assert "42" in answer.text, answer
    with Client() as client:
        assert not [run for run in Sandbox.list(client=client) if "inspect.task" in run.metadata]


def test_a_sample_whose_sandbox_is_lost_is_an_error_and_no_score_of_zero(
    image: str, profile: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    @solver
    def loses() -> Solver:
        async def solve(state: TaskState, generate: Generate) -> TaskState:
            environment = sandbox().as_type(CofferdamSandboxEnvironment)
            await asyncio.to_thread(lose, environment.sandbox.run_id)
            return state

        return solve

    output = ModelOutput.for_tool_call("mockllm/model", "bash", {"command": "true"})
    # Otherwise Inspect counts tokens, with tables that it fetches.
    output.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)
    task = Task(
        dataset=[Sample(input="Do it", target="42")],
        solver=[use_tools(bash(timeout=30)), loses(), generate()],
        scorer=includes(),
        sandbox=SandboxEnvironmentSpec("cofferdam", CofferdamSandboxConfig(profile=profile, image=image)),
    )
    (log,) = eval(task, model=get_model("mockllm/model", custom_outputs=[output]), display="none", fail_on_error=False)
    assert log.samples is not None
    (sample,) = log.samples
    assert sample.error is not None, sample.messages
    # The call can begin before or after the daemon knows.
    assert "(RUN_LOST)" in sample.error.traceback
    assert not sample.scores


@pytest.mark.parametrize("wait", [False, True])
async def test_call_that_needs_consent_explains_how_or_waits(asking: str, image: str, wait: bool) -> None:
    config = CofferdamSandboxConfig(profile=asking, image=image, wait_for_approval=wait)
    made = await CofferdamSandboxEnvironment.sample_init("t", config, {})
    environment = made["default"].as_type(CofferdamSandboxEnvironment)
    try:
        if wait:
            person = asyncio.to_thread(approve_next, environment.sandbox.run_id)
            done, asked = await asyncio.gather(environment.exec(["echo", "done"]), person)
            assert (done.stdout, asked.operation) == ("done\n", "exec")
        else:
            with pytest.raises(ApprovalRequired, match="coffer approval approve"):
                await environment.exec(["echo", "done"])
    finally:
        await CofferdamSandboxEnvironment.sample_cleanup("t", config, made, False)


@pytest.mark.parametrize("lease", [60, None])
async def test_a_sandbox_ends_with_its_program_if_that_is_wanted(image: str, profile: str, lease: int | None) -> None:
    config = CofferdamSandboxConfig(profile=profile, image=image, lease=lease)
    made = await CofferdamSandboxEnvironment.sample_init("t", config, {})
    environment = made["default"].as_type(CofferdamSandboxEnvironment)
    try:
        assert ((await environment.sandbox.info()).lease, environment.sandbox._keeping.goes_on) == (lease, lease is not None)
    finally:
        await CofferdamSandboxEnvironment.sample_cleanup("t", config, made, False)


async def test_output_of_a_command_ended_at_its_limit_is_marked_incomplete(asking: str, image: str) -> None:
    assert asking
    config = CofferdamSandboxConfig(profile="little", image=image)
    made = await CofferdamSandboxEnvironment.sample_init("t", config, {})
    try:
        with pytest.raises(OutputLimitExceededError) as caught:
            await made["default"].exec(["seq", "100000"])
        assert caught.value.truncated_output
    finally:
        await CofferdamSandboxEnvironment.sample_cleanup("t", config, made, False)


async def test_the_second_sample_on_an_image_is_warm(image: str, profile: str) -> None:
    config = CofferdamSandboxConfig(profile=profile, image=image)

    async def live() -> RunInfo:
        made = await CofferdamSandboxEnvironment.sample_init("t", config, {})
        try:
            return await made["default"].as_type(CofferdamSandboxEnvironment).sandbox.info()
        finally:
            await CofferdamSandboxEnvironment.sample_cleanup("t", config, made, False)

    await soon_starts_warm(live)


def test_the_program_of_the_book(image: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    log = program("inspect_task")["main"](image)
    assert log.status == "success", log.error
    assert log.results.scores[0].metrics["accuracy"].value == 1.0
