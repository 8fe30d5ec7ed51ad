"""An agent of Harbor with a script in place of a model."""

from typing import override

from harbor.agents.base import BaseAgent
from harbor.environments.base import BaseEnvironment
from harbor.models.agent.context import AgentContext


class Scripted(BaseAgent):
    """Does what the instruction of its task says, line for line."""

    @staticmethod
    @override
    def name() -> str:
        return "scripted"

    @override
    def version(self) -> str:
        return "1"

    @override
    async def setup(self, environment: BaseEnvironment) -> None:
        installed = await environment.exec("mkdir -p /logs/agent && echo ready > /logs/agent/setup.txt", user="root")
        assert installed.return_code == 0, installed.stderr

    @override
    async def run(self, instruction: str, environment: BaseEnvironment, context: AgentContext) -> None:
        for command in instruction.splitlines():
            done = await environment.exec(f"set -o pipefail; {command} | tee -a /logs/agent/log.txt", timeout_sec=60)
            assert done.return_code == 0, done.stderr
        context.metadata = {"commands": len(instruction.splitlines())}
