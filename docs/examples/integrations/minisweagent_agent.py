"""mini-SWE-agent: its agent works in a sandbox. The model is a script."""

from typing import Any

from minisweagent.agents.default import DefaultAgent
from minisweagent.models.test_models import DeterministicModel

from cofferdam.integrations.minisweagent import SUBMIT, CofferdamEnvironment

COMMANDS = ["echo made > made.txt", f"echo {SUBMIT}; cat made.txt"]
TURNS = [{"role": "assistant", "content": one, "extra": {"actions": [{"command": one}]}} for one in COMMANDS]


def main(image: str = "cofferdam/dev") -> dict[str, Any]:
    environment = CofferdamEnvironment(profile="harness", image=image)
    model = DeterministicModel(outputs=TURNS)
    prompts = {"system_template": "You use a shell.", "instance_template": "{{task}}"}
    try:
        return DefaultAgent(model, environment, **prompts).run("Make a file.")
    finally:
        environment.cleanup()


if __name__ == "__main__":
    print(main())
