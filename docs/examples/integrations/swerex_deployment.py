"""SWE-ReX: a deployment whose bash is in a sandbox."""

import asyncio

from swerex.runtime.abstract import BashAction, CreateBashSessionRequest

from cofferdam.integrations.swerex import CofferdamDeployment


async def main(image: str = "cofferdam/dev") -> str:
    deployment = CofferdamDeployment(profile="harness", image=image)
    await deployment.start()
    try:
        await deployment.runtime.create_session(CreateBashSessionRequest())
        await deployment.runtime.run_in_session(BashAction(command="cd /tmp && answer=42", timeout=20))
        observation = await deployment.runtime.run_in_session(BashAction(command='echo "$PWD $answer"', timeout=20))
        return observation.output
    finally:
        await deployment.stop()


if __name__ == "__main__":
    print(asyncio.run(main()))
