"""Talks to a model by the stock package of anthropic. Needs MODEL_URL alone; the key is a word that is worth nothing."""

import itertools
import json
import os

import anthropic

import tools

client = anthropic.Anthropic(base_url=os.environ["MODEL_URL"], api_key="worth-nothing")
schemas = [{"name": name, "input_schema": {"type": "object", "properties": {}}} for name in tools.NAMES]


def ask(messages, streams):
    """Returns the blocks and the tokens (input, output) of one answer."""
    options = {"model": "message-1", "messages": messages, "tools": schemas, "max_tokens": 64}
    if streams:
        with client.messages.stream(**options) as stream:
            answer = stream.get_final_message()
    else:
        answer = client.messages.create(**options)
    return answer.content, (answer.usage.input_tokens, answer.usage.output_tokens)


def repair(streams):
    messages = [{"role": "user", "content": "The tests fail. Repair the function."}]
    for _ in range(8):
        blocks, _ = ask(messages, streams)
        calls = [block for block in blocks if block.type == "tool_use"]
        if not calls:
            return "".join(block.text for block in blocks if block.type == "text")
        used = [{"type": "tool_use", "id": call.id, "name": call.name, "input": call.input} for call in calls]
        messages.append({"role": "assistant", "content": used})
        results = [
            {"type": "tool_result", "tool_use_id": call.id, "content": tools.run(call.name, call.input)}
            for call in calls
        ]
        messages.append({"role": "user", "content": results})
    raise SystemExit("the repair does not end")


def question(number):
    return [{"role": "user", "content": f"number {number}"}]


def count(calls):
    asked = (ask(question(number), number % 2 == 1)[1] for number in range(calls))
    print(json.dumps([sum(column) for column in zip(*asked)]))


def refused():
    """Asks until a request is refused, and says what the program sees of it."""
    for number in itertools.count():
        try:
            ask(question(number), number % 2 == 1)
        except anthropic.APIStatusError as error:
            print(json.dumps({"passed": number, "status": error.status_code, "message": str(error)}))
            return


def leave(calls):
    """Leaves streams after their first event."""
    most = int(os.environ.get("MOST", "64"))
    for number in range(calls):
        options = {"model": "message-1", "max_tokens": most, "messages": question(number)}
        stream = client.messages.create(**options, stream=True)
        next(iter(stream))
        stream.close()
    print("left")


if __name__ == "__main__":
    tools.main({"repair": repair, "count": count, "refused": refused, "leave": leave})
