"""LangChain's own tests of sandboxes, against a real daemon."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from book import program
from deepagents import create_deep_agent
from deepagents.backends.protocol import SandboxBackendProtocol
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_tests.integration_tests import SandboxIntegrationTests
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.types import Command
from people import approve_next
from typing_extensions import TypedDict, override

from cofferdam import ApprovalRequired, Sandbox
from cofferdam.integrations.deepagents import CofferdamSandbox


class TestCofferdam(SandboxIntegrationTests):
    @pytest.fixture(scope="class")
    def sandbox(self, endpoint: str, image: str, profile: str) -> Iterator[SandboxBackendProtocol]:
        with Sandbox.create(profile=profile, image=image, endpoint=endpoint) as sandbox:
            yield CofferdamSandbox(sandbox=sandbox)


class TestCofferdamWorkspace(TestCofferdam):
    """Where writes and edits are the daemon's own operations."""

    @property
    def sandbox_root_dir(self) -> str:
        return "/workspace/test_sandbox_ops/"


def test_the_audit_log_has_edits_by_name(endpoint: str, image: str, profile: str) -> None:
    with Sandbox.create(profile=profile, image=image, endpoint=endpoint) as sandbox:
        backend = CofferdamSandbox(sandbox=sandbox)
        assert backend.write("/workspace/a.txt", "one two two\n").error is None
        assert backend.edit("/workspace/a.txt", "one", "1").occurrences == 1
        assert "multiple" in (backend.edit("/workspace/a.txt", "two", "2").error or "")
        assert backend.edit("/workspace/a.txt", "two", "2", replace_all=True).occurrences == 2
        assert backend.write("/workspace/large.txt", "x" * 2_000_000).error is None
        assert backend.write("/workspace/.git/hooks/pre-commit", "x").error
        operations = [event.operation for event in sandbox.audit.stream(follow=False, kinds=["call_receipt"])]
        assert operations[:4] == ["write", "edit", "edit", "edit"]


class State(TypedDict):
    shown: list[str]


class Model(GenericFakeChatModel):
    """Says what it is given, one message after the other."""

    @override
    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> "Model":
        return self


def calls(*wanted: tuple[str, dict[str, Any]]) -> AIMessage:
    made = [{"name": name, "args": args, "id": f"c{number}"} for number, (name, args) in enumerate(wanted)]
    return AIMessage(content="", tool_calls=made)


def agent(sandbox: Sandbox, saver: InMemorySaver, *messages: BaseMessage) -> Any:
    """With everything of its own, as another process has it, but for its checkpoints."""
    backend = CofferdamSandbox(sandbox=sandbox)
    return create_deep_agent(model=Model(messages=iter(messages)), backend=backend, checkpointer=saver)


CONFIG = {"configurable": {"thread_id": "t"}}
GO = {"messages": [("user", "go")]}


def answers(result: dict[str, Any]) -> list[str]:
    """Of tools."""
    return [message.text for message in result["messages"] if isinstance(message, ToolMessage)]


def asked(result: dict[str, Any]) -> dict[str, Any]:
    (interrupt,) = result["__interrupt__"]
    found: dict[str, Any] = interrupt.value
    return found


def receipts(sandbox: Sandbox) -> list[str]:
    return [event.operation for event in sandbox.audit.stream(follow=False, kinds=["call_receipt"])]


def test_a_graph_is_interrupted_for_consent_and_goes_on_with_the_outcome(asking: str, image: str) -> None:
    saver = InMemorySaver()
    with Sandbox.create(profile=asking, image=image) as sandbox:
        first = agent(sandbox, saver, calls(("execute", {"command": "echo once >> log; cat log"})))
        told = asked(first.invoke(GO, CONFIG))
        assert told["decide"] == f"coffer approval approve {told['approval_id']}"
        assert told["run_id"] == sandbox.run_id
        assert told["operation"] == "exec"
        assert "echo once" in told["summary"]
        # Nobody has decided: it is the same question.
        again = asked(agent(sandbox, saver).invoke(Command(resume="go on"), CONFIG))
        assert again["approval_id"] == told["approval_id"]
        assert [one.approval_id for one in sandbox.approvals.list()] == [told["approval_id"]]
        sandbox.approvals.approve(told["approval_id"])
        result = agent(sandbox, saver, AIMessage("done")).invoke(Command(resume="go on"), CONFIG)
        assert "__interrupt__" not in result
        assert result["messages"][-1].text == "done"
        assert answers(result)[0].startswith("once\n")
        assert answers(result)[0].count("once") == 1
        assert receipts(sandbox) == ["exec"]


def test_files_interrupt_a_graph_and_the_model_gets_denials(reviewing: str, image: str) -> None:
    saver = InMemorySaver()
    steps = (
        calls(("write_file", {"file_path": "/workspace/a.txt", "content": "one\n"})),
        calls(("edit_file", {"file_path": "/workspace/a.txt", "old_string": "one", "new_string": "two"})),
        calls(("execute", {"command": "rm a.txt"})),
        AIMessage("done"),
    )
    with Sandbox.create(profile=reviewing, image=image) as sandbox:
        graph = agent(sandbox, saver, *steps)
        result = graph.invoke(GO, CONFIG)
        for operation in ("write", "edit"):
            told = asked(result)
            assert told["operation"] == operation
            sandbox.approvals.approve(told["approval_id"])
            result = graph.invoke(Command(resume=True), CONFIG)
        told = asked(result)
        sandbox.approvals.deny(told["approval_id"], comment="keep it")
        result = graph.invoke(Command(resume=True), CONFIG)
        assert result["messages"][-1].text == "done"
        assert "keep it" in answers(result)[-1]
        assert sandbox.files.read("a.txt") == "two\n"
        assert receipts(sandbox)[:2] == ["write", "edit"]


