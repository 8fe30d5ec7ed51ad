"""A model repairs a program. The loop is that of every vendor's API; the model is a script, `model()`: put yours there.

repair_loop.py
"""

from collections.abc import Mapping, Sequence
from typing import Any

from cofferdam import Sandbox

TASK = "`sh test.sh` fails. Repair area.sh, and say what was wrong."
PROGRAM = "area() { echo $(($1 + $2)); }\n"
TEST = '. ./area.sh\n[ "$(area 6 7)" = 42 ] && echo passed\n'
EDIT = {"file_path": "area.sh", "old_string": "+", "new_string": "*"}

Block = dict[str, Any]


def model(messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]) -> list[Block]:
    """The next turn of a model that looks, repairs and tests; as `messages.create(…).content` would be."""
    assert {"bash", "read", "edit"} <= {tool["name"] for tool in tools}
    turns: list[Block] = [
        {"type": "tool_use", "id": "1", "name": "bash", "input": {"command": "sh test.sh"}},
        {"type": "tool_use", "id": "2", "name": "read", "input": {"file_path": "area.sh"}},
        {"type": "tool_use", "id": "3", "name": "edit", "input": EDIT},
        {"type": "tool_use", "id": "4", "name": "bash", "input": {"command": "sh test.sh"}},
    ]
    done = len([message for message in messages if message["role"] == "assistant"])
    if done < len(turns):
        return [turns[done]]
    result = messages[-1]["content"][0]
    return [{"type": "text", "text": f"It added where it should multiply. The test says: {result['content']}"}]


def repair(sandbox: Sandbox) -> str:
    """The loop, and the model's last word."""
    tools = sandbox.tools("anthropic")
    messages: list[dict[str, Any]] = [{"role": "user", "content": TASK}]
    while True:
        turn = model(messages, tools)
        messages.append({"role": "assistant", "content": turn})
        calls = [block for block in turn if block["type"] == "tool_use"]
        if not calls:
            return str(turn[-1]["text"])
        answers = [(call["id"], sandbox.call_tool(call["name"], call["input"])) for call in calls]
        results = [
            {"type": "tool_result", "tool_use_id": at, "content": it.text, "is_error": not it.ok} for at, it in answers
        ]
        messages.append({"role": "user", "content": results})


def main() -> None:
    with Sandbox.create(profile="open", agent_id="repairer") as sandbox:
        sandbox.files.write("area.sh", PROGRAM)
        sandbox.files.write("test.sh", TEST)
        print(repair(sandbox))
        # The model's word is no proof.
        sandbox.commands.run(["sh", "test.sh"], check=True)


if __name__ == "__main__":
    main()
