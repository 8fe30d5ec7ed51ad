"""mini-SWE-agent: `environment_class: cofferdam.integrations.minisweagent.CofferdamEnvironment`."""

import platform
from contextlib import suppress
from typing import Any

from minisweagent.exceptions import Submitted
from minisweagent.utils.serialize import recursive_merge
from pydantic import BaseModel

from cofferdam import CofferdamError, Sandbox
from cofferdam.errors import ApprovalRequired, CommandError, InfrastructureError, NoConnection
from cofferdam.integrations._shell import Said, merged, said, said_of

SUBMIT = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"


class CofferdamEnvironmentConfig(BaseModel):
    """Settings of the environment."""

    profile: str = "harness"
    image: str | None = None
    #: Default of each command; must be beneath `/workspace`, `/state` or `/pkg`.
    cwd: str = "/workspace"
    env: dict[str, str] = {}
    #: Seconds of a command that does not say.
    timeout: int = 30
    #: Seconds after which the daemon stops the run.
    run_timeout: int = 2 * 60 * 60
    interpreter: list[str] = ["bash", "-lc"]
    #: Wait for a person where one has to consent, instead of `ApprovalRequired`.
    wait_for_approval: bool = False


class CofferdamEnvironment:
    """A sandbox of its own, made at once and ended by `cleanup`."""

    def __init__(
        self, *, config_class: type[CofferdamEnvironmentConfig] = CofferdamEnvironmentConfig, **kwargs: Any
    ) -> None:
        self.config = config_class(**kwargs)
        self.sandbox = Sandbox.create(
            profile=self.config.profile,
            image=self.config.image,
            env=self.config.env,
            timeout=self.config.run_timeout,
            agent_id="mini-swe-agent",
            wait_for_approval=self.config.wait_for_approval,
        )

    def execute(self, action: dict[str, Any], cwd: str = "", *, timeout: int | None = None) -> dict[str, Any]:
        """Runs `action["command"]`; raises `Submitted` when it hands in its work.

        A command that is refused is an output for the model. One that needs a person's consent is `ApprovalRequired`, which
        says how to decide, unless the environment has `wait_for_approval`.
        """
        argv = merged(action.get("command", ""), tuple(self.config.interpreter))
        try:
            done = said(self.sandbox.commands.run(argv, cwd=cwd or self.config.cwd, timeout=timeout or self.config.timeout))
        except (ApprovalRequired, InfrastructureError, NoConnection):
            # The last two end the run of the agent with an error, and not with what it has submitted.
            raise
        except CommandError as error:
            return self._failed(error, said_of(error))
        except CofferdamError as error:
            if error.details.get("resource") == "run":
                # The sandbox is gone: the model can do nothing about it.
                raise
            return self._failed(error, Said(error.message, -1))
        self._check_submitted(done)
        return {"output": done.output, "returncode": done.exit_code, "exception_info": ""}

    @staticmethod
    def _failed(error: CofferdamError, told: Said) -> dict[str, Any]:
        return {
            "output": told.output,
            "returncode": -1,
            "exception_info": f"The command did not finish: {error.message}",
            "extra": {"exception_type": type(error).__name__, "exception": str(error), "call_id": error.call_id},
        }

    @staticmethod
    def _check_submitted(done: Said) -> None:
        first, _, rest = done.output.lstrip().partition("\n")
        if first.strip() == SUBMIT and done.exit_code == 0:
            extra = {"exit_status": "Submitted", "submission": rest}
            raise Submitted({"role": "exit", "content": rest, "extra": extra})

    def get_template_vars(self, **kwargs: Any) -> dict[str, Any]:
        """For the agent's prompts."""
        merged_vars: dict[str, Any] = recursive_merge(self.config.model_dump(), platform.uname()._asdict(), kwargs)
        return merged_vars

    def serialize(self) -> dict[str, Any]:
        """For the trajectory."""
        kind = f"{type(self).__module__}.{type(self).__name__}"
        environment = {"environment": self.config.model_dump(mode="json"), "environment_type": kind}
        return {"info": {"config": environment, "cofferdam_run_id": self.sandbox.run_id}}

    def cleanup(self) -> None:
        """Ends the sandbox."""
        self.sandbox.kill()

    def __del__(self) -> None:
        # Its daemon may have ended before it.
        with suppress(CofferdamError):
            if hasattr(self, "sandbox"):
                self.cleanup()
