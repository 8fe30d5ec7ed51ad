"""Ray: commands of several threads of an actor, which use one sandbox."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from consent import Batch, Review

from cofferdam.integrations.ray import CofferdamRuntime


@pytest.fixture
def runtime(review: Review) -> Iterator[CofferdamRuntime]:
    assert review
    made = CofferdamRuntime()
    yield made
    for instance_id in list(made.backend._sandbox_metadata):
        made.delete(instance_id)


def test_parallel_commands_wait_for_their_reviewer(
    review: Review, runtime: CofferdamRuntime, profile: str, image: str
) -> None:
    sandbox = runtime.create(image, profile=profile, wait_for_approval=True)
    batch = Batch.of(6, deny=True)
    with ThreadPoolExecutor(6) as threads:
        done = list(threads.map(lambda command: runtime.exec(sandbox, command), batch.commands))
    assert [result.exit_code for result in done] == [126 if word == batch.denied else 0 for word in batch.words]
    batch.check_answers([f"{result.stdout}{result.stderr}" for result in done])
    batch.check_log(runtime.exec(sandbox, ["cat", "log"]).stdout)
    review.check(batch)
