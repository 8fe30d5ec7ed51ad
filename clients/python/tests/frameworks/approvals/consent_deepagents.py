"""Deep Agents: parallel tool calls that wait, and those of a graph that is interrupted."""

from collections.abc import Sequence
from typing import Any

from consent import Batch, Review
from deepagents import create_deep_agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.types import Command
from typing_extensions import TypedDict, override

from cofferdam import Sandbox
from cofferdam.errors import AwaitingApproval
from cofferdam.integrations._interrupts import Interrupts
from cofferdam.integrations.deepagents import CofferdamSandbox

CONFIG = {"configurable": {"thread_id": "t"}}
GO = {"messages": [("user", "go")]}


class State(TypedDict):
    shown: str


class Model(GenericFakeChatModel):
    """Says what it is given, one message after the other."""

    @override
    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> "Model":
        return self


def calls(*commands: str) -> AIMessage:
    made = [{"name": "execute", "args": {"command": command}, "id": command} for command in commands]
    return AIMessage(content="", tool_calls=made)


def agent(sandbox: Sandbox, *messages: AIMessage) -> Any:
    backend = CofferdamSandbox(sandbox=sandbox)
    return create_deep_agent(model=Model(messages=iter(messages)), backend=backend, checkpointer=InMemorySaver())


def check_answers(batch: Batch, result: dict[str, Any]) -> None:
    answers = {message.tool_call_id: message.text for message in result["messages"] if isinstance(message, ToolMessage)}
    batch.check_answers([answers[command] for command in batch.commands])
    assert result["messages"][-1].text == "done"


def test_parallel_tool_calls_wait_for_their_reviewer(review: Review, profile: str, image: str) -> None:
    batch = Batch.of(6, deny=True)
    step = calls(*batch.commands)
    # Needs no consent, and may have to wait all the same.
    arguments = {"file_path": "/workspace/beside", "content": "x"}
    step.tool_calls.append({"type": "tool_call", "name": "write_file", "args": arguments, "id": "beside"})
    with Sandbox.create(profile=profile, image=image, wait_for_approval=True) as sandbox:
        check_answers(batch, agent(sandbox, step, AIMessage("done")).invoke(GO, CONFIG))
        batch.check_log(sandbox.files.read("log"))
        assert sandbox.files.read("beside") == "x"
        review.check(batch)


def test_parallel_tool_calls_interrupt_a_graph_until_they_are_decided(review: Review, profile: str, image: str) -> None:
    batch = Batch.of(6, deny=True)
    with Sandbox.create(profile=profile, image=image) as sandbox:
        graph = agent(sandbox, calls(*batch.commands), AIMessage("done"))
        result = graph.invoke(GO, CONFIG)
        while interrupts := result.get("__interrupt__"):
            for interrupt in interrupts:
                sandbox.calls.wait(interrupt.value["call_id"])
            result = graph.invoke(Command(resume={interrupt.id: True for interrupt in interrupts}), CONFIG)
        check_answers(batch, result)
        batch.check_log(sandbox.files.read("log"))
        review.check(batch, rounds=True)


def test_a_refusal_beside_an_approval_is_not_the_outcome_of_a_step(review: Review, profile: str, image: str) -> None:
    ids: list[str] = []

    def make(sandbox: Sandbox) -> str:
        ids.append(sandbox._options.request_id)
        if len(ids) == 1:
            raise AwaitingApproval("a reviewer reads")
        return "done"

    def step(state: State) -> State:
        return {"shown": Interrupts(sandbox).call({"operation": "exec"}, make)}

    builder = StateGraph(State)
    builder.add_node("step", step)
    builder.add_edge(START, "step")
    graph = builder.compile(checkpointer=InMemorySaver())
    with Sandbox.create(profile=profile, image=image, wait_for_approval=True) as sandbox:
        assert graph.invoke({"shown": ""}, CONFIG) == {"shown": "done"}
        assert len(set(ids)) == 2
        assert all(ids)
