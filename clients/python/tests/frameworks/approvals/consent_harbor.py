"""Harbor: parallel commands of an environment, and a whole trial of its oracle, each command with consent.

A trial writes at the root of its image, so the profile is `build` with a written root, under which every command asks.
"""

import asyncio
from pathlib import Path

import pytest
from consent import Batch, Review
from trials import maker, trial

PROFILE = "build-written-root"


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARBOR_TELEMETRY", "off")


async def test_parallel_commands_wait_for_their_reviewer(review: Review, image: str, tmp_path: Path) -> None:
    batch = Batch.of(6, deny=True)
    environment = maker(tmp_path, image, PROFILE)(wait_for_approval=True)
    await environment.start(force_build=False)
    try:
        done = await asyncio.gather(*(environment.exec(command, timeout_sec=30) for command in batch.commands))
        assert [result.return_code for result in done] == [126 if word == batch.denied else 0 for word in batch.words]
        batch.check_answers([f"{result.stdout}{result.stderr}" for result in done])
        batch.check_log((await environment.exec("cat log")).stdout or "")
        review.check(batch, profile=PROFILE)
    finally:
        await environment.stop(delete=True)


def test_a_whole_run_of_the_oracle(review: Review, image: str, tmp_path: Path) -> None:
    result = trial(tmp_path, image, PROFILE, "Write the answer.", "oracle", options={"wait_for_approval": "true"})
    assert result["verifier_result"]["rewards"] == {"reward": 1.0}
    review.check(profile=PROFILE)
