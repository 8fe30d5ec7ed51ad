"""Deep Agents: the agent's files and commands are those of a sandbox. The model is a script."""

from collections.abc import Sequence
from typing import Any

from deepagents import create_deep_agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage

from cofferdam import Sandbox
from cofferdam.integrations.deepagents import CofferdamSandbox


class Model(GenericFakeChatModel):
    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> "Model":
        return self


def main(image: str = "cofferdam/dev") -> str:
    call = {"name": "execute", "args": {"command": "python3 -c 'print(6 * 7)'"}, "id": "1"}
    model = Model(messages=iter([AIMessage("", tool_calls=[call]), AIMessage("It says 42.")]))
    with Sandbox.create(profile="harness", image=image) as sandbox:
        agent = create_deep_agent(model=model, backend=CofferdamSandbox(sandbox=sandbox))
        result = agent.invoke({"messages": [("user", "How much is 6 * 7?")]})
    return "\n".join(message.text for message in result["messages"])


if __name__ == "__main__":
    print(main())
