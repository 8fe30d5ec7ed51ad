# Generated from the asynchronous half by tools/unasync.py: change that half.
"""`sandbox.pty`."""

from collections.abc import Mapping, Sequence

from cofferdam import _requests
from cofferdam._sync.caller import Caller
from cofferdam._sync.handle import CommandHandle, Listener
from cofferdam._sync.process import Process, connect, start
from cofferdam._sync.transport import DataCallback
from cofferdam.types import PtySize

# The image's own shell, as at a login.
LOGIN = "if command -v bash >/dev/null; then exec bash -l; else exec sh -l; fi"


class Pty:
    """Terminals: commands in the background that have one in place of pipes. `commands.list` shows them, too."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    def create(
        self,
        size: PtySize | None = None,
        *,
        cmd: str | Sequence[str] | None = None,
        on_data: DataCallback | None = None,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
        tag: str | None = None,
    ) -> CommandHandle:
        """Opens a terminal, where the profile allows `process` (as `harness` does).

        `size`: default: 24 rows of 80 characters. `cmd`: as in `commands.run`; default: a login shell, bash where there is
        one. `on_data`: is given all that it shows, raw, by another thread where this is no coroutine; `wait()` raises its
        exception. `cwd`, `env`, `timeout`, `tag`: as in `commands.run` with `background=True`.

        Raises `NotFound`, `Denied`, `ApprovalRequired` and others.
        """
        env = {**self._caller.options.env, **(env or {})}
        wanted = LOGIN if cmd is None else cmd
        operation = _requests.process(wanted, cwd, env, timeout, tag, terminal=PtySize() if size is None else size)
        return CommandHandle(start(self._caller, operation), Listener(on_data=on_data))

    def connect(self, process_id: str, *, on_data: DataCallback | None = None) -> CommandHandle:
        """A handle of a terminal that is there. `on_data`: is given all that it has shown, too. Raises `NotFound`."""
        return CommandHandle(connect(self._caller, process_id), Listener(on_data=on_data))

    def send_stdin(self, process_id: str, data: str | bytes) -> None:
        """Types something. Raises `NotFound`, and `PreconditionFailed` where it has ended."""
        Process(self._caller, process_id).send(data, close=False)

    def resize(self, process_id: str, size: PtySize) -> None:
        """Gives it another size. Raises like `send_stdin`."""
        Process(self._caller, process_id).resize(size)

    def kill(self, process_id: str) -> bool:
        """Ends it and everything that was started in it. False: it had ended, or there is none."""
        return Process(self._caller, process_id).kill()
