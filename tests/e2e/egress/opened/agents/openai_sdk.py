"""Talks to a model by the stock package of openai. Needs MODEL_URL alone; the key is a word that is worth nothing."""

import itertools
import json
import os

import openai

import tools

client = openai.OpenAI(base_url=os.environ["MODEL_URL"] + "/v1", api_key="worth-nothing")
schemas = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {}}}}
    for name in tools.NAMES
]


def ask(messages, streams):
    """Returns the text, the calls of tools and the tokens (input, output) of one answer."""
    options = {"model": "chat-1", "messages": messages, "tools": schemas, "max_completion_tokens": 64}
    if not streams:
        answer = client.chat.completions.create(**options)
        message, usage = answer.choices[0].message, answer.usage
        calls = [(call.id, call.function.name, call.function.arguments) for call in message.tool_calls or []]
        return message.content, calls, (usage.prompt_tokens, usage.completion_tokens)
    text, calls, tokens = "", {}, None
    stream = client.chat.completions.create(**options, stream=True, stream_options={"include_usage": True})
    for chunk in stream:
        if chunk.usage:
            tokens = (chunk.usage.prompt_tokens, chunk.usage.completion_tokens)
        for choice in chunk.choices:
            text += choice.delta.content or ""
            for call in choice.delta.tool_calls or []:
                known = calls.setdefault(call.index, ["", "", ""])
                known[0] += call.id or ""
                known[1] += call.function.name or ""
                known[2] += call.function.arguments or ""
    return text, [tuple(call) for call in calls.values()], tokens


def repair(streams):
    messages = [{"role": "user", "content": "The tests fail. Repair the function."}]
    for _ in range(8):
        text, calls, _ = ask(messages, streams)
        if not calls:
            return text
        functions = [
            {"id": call, "type": "function", "function": {"name": name, "arguments": arguments}}
            for call, name, arguments in calls
        ]
        messages.append({"role": "assistant", "content": text or None, "tool_calls": functions})
        for call, name, arguments in calls:
            result = tools.run(name, json.loads(arguments))
            messages.append({"role": "tool", "tool_call_id": call, "content": result})
    raise SystemExit("the repair does not end")


def question(number):
    return [{"role": "user", "content": f"number {number}"}]


def count(calls):
    asked = (ask(question(number), number % 2 == 1)[2] for number in range(calls))
    print(json.dumps([sum(column) for column in zip(*asked)]))


def refused():
    """Asks until a request is refused, and says what the program sees of it."""
    for number in itertools.count():
        try:
            ask(question(number), number % 2 == 1)
        except openai.APIStatusError as error:
            print(json.dumps({"passed": number, "status": error.status_code, "message": str(error)}))
            return


def leave(calls):
    """Leaves streams after their first event. A request that another one under way holds up is repeated by the package."""
    most = int(os.environ.get("MOST", "64"))
    for number in range(calls):
        options = {"model": "chat-1", "messages": question(number), "max_tokens": most}
        stream = client.chat.completions.create(**options, stream=True)
        next(iter(stream))
        stream.close()
    print("left")


if __name__ == "__main__":
    tools.main({"repair": repair, "count": count, "refused": refused, "leave": leave})
