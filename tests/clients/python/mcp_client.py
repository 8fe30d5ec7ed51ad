"""The official Python client of MCP, driven line by line.

The first line of standard input says how to connect, each further one what to do; each is answered by one line of JSON.

  {"stdio": {"command": …, "args": […], "env": {…}}} or {"http": {"url": …, "token": …}}, and "mode": "auto" or "legacy",
  "answers": [{"action": …, "content": …}, …] for elicitations, {"wait": true} for a person who never answers; without it the
  client has no such capability

  {"do": "list"}      {"do": "call", "name": …, "arguments": {…}}      with "cancel_on": TEXT: cancelled when progress says it
  {"do": "resources", "cursor": …}      {"do": "templates"}      {"do": "read", "uri": …}
  {"do": "level", "level": …}      {"do": "heard"}: log messages and notifications so far
"""

import json
import sys

import anyio
import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types import ElicitResult


def say(value):
    print(json.dumps(value), flush=True)


def dump(model):
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


class Driver:
    def __init__(self, setup):
        self.setup = setup
        self.asked = []
        self.heard = []
        self.answers = list(setup.get("answers") or [])

    async def elicit(self, context, params):
        self.asked.append({"message": params.message, "schema": params.requested_schema})
        answer = self.answers.pop(0)
        if answer.get("wait"):
            await anyio.sleep_forever()
        return ElicitResult(**answer)

    async def log(self, params):
        self.heard.append({"level": params.level, "data": params.data})

    async def message(self, message):
        method = getattr(message, "method", None)
        if method:
            self.heard.append({"method": method})

    async def call(self, client, step):
        progress = []
        scope = anyio.CancelScope()

        async def tell(value, total, text):
            progress.append({"value": value, "text": text})
            if step.get("cancel_on") and step["cancel_on"] in (text or ""):
                scope.cancel()

        with scope:
            called = await client.call_tool(step["name"], step.get("arguments"), progress_callback=tell)
        if scope.cancelled_caught:
            return {"cancelled": True, "progress": progress}
        asked, self.asked = self.asked, []
        return {**dump(called), "progress": progress, "asked": asked}

    async def step(self, client, step):
        match step["do"]:
            case "list":
                return dump(await client.list_tools())
            case "call":
                return await self.call(client, step)
            case "resources":
                return dump(await client.list_resources(cursor=step.get("cursor")))
            case "templates":
                return dump(await client.list_resource_templates())
            case "read":
                return dump(await client.read_resource(step["uri"]))
            case "level":
                await client.set_logging_level(step["level"])
                return {}
            case "heard":
                return {"heard": self.heard}

    async def serve(self, client):
        info = client.server_info
        capabilities = dump(client.server_capabilities)
        say({"protocol": client.protocol_version, "server": info and info.name, "capabilities": capabilities,
             "instructions": client.instructions})
        while line := await anyio.to_thread.run_sync(sys.stdin.readline):
            try:
                say(await self.step(client, json.loads(line)))
            except MCPError as error:
                say({"error": dump(error.error)})

    async def run(self):
        mode = self.setup.get("mode", "auto")
        callbacks = {"logging_callback": self.log, "message_handler": self.message}
        if mode != "legacy":
            callbacks["log_level"] = "info"
        if "answers" in self.setup:
            callbacks["elicitation_callback"] = self.elicit
        if "stdio" in self.setup:
            server = StdioServerParameters(**self.setup["stdio"])
            async with Client(server, mode=mode, cache=None, **callbacks) as client:
                await self.serve(client)
            return
        http = self.setup["http"]
        headers = {"Authorization": f"Bearer {http['token']}"}
        async with httpx2.AsyncClient(headers=headers, timeout=60, trust_env=False) as carrier:
            transport = streamable_http_client(http["url"], http_client=carrier)
            async with Client(transport, mode=mode, cache=None, **callbacks) as client:
                await self.serve(client)


if __name__ == "__main__":
    anyio.run(Driver(json.loads(sys.stdin.readline())).run)
