"""Pydantic AI: parallel tool calls of an agent that has a workspace."""

from consent import Batch, Review
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from cofferdam.integrations.pydantic_ai import CofferdamWorkspaceBackend, delete_workspace


async def test_parallel_tool_calls_wait_for_their_reviewer(review: Review, profile: str, image: str) -> None:
    batch = Batch.of(6, deny=True)
    backend = CofferdamWorkspaceBackend(profile=profile, image=image, wait_for_approval=True)

    async def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if len(messages) > 1:
            return ModelResponse(parts=[TextPart("done")])
        calls = [ToolCallPart("run", {"command": command}, tool_call_id=command) for command in batch.commands]
        return ModelResponse(parts=calls)

    agent = Agent(FunctionModel(model))

    @agent.tool_plain
    async def run(command: str) -> str:
        done = await backend.run(command, shell=True, timeout=30)
        return f"{done.exit_code}: {done.stdout}{done.stderr}"

    try:
        result = await agent.run("Go.")
        assert result.output == "done"
        parts = [part for message in result.all_messages() for part in message.parts if isinstance(part, ToolReturnPart)]
        answers = {part.tool_call_id: str(part.content) for part in parts}
        batch.check_answers([answers[command] for command in batch.commands])
        codes = [answers[command].partition(":")[0] for command in batch.commands]
        assert codes == ["126" if word == batch.denied else "0" for word in batch.words]
        batch.check_log((await backend.run(["cat", "log"])).stdout)
        review.check(batch)
    finally:
        if backend.ref is not None:
            await delete_workspace(backend.ref)
