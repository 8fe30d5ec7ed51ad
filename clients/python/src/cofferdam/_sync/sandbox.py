# Generated from the asynchronous half by tools/unasync.py: change that half.
"""`Sandbox`: a run, with a hardened container and a workspace."""

from __future__ import annotations

import json
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from typing_extensions import Self

from cofferdam import _requests, _results, v1
from cofferdam._options import OnAwaitingApproval, Options
from cofferdam._status import left_nothing
from cofferdam._sync.approvals import Approvals
from cofferdam._sync.audit import Audit
from cofferdam._sync.caller import Caller
from cofferdam._sync.calls import Calls
from cofferdam._sync.client import Client
from cofferdam._sync.commands import Commands
from cofferdam._sync.files import Files
from cofferdam._sync.forks import Forks, fork
from cofferdam._sync.forward import ErrorCallback, PortForward
from cofferdam._sync.git import Git
from cofferdam._sync.lease import Keeping
from cofferdam._sync.pty import Pty
from cofferdam._sync.search import Search
from cofferdam._sync.sessions import Sessions
from cofferdam._sync.transport import sleep
from cofferdam.errors import (
    CofferdamError,
    DaemonUnreachable,
    Denied,
    NotFound,
    RateLimited,
    Unavailable,
)
from cofferdam.types import (
    Base,
    Checkpoint,
    Clone,
    Companion,
    Diff,
    EditInfo,
    Every,
    Limits,
    Managed,
    ModelUsage,
    PatchInfo,
    RunInfo,
    RunState,
    Tls,
    ToolOutput,
    Workspace,
)

# Seconds. Making a container is the engine's, which may have others to make first.
CREATE_TIMEOUT = 300.0
# How often a run that nobody wants any more is looked for, and seconds between.
ABANDONINGS = 20
ABANDONING_PAUSE = 0.1

FORMATS = {
    "openai": v1.ListToolsRequest.Format.OPENAI,
    "anthropic": v1.ListToolsRequest.Format.ANTHROPIC,
    "mcp": v1.ListToolsRequest.Format.MCP,
}
ENDED = (v1.Run.State.STOPPED, v1.Run.State.FAILED)