def test_the_loop_of_the_book_waits_for_a_person(
    asking: str, image: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = (calls(("execute", {"command": "echo once >> log; cat log"})), AIMessage("done"))
    with Sandbox.create(profile=asking, image=image) as sandbox:

        def decide(_: str) -> str:
            sandbox.approvals.approve(sandbox.approvals.list()[0].approval_id)
            return ""

        monkeypatch.setattr("builtins.input", decide)
        run = program("deepagents_approvals")["run"]
        result = run(agent(sandbox, InMemorySaver(), *steps), CONFIG, "Tidy up.")
    assert result["messages"][-1].text == "done"
    assert "coffer approval approve " in capsys.readouterr().out


def test_equal_calls_of_one_step_are_two(image: str, asking: str) -> None:
    saver = InMemorySaver()
    twice = calls(*[("execute", {"command": "echo x >> log"})] * 2)
    with Sandbox.create(profile=asking, image=image) as sandbox:
        graph = agent(sandbox, saver, twice, AIMessage("done"))
        result = graph.invoke(GO, CONFIG)
        found = {one.value["approval_id"]: one.id for one in result["__interrupt__"]}
        assert len(found) == 2
        for approval_id in found:
            sandbox.approvals.approve(approval_id)
        result = graph.invoke(Command(resume=dict.fromkeys(found.values(), True)), CONFIG)
        assert result["messages"][-1].text == "done"
        assert sandbox.files.read("log") == "x\nx\n"


def test_a_step_with_several_calls_makes_each_once(asking: str, image: str) -> None:
    def step(state: State) -> State:
        assert CofferdamSandbox(sandbox=sandbox).write("/workspace/first", "x").error is None
        command = "echo x >> log; wc -l < log"
        return {"shown": [CofferdamSandbox(sandbox=sandbox).execute(command).output for _ in range(2)]}

    builder = StateGraph(State)
    builder.add_node("step", step)
    builder.add_edge(START, "step")
    graph = builder.compile(checkpointer=InMemorySaver())
    with Sandbox.create(profile=asking, image=image) as sandbox:
        result = graph.invoke({"shown": []}, CONFIG)
        for _ in range(2):
            sandbox.approvals.approve(asked(result)["approval_id"])
            result = graph.invoke(Command(resume=True), CONFIG)
        # The step was begun three times.
        assert result == {"shown": ["1\n", "2\n"]}
        assert receipts(sandbox) == ["write", "exec", "exec"]


def test_listings_and_searches_are_the_daemons_own_where_they_mean_the_same(image: str, profile: str) -> None:
    with Sandbox.create(profile=profile, image=image) as sandbox:
        backend = CofferdamSandbox(sandbox=sandbox)
        long = f"found {'x' * 500}"
        sandbox.commands.run(
            [
                "sh",
                "-c",
                f"mkdir -p d/.git d/e; ln -s e d/l; echo found > d/.git/f; echo 'a found' > d/.h; echo {long} > long",
            ]
        )
        entries = backend.ls("/workspace/d").entries
        assert entries is not None
        assert sorted((entry["path"], entry["is_dir"]) for entry in entries) == [
            ("/workspace/d/.git", True),
            ("/workspace/d/.h", False),
            ("/workspace/d/e", True),
            ("/workspace/d/l", False),
        ]
        found = backend.grep("found", "/workspace/d")
        assert found.matches == [{"path": "/workspace/d/.h", "line": 1, "text": "a found"}]
        sandbox.commands.run(["sh", "-c", "seq 20 > d/many"])
        assert backend.grep("1", "/workspace/d", "man*", max_count=3).truncated
        before = receipts(sandbox)
        assert before[:4] == ["exec", "list", "grep", "exec"]
        assert "exec" not in before[4:]
        # What has no equal there is a command: a line that would be cut, a file for a directory, patterns of several lines.
        assert backend.grep("found", "/workspace/long").matches == [{"path": "/workspace/long", "line": 1, "text": long}]
        assert backend.ls("/workspace/long").error == "Path '/workspace/long': not_a_directory"
        assert len(backend.grep("1\n2", "/workspace/d").matches or []) == 13
        assert receipts(sandbox)[len(before) :] == ["grep", "exec", "list", "exec", "exec"]


@pytest.mark.parametrize("wait", [False, True])
def test_outside_of_a_graph_an_error_says_how_or_the_call_waits(asking: str, image: str, wait: bool) -> None:
    with Sandbox.create(profile=asking, image=image) as sandbox:
        backend = CofferdamSandbox(sandbox=sandbox, wait_for_approval=wait)
        if wait:
            with ThreadPoolExecutor() as pool:
                person = pool.submit(approve_next, sandbox.run_id)
                assert backend.execute("echo done").output == "done\n"
                assert person.result().operation == "exec"
        else:
            with pytest.raises(ApprovalRequired, match="coffer approval approve"):
                backend.execute("echo done")


def test_the_program_of_the_book(image: str) -> None:
    said = program("deepagents_agent")["main"](image)
    assert "\n42\n" in said
    assert said.endswith("It says 42.")
