"""SWE-ReX: parallel commands of a runtime. `build` has no sessions."""

import asyncio

from consent import Batch, Review
from swerex.runtime.abstract import Command, CommandResponse

from cofferdam.integrations.swerex import CofferdamDeploymentConfig


async def test_parallel_commands_wait_for_their_reviewer(review: Review, profile: str, image: str) -> None:
    batch, looks = Batch.of(6, deny=True), Batch.of(6, writes=False)
    deployment = CofferdamDeploymentConfig(profile=profile, image=image, wait_for_approval=True).get_deployment()
    await deployment.start()
    runtime = deployment.runtime

    async def run(command: str) -> CommandResponse:
        return await runtime.execute(Command(command=["bash", "-c", command], timeout=30))

    try:
        done = await asyncio.gather(*map(run, batch.commands))
        assert [result.exit_code for result in done] == [126 if word == batch.denied else 0 for word in batch.words]
        batch.check_answers([f"{result.stdout}{result.stderr}" for result in done])
        looks.check_answers([result.stdout for result in await asyncio.gather(*map(run, looks.commands))])
        batch.check_log((await runtime.execute(Command(command=["cat", "log"]))).stdout)
        review.check(batch, looks)
    finally:
        await deployment.stop()