class Sandbox:
    """A place for one agent to work in.

    ```python
    with Sandbox.create(profile="build", image="cofferdam/dev") as sandbox:
        sandbox.files.write("a.py", "print(6 * 7)")
        print((sandbox.commands.run(["python3", "a.py"])).stdout)
    ```

    Each call goes through the daemon's policy and is on record. Every error is a `cofferdam.CofferdamError`, with the
    stable `reason`, the `call_id` and a `hint`; a tool that fails raises, too (`FileNotFound`,
    `PreconditionFailed` …), only an exit code other than 0 is no error. While the daemon is away, calls wait for it for the
    client's `reconnect_timeout`; no call is done twice.

    Leaving the `with` block is `kill()`.
    """

    def __init__(self, client: Client, run_id: str, options: Options, *, owns_client: bool, delete_workspace: bool) -> None:
        """For `create` and `connect`."""
        self._client = client
        self._run_id = run_id
        self._options = options
        self._owns_client = owns_client
        self._delete_workspace = delete_workspace
        self._token: str | None = None
        self._keeping = Keeping()
        # The family that ends it, if there is one.
        self._forks: Forks | None = None
        self._caller = Caller(client, run_id, options)
        self.approvals = Approvals(self._caller)
        self.audit = Audit(self._caller)
        self.calls = Calls(self._caller)
        self.commands = Commands(self._caller)
        self.files = Files(self._caller)
        self.git = Git(self._caller)
        self.pty = Pty(self._caller)
        self.search = Search(self._caller)
        self.sessions = Sessions(self._caller)

    @classmethod
    def create(
        cls,
        *,
        profile: str,
        image: str | None = None,
        workspace: Workspace | None = None,
        timeout: float | None = None,
        idle_timeout: float | None = None,
        lease: float | None = None,
        keep_alive: bool = False,
        env: Mapping[str, str] | None = None,
        secret_env: Mapping[str, str] | None = None,
        metadata: Mapping[str, str] | None = None,
        agent_id: str = "sdk",
        role: str | None = None,
        limits: Limits | None = None,
        pkg_path: str | None = None,
        writable_paths: Sequence[str] = (),
        egress: Mapping[str, object] | None = None,
        companions: Sequence[Companion] = (),
        checkpoints: Every | None = None,
        keep_checkpoints: int | None = None,
        issue_token: bool = False,
        wait_for_approval: bool = False,
        on_awaiting_approval: OnAwaitingApproval = "wait",
        request_id: str | None = None,
        endpoint: str | None = None,
        token: str | None = None,
        tls: str | Path | Tls | None = None,
        client: Client | None = None,
    ) -> Self:
        """Makes a sandbox and returns when it is ready.

        `profile`: the policy that decides on its calls, such as `review`, `build` or `open`.
        `image`: one that the engine has and the profile allows. Default: the profile's.
        `workspace`: `Managed()`, `Bind(path)`, `Clone(repository)`, `Overlay(path)`, `Base(id)` or
        `Checkpoint(id)`. Default: `Managed()`.
        `timeout`: seconds until the daemon stops it, `idle_timeout`: without a call. Default: never.
        `lease`: seconds without `keep_alive()` until the daemon stops it, at least 1; no call and no command renews it.
        Default: never. `keep_alive`: renew it in the background until `kill`, `stop` or `close`, and so as long as this
        process lives.
        `env`: for each command of this object, beside its own. The profile says which names are allowed.
        `secret_env`: secret variables of all its commands, by any caller: sealed on the daemon's disk until the
        sandbox ends, never answered, recorded or logged. Their names are shown, and count as those of `env`.
        `metadata`: at most 64 labels, to find it again.
        `agent_id`: for whom it is, in the record. Rate limits of an agent count all sandboxes that name the same one.
        `role`: default: the profile's. `limits`: lower ones than the profile's.
        `pkg_path`: a directory of the host to show as `/pkg`.
        `writable_paths`: directories at the root, such as `/logs`, that are to be there and the sandbox's own; for profiles
        with a writable root, as `harness` has it.
        `egress`: rules that its connections have to pass beside those of the profile, in the same form; `{}` for none, and
        `{"only": ["files.example.org"]}` for those of the profile for these hosts. `InvalidArgument` if it allows less.
        `companions`: containers beside it, such as databases of its tests, which its commands reach by their names. The
        profile says which images they may have. Default: the profile's.
        `checkpoints`: have the daemon make checkpoints by itself: "turn": before the first call of each new `task_id`;
        "write": after each call that has written to files. `keep_checkpoints`: so many of these, 1 to 100; the oldest is
        deleted first. Default: 10.
        `issue_token`: have the daemon make a `token` for an agent that may do this run's calls and nothing else.
        `wait_for_approval`: wait for a person where one has to consent, instead of `ApprovalRequired`. A call that was
        approved after another one had changed its files asks once more.
        `on_awaiting_approval`: of a call that finds the run frozen for a reviewer of another call: "wait" in the order of
        arrival, as long as its own timeout allows (with `wait_for_approval` until the reviewer has decided), or "raise"
        `AwaitingApproval` at once.
        `request_id`: a name of your own for this request, at most 128 characters. The same request with the same name is
        the same sandbox, also after a lost connection and from another process, and also after that has ended. The name is
        free once the run is deleted, as `kill` does unless the workspace stays. `find` finds it. Default: none, and each
        call makes another sandbox.
        `client`, else `endpoint`, `token` and `tls`: the daemon; default: see `Client`. A client that is given stays
        open.

        Raises `DaemonUnreachable`, `NotPermitted`, `NotFound` (profile, image), `Denied`, `Overloaded`, `Unavailable` (the
        engine). Cancelled, or without an answer, it ends the run that the daemon may have made, unless that has a
        `request_id`. Behind a balancer another node may be asked than the one that made the run: give a `lease` with
        `keep_alive` there, so that a lost run ends by itself.
        """
        renewed = _requests.renewed(lease, keep_alive=keep_alive)
        workspace = Managed() if workspace is None else workspace
        request = v1.CreateRunRequest(
            # The daemon makes the run's id, which names its node. This id finds the run if the answer is lost.
            request_id=request_id or f"sdk-{_requests.new_id()}",
            profile=profile,
            image=image or "",
            workspace=_requests.workspace(workspace),
            pkg_path=pkg_path or "",
            agent_id=agent_id,
            role=role or "",
            limits=_requests.limits(limits),
            ttl=_requests.duration("timeout", timeout),
            idle_timeout=_requests.duration("idle_timeout", idle_timeout),
            lease=_requests.duration("lease", lease),
            secret_env=secret_env,
            labels=metadata,
            issue_token=issue_token,
            writable_paths=writable_paths,
            checkpoints=_requests.automatic(checkpoints, keep_checkpoints),
            companions=[_requests.companion(companion) for companion in companions],
            egress_json="" if egress is None else json.dumps(egress),
        )
        owns_client = client is None
        client = Client(endpoint, token, tls=tls) if client is None else client
        match workspace:
            case Managed():
                stays = workspace.stays
            case Clone() | Base() | Checkpoint():
                stays = workspace.keep
            case _:
                stays = True
        options = Options(wait_for_approval, on_awaiting_approval, env=dict(env or {}))
        made: v1.CreateRunResponse | None = None
        begun = time.monotonic()
        try:
            made = client.runs.create_run(request, timeout=CREATE_TIMEOUT)
            if issue_token and not made.token:
                # It is told once: a repetition does not have it.
                raise DaemonUnreachable("the connection was lost, and the run's token with it")
        except BaseException as error:
            # A run that has a name can be asked for again.
            if not request_id and not left_nothing(error):
                run_id = "" if made is None else made.run.run_id
                client._transport.afterwards(partial(_abandon, client, request.request_id, run_id, owns_client=owns_client))
            elif owns_client:
                client.close()
            raise
        run_id = made.run.run_id
        sandbox = cls(client, run_id, options, owns_client=owns_client, delete_workspace=not stays)
        sandbox._token = made.token or None
        if renewed is not None:
            sandbox._keeping.begin(client, run_id, renewed, since=None if request_id else begun)
        return sandbox

    @classmethod
    def connect(
        cls,
        run_id: str,
        *,
        env: Mapping[str, str] | None = None,
        wait_for_approval: bool = False,
        on_awaiting_approval: OnAwaitingApproval = "wait",
        endpoint: str | None = None,
        token: str | None = None,
        tls: str | Path | Tls | None = None,
        client: Client | None = None,
    ) -> Self:
        """A sandbox that is there already. Changes nothing in it: its `timeout` and its state stay as they are.

        Arguments are those of `create`. A run's own token can be the `token`. `kill()` leaves the workspace.

        Raises `NotFound` where there is no such run.
        """
        owns_client = client is None
        client = Client(endpoint, token, tls=tls) if client is None else client
        options = Options(wait_for_approval, on_awaiting_approval, env=dict(env or {}))
        sandbox = cls(client, run_id, options, owns_client=owns_client, delete_workspace=False)
        try:
            try:
                sandbox.info()
            except Denied:
                # A run's own token may not ask that.
                sandbox.tools()
        except BaseException:
            sandbox.close()
            raise
        return sandbox

    @classmethod
    def find(
        cls,
        request_id: str,
        *,
        env: Mapping[str, str] | None = None,
        wait_for_approval: bool = False,
        on_awaiting_approval: OnAwaitingApproval = "wait",
        endpoint: str | None = None,
        token: str | None = None,
        tls: str | Path | Tls | None = None,
        client: Client | None = None,
    ) -> Self | None:
        """The sandbox that `create` was asked for by this name, if this daemon has it, also one that has ended.

        Arguments are those of `connect`. One node answers, behind a balancer any of them, so that None says nothing about
        the others: `Fleet.find` asks each.
        """
        owns_client = client is None
        client = Client(endpoint, token, tls=tls) if client is None else client
        found: Self | None = None
        try:
            page = client.runs.list_runs(v1.ListRunsRequest(request_id=request_id, page_size=1))
            if page.runs:
                options = Options(wait_for_approval, on_awaiting_approval, env=dict(env or {}))
                run_id = page.runs[0].run_id
                found = cls(client, run_id, options, owns_client=owns_client, delete_workspace=False)
        finally:
            if found is None and owns_client:
                client.close()
        return found

    @classmethod
    def list(
        cls,
        state: RunState | None = "ready",
        *,
        metadata: Mapping[str, str] | None = None,
        endpoint: str | None = None,
        token: str | None = None,
        tls: str | Path | Tls | None = None,
        client: Client | None = None,
    ) -> Generator[RunInfo, None]:
        """The runs that the caller may see, newest first: in this state (None: any), and with this metadata."""
        owns_client = client is None
        client = Client(endpoint, token, tls=tls) if client is None else client
        request = v1.ListRunsRequest(page_size=1000)
        if state is not None:
            request.state = v1.Run.State.Value(state.upper())
        try:
            while True:
                page = client.runs.list_runs(request)
                for run in page.runs:
                    if all(run.labels.get(name) == value for name, value in (metadata or {}).items()):
                        yield _results.run_info(run)
                request.page_token = page.next_page_token
                if not request.page_token:
                    return
        finally:
            if owns_client:
                client.close()

    @property
    def run_id(self) -> str:
        """Its id, a UUIDv7; `connect` takes it."""
        return self._run_id

    @property
    def token(self) -> str | None:
        """The run's own token, if `create` was told to make one, or `issue_token`. It is told once and kept nowhere else."""
        return self._token

    @property
    def client(self) -> Client:
        """The whole API, on the same connection."""
        return self._client

    def with_options(
        self,
        *,
        wait_for_approval: bool | None = None,
        on_awaiting_approval: OnAwaitingApproval | None = None,
        task_id: str | None = None,
        correlation_id: str | None = None,
        request_id: str | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Self:
        """The same sandbox, for calls with other options. None leaves an option as it is.

        Its `kill`, `stop` and `close` are those of this object: they end the renewing of its lease, too.

        `task_id`, `correlation_id`: for the record, at most 128 characters. `env`: instead of the one before.
        `request_id`: of the one call that is made with it, at most 128 characters. The same call again, also by another
        client, does nothing twice: it has the outcome of the first one, for an hour after its end. Not for uploads.
        Default: each call has an id of its own.
        """
        options = replace(
            self._options,
            wait_for_approval=self._options.wait_for_approval if wait_for_approval is None else wait_for_approval,
            on_awaiting_approval=on_awaiting_approval or self._options.on_awaiting_approval,
            task_id=self._options.task_id if task_id is None else task_id,
            correlation_id=self._options.correlation_id if correlation_id is None else correlation_id,
            request_id=self._options.request_id if request_id is None else request_id,
            env=self._options.env if env is None else dict(env),
        )
        same = type(self)(
            self._client,
            self._run_id,
            options,
            owns_client=self._owns_client,
            delete_workspace=self._delete_workspace,
        )
        same._token = self._token
        same._keeping = self._keeping
        same._forks = self._forks
        return same

    def edit(self, path: str, old: str, new: str, *, replace_all: bool = False, if_match: str | None = None) -> EditInfo:
        """Replaces the text `old`, which must be in the file exactly once, by `new`; whole or not at all.

        `replace_all`: all places instead. `if_match`: `PreconditionFailed` unless the file's SHA-256 is this. A text that
        is not there, or there more than once, is `PreconditionFailed`, too; the message has the lines.
        """
        change = v1.StrReplace(old_str=old, new_str=new, replace_all=replace_all)
        request = v1.EditRequest(path=path, str_replace=change, if_match_sha256=if_match or "")
        return _results.edited((self._caller.result(v1.Operation(edit=request), of_file=True)).edit)

    def insert(self, path: str, after_line: int, text: str, *, if_match: str | None = None) -> EditInfo:
        """Inserts lines after a line, from 1; 0: at the beginning."""
        change = v1.InsertText(after_line=after_line, text=text)
        request = v1.EditRequest(path=path, insert=change, if_match_sha256=if_match or "")
        return _results.edited((self._caller.result(v1.Operation(edit=request), of_file=True)).edit)

    def patch(self, change: str) -> PatchInfo:
        """Changes several files, all or none of them. At most 3 MiB.

        `change`: a unified diff, or the envelope `*** Begin Patch`. Raises `PreconditionFailed` where it does not fit.
        """
        return _results.patched((self._caller.result(_requests.patch(change), of_file=True)).patch)

    def tools(
        self, format: Literal["openai", "anthropic", "mcp"] = "openai", *, dialect: str = "code"
    ) -> Sequence[dict[str, Any]]:
        """The tools that the agent may use, as a vendor's API takes them, without those that policy denies.

        `dialect`: names and shapes of the tools: `code`, `native`, `fs`, `exec`, `gateway`, `forge` or `editor`.
        """
        request = v1.ListToolsRequest(run_id=self._run_id, dialect=dialect, format=FORMATS[format])
        listed: Sequence[dict[str, Any]] = json.loads((self._client.tools.list_tools(request)).tools_json)
        return listed

    def call_tool(self, name: str, arguments: Mapping[str, Any] | str, *, dialect: str = "code") -> ToolOutput:
        """Makes a call as a model wrote it, and returns the answer for the model.

        `arguments`: an object, or its JSON as it came. A call that fails, is denied or waits for a person is an answer
        for the model as well: nothing is raised for it.
        """
        text = arguments if isinstance(arguments, str) else json.dumps(arguments)
        call = v1.DialectCall(dialect=dialect, name=name, arguments_json=text)
        return _results.tool_output((self._caller.call(dialect=call)).response)

    def forward(self, port: int, *, local_port: int = 0, on_error: ErrorCallback | None = None) -> PortForward:
        """A local address for a TCP server in it, where the profile says `forward: allow`.

        ```python
        with sandbox.forward(8000) as address:
            ...  # http://127.0.0.1:40123 leads to port 8000
        ```

        Every program and user of this host can use the address until the block ends; each connection is on record.

        `port`: where the server listens, on the sandbox's loopback or on all addresses. `local_port`: 0: any that is free.
        `on_error`: is given the reason why a connection was refused or lost: `PreconditionFailed` where nothing listens,
        `Denied`, `Overloaded`, `RunNotReady` and others. Raises `InvalidArgument`, and `OSError` for a port that is
        taken.
        """
        return PortForward(self._client, self._run_id, port, local_port, on_error)

    def info(self) -> RunInfo:
        """The run as it is now. Raises `NotFound`."""
        return _results.run_info((self._client.runs.get_run(v1.GetRunRequest(run_id=self._run_id))).run)

    def companion_logs(
        self, companion: str, *, tail_bytes: int | None = None, follow: bool = False
    ) -> Generator[bytes, None]:
        """What one of its companions has written, raw, as it comes.

        `tail_bytes`: at most so many of the last bytes until now, up to 1 MiB. Default: 64 KiB. `follow`: go on with what
        it writes, until it or the sandbox ends. Raises `NotFound` where there is no such companion.
        """
        request = v1.ReadCompanionLogsRequest(
            run_id=self._run_id,
            companion=companion,
            tail_bytes=_requests.unsigned("tail_bytes", tail_bytes or 0),
            follow=follow,
        )
        with closing(self._client.runs.read_companion_logs(request)) as parts:
            for part in parts:
                yield part.data

    def usage(self) -> ModelUsage:
        """What it has used of models, where its profile counts that. Raises `NotFound`."""
        return _results.model_usage(self._client.usage.get_usage(v1.GetUsageRequest(run_id=self._run_id)))

    def failed_by_infrastructure(self) -> bool:
        """The host, its engine or the daemon has ended the sandbox, or its node is gone: a result of it says nothing.

        False while it lives, and where its programs, its own time or a client ended it. `info()` has the evidence. The
        handle never stands for another run. Raises `NotPermitted` and `CertificateRefused` where this client is not let in:
        that says nothing about the sandbox.
        """
        try:
            return (self.info()).failed_by_infrastructure
        except DaemonUnreachable:
            return True

    def is_running(self) -> bool:
        """Whether it takes calls, or will after a pause."""
        try:
            return (self.info()).state in ("ready", "paused")
        except NotFound:
            return False

    def pause(self) -> RunInfo:
        """Makes all of its commands stand still, and refuses calls, until `resume`. `timeout` goes on meanwhile."""
        return _results.run_info((self._client.runs.pause_run(v1.PauseRunRequest(run_id=self._run_id))).run)

    def resume(self) -> RunInfo:
        """Takes `pause` back. It stays paused while an approval or an alert holds it."""
        return _results.run_info((self._client.runs.resume_run(v1.ResumeRunRequest(run_id=self._run_id))).run)

    def extend(self, timeout: float) -> RunInfo:
        """Gives it a longer `timeout`: seconds since it was ready, as in `create`. The same again changes nothing.

        Raises `PreconditionFailed` for a shorter one, `InvalidArgument` for more than the daemon allows, and
        `RunNotReady` where it has ended.
        """
        request = v1.ExtendRunRequest(run_id=self._run_id, ttl=_requests.duration("timeout", timeout))
        return _results.run_info((self._client.runs.extend_run(request)).run)

    def keep_alive(self) -> RunInfo:
        """Renews its `lease`. Raises `PreconditionFailed` where it has none, and `RunNotReady` where it has ended."""
        request = v1.KeepAliveRunRequest(run_id=self._run_id)
        return _results.run_info((self._client.runs.keep_alive_run(request)).run)

    def issue_token(self) -> str:
        """Makes a token for an agent that may do this run's calls and nothing else. From then on it is `token`.

        The one that the run had before opens nothing from then on. Raises `RunNotReady` where the run has ended.
        """
        request = v1.IssueRunTokenRequest(run_id=self._run_id)
        self._token = (self._client.runs.issue_run_token(request)).token
        return self._token

    def diff(self) -> Diff:
        """The changes in an `Overlay`, on a `Base` or of a fork, against the files beneath as they are now."""
        return _results.diff(self._client.runs.diff_run(v1.DiffRunRequest(run_id=self._run_id)))

    def accept(self, *, force: bool = False) -> int:
        """Ends the run, applies its changes to what it began on, and returns how many paths changed.

        For an `Overlay`, and for a fork: then to the directory, workspace or clone of the run that the family came from.
        Raises `PreconditionFailed`, and applies nothing, where a change has an `objection`; `force` applies these, too.
        A fork whose changes could not be applied is kept as by `Forks.keep`.
        """
        if self._forks is not None:
            self._forks._begin_accept(self)
        self.stop()
        request = v1.AcceptRunRequest(run_id=self._run_id, force=force)
        applied = (self._client.runs.accept_run(request, timeout=CREATE_TIMEOUT)).applied
        if self._forks is not None:
            self._forks._end_accept(self)
        return applied

    def discard(self) -> None:
        """Deletes the changes of an `Overlay` or on a `Base`. The run must have ended: `stop` it."""
        self._client.runs.discard_run(v1.DiscardRunRequest(run_id=self._run_id))

    def checkpoint(self, label: str = "") -> str:
        """Copies what the run has changed until now, and returns the checkpoint's id. Its commands are frozen meanwhile.

        The memory of processes is not in it. Raises `PreconditionFailed` for a `Bind`, or where a file cannot be read.
        """
        request = v1.CheckpointRunRequest(run_id=self._run_id, label=label)
        made = self._client.checkpoints.checkpoint_run(request, timeout=CREATE_TIMEOUT)
        return made.checkpoint.checkpoint_id

    def restore(self, checkpoint: str) -> str:
        """Gives the run the files of one of its checkpoints, or of the one on which it began.

        Its commands, processes and sessions are ended first. Returns the id of a checkpoint of the state before, with
        which this is undone. Raises `NotFound` for another run's, and `RunNotReady` where the run has ended.
        """
        request = v1.RestoreRunRequest(run_id=self._run_id, checkpoint_id=checkpoint)
        made = self._client.checkpoints.restore_run(request, timeout=CREATE_TIMEOUT)
        return made.before.checkpoint_id

    def fork(
        self,
        count: int,
        *,
        env: Mapping[str, str] | None = None,
        secret_env: Mapping[str, str] | None = None,
        metadata: Mapping[str, str] | None = None,
        limits: Limits | None = None,
        timeout: float | None = None,
        lease: float | None = None,
        keep_alive: bool | None = None,
        issue_tokens: bool = False,
    ) -> Forks:
        """Makes sandboxes that begin with the state of this one, and returns when each is ready or has failed.

        ```python
        with sandbox.fork(8) as forks:
            forks[0].commands.run("make")
        ```

        Leaving the block ends and deletes the forks that were neither kept (`forks.keep(fork)`) nor accepted. Each has its
        own id, record, approvals, limits and changes. Processes, consents and secrets are not inherited.

        `count`: 1 to 100. Those that could not be made are in `forks.failures`.
        `env`: for all commands of the forks, by any client, instead of a variable of the same name. `secret_env`: likewise.
        `metadata`: in addition to that of this sandbox. `limits`: lower ones.
        `timeout`, `lease`: default: those of this sandbox. `keep_alive`: default: as this object does.
        `issue_tokens`: have the daemon make a `token` for each of them.

        Raises `PreconditionFailed` for a `Bind`, `Denied`, `Overloaded`, and others. Cancelled, it leaves no run behind.
        """
        return fork(
            self._client,
            self,
            count,
            env=env,
            secret_env=secret_env,
            metadata=metadata,
            limits=limits,
            timeout=timeout,
            lease=lease,
            keep_alive=self._keeping.goes_on if keep_alive is None else keep_alive,
            issue_tokens=issue_tokens,
            options=self._options,
        )

    def stop(self) -> bool:
        """Ends the run: its calls are cancelled and its container is removed. The workspace stays.

        False: it had ended already, or there is no such run.
        """
        self._keeping.end()
        try:
            if (self._client.runs.get_run(v1.GetRunRequest(run_id=self._run_id))).run.state in ENDED:
                return False
            self._client.runs.stop_run(v1.StopRunRequest(run_id=self._run_id))
        except NotFound:
            return False
        return True

    def kill(self, *, delete_workspace: bool | None = None) -> bool:
        """Ends the run, and deletes it with its workspace where that is wanted. Closes a connection of its own.

        `delete_workspace`: default: as the `keep` of `create`'s workspace says. A bound directory is never
        deleted, and changes of an overlay stay until they are accepted or discarded. The audit log keeps its records.
        False: it had ended already, or there is no such run.
        """
        with self._keeping.turn:
            try:
                stopped = self.stop()
                if self._delete_workspace if delete_workspace is None else delete_workspace:
                    with suppress(NotFound):
                        request = v1.DeleteRunRequest(run_id=self._run_id, delete_workspace=True)
                        self._client.runs.delete_run(request)
                return stopped
            finally:
                self.close()

    def close(self) -> None:
        """Closes the connection if it is this sandbox's own. The run goes on, as long as its `lease` lets it."""
        self._keeping.end()
        if self._owns_client:
            self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            self._client._transport.finish(self.kill())
        except CofferdamError:
            # The error of the block itself says more.
            if error is None:
                raise

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._run_id!r})"


def _abandon(client: Client, request_id: str, run_id: str, *, owns_client: bool) -> None:
    """Ends a run that nobody wants any more: this one, or that of a request whose answer was lost.

    A request without an id of a node may reach any node of a fleet, so that not every attempt asks the one that has the run.
    Behind a balancer none of them may. There is no list of nodes here to ask one after the other.
    """
    with suppress(CofferdamError):
        for _ in range(ABANDONINGS):
            # Not now, such as without a log: that is perhaps why it is abandoned.
            with suppress(NotFound, RateLimited, Unavailable):
                if not run_id:
                    page = client.runs.list_runs(v1.ListRunsRequest(request_id=request_id, page_size=1))
                    run_id = page.runs[0].run_id if page.runs else ""
                if run_id:
                    client.runs.stop_run(v1.StopRunRequest(run_id=run_id))
                    break
            # The daemon may not have begun with it.
            sleep(ABANDONING_PAUSE)
    if owns_client:
        client.close()
