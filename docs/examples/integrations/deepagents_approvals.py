"""Deep Agents: the graph stops at a call that needs a person's consent."""

from typing import Any

from langgraph.types import Command


def run(agent: Any, config: dict[str, Any], task: str) -> Any:
    result = agent.invoke({"messages": [("user", task)]}, config)
    while "__interrupt__" in result:
        asked = result["__interrupt__"][0].value
        print(asked["summary"], "-", asked["decide"])
        input("Decided? ")
        result = agent.invoke(Command(resume=True), config)
    return result
