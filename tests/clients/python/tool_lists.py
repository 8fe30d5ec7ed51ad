"""Holds tool lists to the types of the vendors' own packages, without a network.

Standard input: one JSON object {"openai": {dialect: tools}, "anthropic": {…}, "mcp": {…}, "results": [{"tool", "schema",
"rendered"}], "misfits": [{"vendor", "dialect", "tools"}]}. Prints one line for each list; ends with 1 at the first that
does not fit, and when one of the misfits does.
"""

import json
import socket
import sys


def refuse(*_arguments, **_named):
    raise OSError("this check uses no network")


socket.socket.connect = refuse
socket.create_connection = refuse

import anthropic
import jsonschema
import mcp
import openai
import pydantic
from anthropic.types import ToolParam
from mcp import types as mcp_types
from openai.types.chat import ChatCompletionToolParam


def strictly(kind):
    """The vendor's type; a key that it does not know is an error."""
    return pydantic.TypeAdapter(kind)


OPENAI = strictly(ChatCompletionToolParam)
ANTHROPIC = strictly(ToolParam)


def known_keys(kind, value, where):
    unknown = set(value) - set(kind.__annotations__)
    assert not unknown, f"{where}: the vendor's type has no {sorted(unknown)}"


def check_schema(schema, where):
    assert schema["type"] == "object", where
    jsonschema.Draft202012Validator.check_schema(schema)


def openai_tool(tool, where):
    OPENAI.validate_python(tool)
    known_keys(ChatCompletionToolParam, tool, where)
    from openai.types.shared_params import FunctionDefinition

    function = tool["function"]
    known_keys(FunctionDefinition, function, where)
    check_schema(function["parameters"], where)
    if function.get("strict"):
        # What OpenAI demands of strict tools.
        assert function["parameters"]["additionalProperties"] is False, where
        assert sorted(function["parameters"]["required"]) == sorted(function["parameters"]["properties"]), where


def anthropic_tool(tool, where):
    ANTHROPIC.validate_python(tool)
    known_keys(ToolParam, tool, where)
    check_schema(tool["input_schema"], where)


def mcp_tools(tools, where):
    listed = mcp_types.ListToolsResult.model_validate({"tools": tools})
    again = listed.model_dump(mode="json", by_alias=True, exclude_none=True)["tools"]
    assert again == tools, f"{where}: the package reads something else: {again}"
    for tool in tools:
        check_schema(tool["inputSchema"], where)
        if "outputSchema" in tool:
            check_schema(tool["outputSchema"], where)


def main():
    given = json.load(sys.stdin)
    checks = {
        "openai": lambda tools, where: [openai_tool(tool, where) for tool in tools],
        "anthropic": lambda tools, where: [anthropic_tool(tool, where) for tool in tools],
        "mcp": mcp_tools,
    }
    for vendor, check in checks.items():
        for dialect, tools in given[vendor].items():
            where = f"{vendor} {dialect}"
            assert tools, f"{where}: no tools"
            check(tools, where)
            print(f"{where}: {len(tools)} tools fit")
    for result in given["results"]:
        jsonschema.validate(json.loads(result["rendered"]), result["schema"])
    print(f"{len(given['results'])} results fit the schemas that MCP lists for them")
    for misfit in given["misfits"]:
        try:
            where = f"{misfit['vendor']} {misfit['dialect']}"
            checks[misfit["vendor"]](misfit["tools"], where)
        except (AssertionError, pydantic.ValidationError, jsonschema.SchemaError, KeyError, TypeError) as found:
            print(f"a misfit is found: {where}: {str(found).splitlines()[0]}")
        else:
            raise AssertionError(f"a misfit is not found: {misfit}")
    print(f"openai {openai.__version__}, anthropic {anthropic.__version__}, mcp {mcp.__name__}")


main()
