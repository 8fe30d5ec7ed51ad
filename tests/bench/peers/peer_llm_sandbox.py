"""llm-sandbox with its Docker back end.

Its set-up of a language is left out, because it installs packages from the network. Its own command for a container is a
shell, which ignores the signal that it stops containers by and costs ten seconds each time. So it gets `sleep` and SIGKILL.
"""

import tempfile
from pathlib import Path

import peer
from llm_sandbox import SandboxBackend, SandboxSession


class LlmSandbox:
    def __init__(self, image: str, workspace: str) -> None:
        self.session = SandboxSession(
            backend=SandboxBackend.DOCKER,
            image=image,
            lang="python",
            skip_environment_setup=True,
            runtime_configs={
                "command": ["sleep", "infinity"],
                "stop_signal": "SIGKILL",
                "network_mode": "none",
                "volumes": {workspace: {"bind": "/workspace", "mode": "rw"}},
            },
        )

    async def create(self) -> None:
        self.session.open()

    async def run_true(self) -> None:
        result = self.session.execute_command("true")
        if result.exit_code != 0:
            raise RuntimeError(f"`true` failed: {result}")

    async def read(self) -> int:
        with tempfile.TemporaryDirectory() as place:
            copy = Path(place) / "file"
            self.session.copy_from_runtime(peer.PATH, str(copy))
            return len(copy.read_bytes())

    async def destroy(self) -> None:
        self.session.close()


if __name__ == "__main__":
    peer.serve(LlmSandbox)
