"""mini-SWE-agent: a whole run whose steps have several commands, which it makes one after the other; and commands of several
threads."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from consent import Batch, Review
from minisweagent.agents.default import DefaultAgent
from minisweagent.models.test_models import DeterministicModel

from cofferdam.integrations.minisweagent import SUBMIT, CofferdamEnvironment


@pytest.fixture
def environment(review: Review, profile: str, image: str) -> Iterator[CofferdamEnvironment]:
    assert review
    made = CofferdamEnvironment(profile=profile, image=image, wait_for_approval=True)
    yield made
    made.cleanup()


def test_parallel_commands_wait_for_their_reviewer(review: Review, environment: CofferdamEnvironment) -> None:
    batch = Batch.of(6, deny=True)
    with ThreadPoolExecutor(6) as threads:
        done = list(threads.map(lambda command: environment.execute({"command": command}), batch.commands))
    assert [result["returncode"] for result in done] == [-1 if word == batch.denied else 0 for word in batch.words]
    batch.check_answers([result["output"] for result in done])
    batch.check_log(environment.sandbox.commands.run(["cat", "log"]).stdout)
    review.check(batch)


def test_a_whole_run_whose_commands_wait(review: Review, environment: CofferdamEnvironment) -> None:
    steps = [Batch.of(1), Batch.of(1, deny=True), Batch.of(1)]
    commands = [command for step in steps for command in step.commands]
    handed_in = f"echo {SUBMIT}; cat log"
    outputs = [
        {"role": "assistant", "content": "go", "extra": {"actions": [{"command": command} for command in commands]}},
        {"role": "assistant", "content": "hand in", "extra": {"actions": [{"command": handed_in}]}},
    ]
    agent = DefaultAgent(
        DeterministicModel(outputs=outputs),  # type: ignore[no-untyped-call]
        environment,
        system_template="s",
        instance_template="{{task}}",
        cost_limit=100,
    )
    ended = agent.run("write a log")
    assert ended["exit_status"] == "Submitted"
    assert ended["submission"].split() == [word for step in steps for word in step.approved]
    assert any("not today" in str(message["content"]) for message in agent.messages)
    review.check(*steps)
