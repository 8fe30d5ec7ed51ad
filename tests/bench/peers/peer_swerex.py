"""SWE-ReX with its Docker deployment.

It starts its server in the container, and would fetch it from PyPI there where the image lacks it. So the server comes by a
read-only mount: `tests/bench.sh` has installed it into the directory that COFFERDAM_PEER_SERVER names. A port is published for it,
so these containers have a network.
"""

import logging
import os

import peer
from swerex.deployment.docker import DockerDeployment
from swerex.runtime.abstract import Command, ReadFileRequest

SERVER = "/opt/swerex"
PATH = f"{SERVER}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class SweRex:
    def __init__(self, image: str, workspace: str) -> None:
        mounts = ["--volume", f"{workspace}:/workspace", "--volume", f"{os.environ['COFFERDAM_PEER_SERVER']}:{SERVER}:ro"]
        variables = ["--env", f"PYTHONPATH={SERVER}", "--env", f"PATH={PATH}"]
        self.deployment = DockerDeployment(
            image=image,
            pull="never",
            startup_timeout=60,
            docker_args=[*mounts, *variables],
            logger=logging.getLogger("swerex"),
        )

    async def create(self) -> None:
        await self.deployment.start()

    async def run_true(self) -> None:
        result = await self.deployment.runtime.execute(Command(command=["true"]))
        if result.exit_code != 0:
            raise RuntimeError(f"`true` failed: {result}")

    async def read(self) -> int:
        file = await self.deployment.runtime.read_file(ReadFileRequest(path=peer.PATH))
        return len(file.content.encode())

    async def destroy(self) -> None:
        await self.deployment.stop()


if __name__ == "__main__":
    peer.serve(SweRex)
