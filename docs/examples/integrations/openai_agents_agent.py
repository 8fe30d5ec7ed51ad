"""OpenAI Agents: an agent whose sandbox is a run. The model is a script."""

import asyncio

from agents import RunConfig, Runner
from agents.sandbox import SandboxAgent, SandboxRunConfig
from agents.testing import ScriptedModel, assistant_message, function_call

from cofferdam.integrations.openai_agents import CofferdamSandboxClient, CofferdamSandboxClientOptions


async def main(image: str = "cofferdam/dev") -> str:
    call = function_call("exec_command", {"cmd": "python3 -c 'print(6 * 7)'"}, call_id="1")
    model = ScriptedModel([[call], [assistant_message("It says 42.")]])
    options = CofferdamSandboxClientOptions(profile="harness", image=image)
    sandbox = SandboxRunConfig(client=CofferdamSandboxClient(), options=options)
    agent = SandboxAgent(name="calculator", model=model)
    result = await Runner.run(agent, "How much is 6 * 7?", run_config=RunConfig(sandbox=sandbox))
    outputs = [str(item.output) for item in result.new_items if hasattr(item, "output")]
    return "\n".join([*outputs, str(result.final_output)])


if __name__ == "__main__":
    print(asyncio.run(main()))
