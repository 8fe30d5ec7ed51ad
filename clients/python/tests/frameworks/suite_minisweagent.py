"""mini-SWE-agent: its agent with a scripted model, in a sandbox."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from book import program
from lost import lose
from minisweagent.agents.default import DefaultAgent
from minisweagent.environments import get_environment
from minisweagent.exceptions import Submitted
from minisweagent.models.test_models import DeterministicModel
from people import approve_next

from cofferdam import ApprovalRequired, InfrastructureError, NotFound
from cofferdam.integrations.minisweagent import SUBMIT, CofferdamEnvironment


@pytest.fixture
def environment(endpoint: str, image: str, profile: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[CofferdamEnvironment]:
    monkeypatch.setenv("COFFERDAM_ENDPOINT", endpoint)
    name = "cofferdam.integrations.minisweagent.CofferdamEnvironment"
    made = get_environment({"environment_class": name, "profile": profile, "image": image, "env": {"GREETING": "hi"}})
    assert isinstance(made, CofferdamEnvironment)
    yield made
    made.cleanup()


def run(environment: CofferdamEnvironment, command: str, **options: Any) -> dict[str, Any]:
    return environment.execute({"command": command}, **options)


def test_commands_have_both_streams_their_code_and_their_environment(environment: CofferdamEnvironment) -> None:
    assert run(environment, "echo $GREETING; echo err >&2; exit 3") == {
        "output": "hi\nerr\n",
        "returncode": 3,
        "exception_info": "",
    }
    run(environment, "mkdir -p d; echo kept > d/f")
    assert run(environment, "cat f", cwd="/workspace/d")["output"] == "kept\n"


def test_a_lost_sandbox_ends_the_agent_and_is_no_output_for_the_model(environment: CofferdamEnvironment) -> None:
    assert run(environment, "true")["returncode"] == 0
    lose(environment.sandbox.run_id)
    for _ in range(2):
        with pytest.raises(InfrastructureError) as lost:
            run(environment, "true")
        assert lost.value.evidence["engine.exit_code"] == "137"


def test_a_sandbox_that_is_gone_is_no_output_for_the_model(environment: CofferdamEnvironment) -> None:
    environment.cleanup()
    with pytest.raises(NotFound, match="no such run"):
        run(environment, "true")


def test_ended_and_refused_commands_are_shown_to_the_model(environment: CofferdamEnvironment, image: str) -> None:
    ended = run(environment, "echo first; sleep 30", timeout=3)
    assert ended["returncode"] == -1
    assert ended["output"].startswith("first\n")
    assert ended["extra"]["exception_type"] == "CommandTimedOut"
    strict = CofferdamEnvironment(profile="open", image=image)
    refused = run(strict, "rm -rf /")
    strict.cleanup()
    extra = refused.pop("extra")
    assert refused == {
        "output": "Command not allowed: rm",
        "returncode": -1,
        "exception_info": "The command did not finish: Command not allowed: rm",
    }
    assert extra["exception_type"] == "CommandNotAllowed"
    assert "COMMAND_NOT_ALLOWED" in extra["exception"]
    assert extra["call_id"]


@pytest.mark.parametrize("wait", [False, True])
def test_call_that_needs_consent_explains_how_or_waits(asking: str, image: str, wait: bool) -> None:
    environment = CofferdamEnvironment(profile=asking, image=image, wait_for_approval=wait)
    try:
        if wait:
            with ThreadPoolExecutor() as pool:
                person = pool.submit(approve_next, environment.sandbox.run_id)
                assert run(environment, "echo done")["output"] == "done\n"
                assert person.result().operation == "exec"
        else:
            with pytest.raises(ApprovalRequired, match="coffer approval approve"):
                run(environment, "echo done")
    finally:
        environment.cleanup()


def test_work_is_handed_in(environment: CofferdamEnvironment) -> None:
    with pytest.raises(Submitted) as caught:
        run(environment, "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; echo done")
    assert caught.value.messages[0]["extra"] == {"exit_status": "Submitted", "submission": "done\n"}
    assert run(environment, "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; exit 1")["returncode"] == 1


def test_prompts_and_trajectories_are_complete(environment: CofferdamEnvironment) -> None:
    assert environment.get_template_vars(task="t")["task"] == "t"
    assert environment.serialize()["info"]["cofferdam_run_id"] == environment.sandbox.run_id


def test_a_whole_run_with_a_scripted_model(environment: CofferdamEnvironment) -> None:
    commands = ["echo made > made.txt", "cat made.txt", f"echo {SUBMIT}; cat made.txt"]
    outputs = [
        {"role": "assistant", "content": command, "extra": {"actions": [{"command": command}]}} for command in commands
    ]
    agent = DefaultAgent(
        DeterministicModel(outputs=outputs),  # type: ignore[no-untyped-call]
        environment,
        system_template="s",
        instance_template="{{task}}",
        cost_limit=100,
    )
    assert agent.run("make a file") == {"exit_status": "Submitted", "submission": "made\n"}
    assert any("made" in str(message["content"]) for message in agent.messages if message["role"] == "user")


def test_the_program_of_the_book(endpoint: str, image: str) -> None:
    assert program("minisweagent_agent")["main"](image) == {"exit_status": "Submitted", "submission": "made\n"}
