"""Inspect: a sample is solved in a sandbox. The model is a script."""

from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.log import EvalLog
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import includes
from inspect_ai.solver import generate, use_tools
from inspect_ai.tool import bash
from inspect_ai.util import SandboxEnvironmentSpec

from cofferdam.integrations.inspect import CofferdamSandboxConfig


def main(image: str = "cofferdam/dev") -> EvalLog:
    sandbox = SandboxEnvironmentSpec("cofferdam", CofferdamSandboxConfig(profile="harness", image=image))
    sample = Sample(input="Read given.txt.", target="42", files={"given.txt": "42\n"})
    task = Task(dataset=[sample], solver=[use_tools(bash()), generate()], scorer=includes(), sandbox=sandbox)
    call = ModelOutput.for_tool_call("mockllm/model", "bash", {"command": "cat given.txt"})
    outputs = [call, ModelOutput.from_content("mockllm/model", "It says 42.")]
    for output in outputs:
        output.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)
    return eval(task, model=get_model("mockllm/model", custom_outputs=outputs), display="none")[0]


if __name__ == "__main__":
    print(main().results)
