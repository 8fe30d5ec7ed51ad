"""Arguments and results: plain values, the same for both halves of the package."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, Literal, TypeAlias, TypeVar, overload

Item = TypeVar("Item")


@dataclass(frozen=True)
class Managed:
    """An empty directory that the daemon makes, or one that it kept from an earlier run.

    `keep`: whether it stays after `kill()`, to be used again by its id (the run's). Default: a new one is deleted, one
    that was named stays.
    """

    workspace_id: str | None = None
    keep: bool | None = None

    @property
    def stays(self) -> bool:
        return self.workspace_id is not None if self.keep is None else self.keep


@dataclass(frozen=True)
class Bind:
    """An existing directory of the daemon's host, in place. Absolute, beneath one of the daemon's `workspace_roots`."""

    path: str | Path


@dataclass(frozen=True)
class Clone:
    """A clone of a git repository, at `revision` (default: its HEAD).

    `repository`: a directory of the daemon's host, or an `https://` address that the profile's `egress` lets the sandbox
    fetch. `keep`: whether it stays after `kill()`. Default: it stays. `depth`: most commits of the history, for an
    address. Default: all, with all branches and tags.
    """

    repository: str | Path
    revision: str | None = None
    keep: bool = True
    depth: int | None = None


@dataclass(frozen=True)
class Overlay:
    """A directory of the daemon's host through a layer that takes the changes; see `Sandbox.diff` and `accept`."""

    path: str | Path


@dataclass(frozen=True)
class Base:
    """A base: a tree of files that never changes, through a layer that takes the changes; see `Sandbox.diff`.

    `AsyncClient.bases` and `Client.bases` make, find, list and delete bases, as `coffer base` does.
    `keep`: whether the changes stay after `kill()`, until `discard`. Default: they are deleted with the run.
    """

    base_id: str
    keep: bool = False


@dataclass(frozen=True)
class Checkpoint:
    """The files of a checkpoint, which `Sandbox.checkpoint` made: to go back, or to try several ways from one place.

    The image has to be that of the sandbox of which it was made, where a root was written.
    `keep`: whether the changes stay after `kill()`. Default: they are deleted with the run.
    """

    checkpoint_id: str
    keep: bool = False


#: When the daemon makes a checkpoint by itself: before the first call of each new `task_id`, or after each call that has
#: written to files.
Every: TypeAlias = Literal["turn", "write"]


Workspace: TypeAlias = Managed | Bind | Clone | Overlay | Base | Checkpoint


@dataclass(frozen=True)
class Limits:
    """Lower limits than the profile's; None is the profile's value."""

    memory_bytes: int | None = None
    #: Thousandths of a core.
    cpu_millis: int | None = None
    #: Processes and threads.
    pids: int | None = None
    file_size_bytes: int | None = None
    open_files: int | None = None
    disk_bytes: int | None = None
    disk_files: int | None = None


@dataclass(frozen=True)
class Companion:
    """A container beside a sandbox, such as a database of its tests: commands of the sandbox reach it by its name.

    It is started before the sandbox is ready, and ended with it. It reaches the hosts that the profile opens to its image.
    """

    #: Small letters, digits and `-`, as in a host name.
    name: str
    #: One that the engine has and the profile allows.
    image: str
    #: Arguments for the image's entrypoint; empty: the image's own.
    command: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    #: Never answered, recorded or logged.
    secret_env: Mapping[str, str] = field(default_factory=dict, repr=False)
    #: When it is ready: a TCP port accepts connections, or a command ends with 0. Default: once it is started.
    ready: int | Sequence[str] | None = None
    #: Seconds that it has to be ready, at most 600. Default: 60.
    ready_timeout: float | None = None
    #: Seconds between two attempts, 0.05 to 60. Default: 0.2.
    ready_interval: float | None = None
    #: Default: an equal part of what the profile allows for all of them.
    memory_mib: int | None = None
    #: TCP ports that commands may connect to, beside that of `ready`. At most 16.
    ports: Sequence[int] = ()
    #: Names of companions that must be ready before it starts.
    depends_on: Sequence[str] = ()
    #: Rules that its connections have to pass beside those of the profile for its image; `{}` for none.
    egress: Mapping[str, object] | None = None


@dataclass(frozen=True)
class CompanionInfo:
    """A companion, as the daemon knows it."""

    name: str
    image: str
    image_digest: str
    #: Empty: the sandbox has ended. One that has exited is not started again.
    state: Literal["starting", "ready", "exited", ""]
    #: None unless it has exited.
    exit_code: int | None
    #: TCP ports that commands of the sandbox may connect to.
    ports: tuple[int, ...]
    #: Address of its name in the sandbox; empty until a command has asked for it.
    address: str


RunState: TypeAlias = Literal["creating", "ready", "paused", "stopping", "stopped", "failed"]


#: Why a container was made for a run, instead of one that waited.
ColdBecause: TypeAlias = Literal[
    "",
    "no-pool",
    "unsupported-host",
    "own-kernel",
    "root-in-user-namespace",
    "pkg-path",
    "first-of-its-kind",
    "none-waits",
    "not-usable",
    "tenant-share",
]


@dataclass(frozen=True)
class ForkedFrom:
    """The checkpoint with whose files a run began."""

    #: It may have been deleted.
    checkpoint_id: str
    #: The run of which it was made.
    run_id: str


@dataclass(frozen=True)
class RunInfo:
    """A run, as the daemon knows it."""

    run_id: str
    state: RunState
    profile: str
    image: str
    agent_id: str
    role: str
    metadata: Mapping[str, str]
    created_at: datetime | None
    ready_at: datetime | None
    ended_at: datetime | None
    #: Why it failed; empty otherwise.
    failure: str
    #: Its own time that ended it (`ttl` is its `timeout`), or the drain of its node; empty: none.
    end_cause: Literal["ttl", "idle_timeout", "lease", "node_drained", ""]
    #: Seconds after which it is stopped; None: never.
    timeout: float | None
    #: Seconds without a call after which it is stopped; None: never.
    idle_timeout: float | None
    #: Seconds without `keep_alive` after which it is stopped; None: never.
    lease: float | None
    #: When the lease ends unless it is renewed. Known from `info` and `keep_alive` alone, while the run lives.
    lease_ends_at: datetime | None
    #: From a warm container, or made for this run.
    start: Literal["warm", "cold", ""]
    #: Why the start was cold, such as `first-of-its-kind`; empty otherwise.
    cold_because: ColdBecause
    #: How often it went on under another daemon.
    restarts: int
    #: Reasons why it is paused, such as `approval`; empty unless it is.
    holds: tuple[str, ...]
    #: Names of its secret variables.
    secret_env: tuple[str, ...]
    #: Directories at the root that were asked for as its own.
    writable_paths: tuple[str, ...]
    #: On the daemon's host; empty for those who may not create runs.
    workspace_path: str
    #: Where it began; None: not on a checkpoint.
    forked_from: ForkedFrom | None
    #: Containers beside it.
    companions: tuple[CompanionInfo, ...]
    #: Stable reason for which it failed, such as `RUN_LOST`; empty otherwise.
    failure_reason: str = ""
    #: Whose failure that is; empty otherwise.
    fault: Fault = ""
    #: Facts that show whose failure it is, such as `engine.exit_code`.
    evidence: Mapping[str, str] = field(default_factory=dict)

    @property
    def failed_by_infrastructure(self) -> bool:
        """The host, its engine or the daemon ended it: it says nothing about its programs."""
        return self.fault == "infrastructure"


@dataclass(frozen=True)
class ModelUse:
    """Requests to models and what they took, as the answers of models say it."""

    requests: int
    #: Answers that said no tokens, which are therefore not counted.
    unreported_requests: int
    #: Tokens of requests that were not read from a cache.
    input_tokens: int
    output_tokens: int
    cached_input_tokens: int
    cache_write_tokens: int
    #: Cost of the tokens that have a price on the daemon.
    cost_usd: float
    #: Tokens of models without a price.
    unpriced_tokens: int


@dataclass(frozen=True)
class BudgetBound:
    """A bound of a run's budget, and what of it is used."""

    #: Requests that count: those of the run, of all runs of its principal today, or of all runs today.
    scope: Literal["run", "principal_day", "day"]
    unit: Literal["tokens", "requests", "usd"]
    used: float
    limit: float
    #: When it begins anew; None: never.
    renews_at: datetime | None


@dataclass(frozen=True)
class ModelUsage:
    """What a run has used of models in its whole life."""

    total: ModelUse
    #: By the name of the model. The requests are those that were answered.
    models: Mapping[str, ModelUse]
    #: Empty where the profile has no budget, and after the run's end.
    budget: tuple[BudgetBound, ...]


#: Cause of an early end; empty: it ended by itself, or the cause is not known.
EndedBy: TypeAlias = Literal[
    "",
    "timeout",
    "cancelled",
    "output-limit",
    "memory-limit",
    "file-size-limit",
    "disk-quota",
    "run-ended",
    "killed",
    "interrupted",
    "host-memory",
    "host-disk",
]
#: Whose failure it is; empty: there is none, or the daemon does not say.
Fault: TypeAlias = Literal["", "program", "policy", "caller", "infrastructure"]
#: A limit of a run.
Limit: TypeAlias = Literal[
    "memory",
    "processes",
    "output",
    "file-size",
    "tmp-space",
    "shm-space",
    "project-space",
    "state-space",
    "disk",
]


@dataclass(frozen=True)
class CommandResult:
    """How a command ended, and all that it wrote."""

    call_id: str
    #: 128 and the signal's number where one ended it; None where nobody knows.
    exit_code: int | None
    #: Standard output, raw.
    stdout_bytes: bytes = field(repr=False)
    #: Standard error, raw.
    stderr_bytes: bytes = field(repr=False)
    signal: int | None = None
    timed_out: bool = False
    #: Cause of its early end; empty: it ended by itself, or the cause is not known.
    ended_by: EndedBy = ""
    #: Limits of the run that were reached meanwhile.
    limits_hit: tuple[Limit, ...] = ()
    #: Bytes that it wrote and that are in neither of the two above: the profile's `max_spool_bytes` says how many are kept.
    omitted_bytes: int = 0
    #: Seconds, as the daemon measured them.
    duration: float = 0.0
    #: Seconds of processor time, of it and all that it started.
    cpu_time: float = 0.0
    #: Peak memory of its largest process, bytes.
    peak_memory_bytes: int = 0
    #: Processes that it had started and that the daemon ended after it.
    processes_ended: int = 0
    #: Advice of the daemon; often empty.
    hint: str = ""
    #: Whose failure its early end is; empty: it ended by itself.
    fault: Fault = ""
    #: Nothing was done, so that a repetition does it once.
    retry_safe: bool = False
    #: Facts that show whose failure it is, such as `cgroup.limit_hits`.
    evidence: Mapping[str, str] = field(default_factory=dict)

    @property
    def failed_by_infrastructure(self) -> bool:
        """The host, its engine or the daemon ended it: it says nothing about the program."""
        return self.fault == "infrastructure"

    @cached_property
    def stdout(self) -> str:
        """Standard output as UTF-8, with U+FFFD in place of other bytes."""
        return self.stdout_bytes.decode("utf-8", "replace")

    @cached_property
    def stderr(self) -> str:
        """Standard error likewise."""
        return self.stderr_bytes.decode("utf-8", "replace")

    @property
    def ok(self) -> bool:
        """The exit code is 0, and nothing ended it before its time."""
        return self.exit_code == 0 and not self.ended_by


@dataclass(frozen=True)
class CommandOutput:
    """A piece of the output of a command, as it came."""

    #: A terminal shows both as `stdout`.
    stream: Literal["stdout", "stderr"]
    #: Raw.
    data: bytes
    #: As UTF-8, with U+FFFD in place of other bytes. A character comes with its last byte.
    text: str


@dataclass(frozen=True)
class PtySize:
    """The size of a terminal in characters, 1 to 10,000 each."""

    rows: int = 24
    cols: int = 80


ProcessState: TypeAlias = Literal["running", "ended", "interrupted"]
Signal: TypeAlias = Literal["HUP", "INT", "QUIT", "KILL", "USR1", "USR2", "TERM", "CONT", "STOP", "TSTP"]


@dataclass(frozen=True)
class ProcessInfo:
    """A command in the background, or a terminal, as it is now."""

    #: The id of the call that started it, too.
    process_id: str
    #: `interrupted`: it was lost, and the daemon has ended what was left of it.
    state: ProcessState
    #: A script, or a program and its arguments; empty: a session.
    cmd: str | tuple[str, ...]
    cwd: str
    #: The name that it was given, to find it by.
    tag: str | None
    #: It has a terminal.
    pty: bool
    started_at: datetime | None
    #: None while it runs.
    ended_at: datetime | None
    #: 128 and the signal's number where one ended it; None while it runs, and where nobody knows.
    exit_code: int | None
    signal: int | None
    #: Cause of its early end; empty: it ended by itself, or the cause is not known.
    ended_by: EndedBy
    #: Why it was lost, or ended by a limit or with its sandbox by the host; empty otherwise.
    failure: str
    #: Bytes that it has written to standard output or its terminal.
    stdout_size: int
    #: Bytes that it has written to standard error.
    stderr_size: int
    #: Bytes that it was given to read.
    stdin_size: int
    #: It can be given more.
    stdin_open: bool
    #: Seconds of processor time, of it and all that it started; 0 while it runs.
    cpu_time: float
    #: Peak memory of its largest process, bytes; 0 while it runs.
    peak_memory_bytes: int
    #: Number of processes that a command left running, in a profile that keeps them. This entry represents all of them,
    #: and a signal reaches each. 0: the entry is one process, started by `process`.
    left_behind: int = 0
    #: Whose failure its early end is; empty: it runs, or ended by itself.
    fault: Fault = ""
    #: Facts that show whose failure it is, such as `run.end_cause`.
    evidence: Mapping[str, str] = field(default_factory=dict)

    @property
    def failed_by_infrastructure(self) -> bool:
        """The host, its engine or the daemon ended it: it says nothing about the program."""
        return self.fault == "infrastructure"


SessionState: TypeAlias = Literal["idle", "busy", "replaced", "closed"]


@dataclass(frozen=True)
class SessionInfo:
    """A session, as it is now."""

    #: The id of its process, and of the call that opened it, too.
    session_id: str
    #: `idle`: it takes a command. `busy`: one runs. `replaced`: its shell has become another program, and takes none.
    state: SessionState
    process: ProcessInfo


@dataclass(frozen=True)
class SessionResult:
    """What a session showed, and whether its command is over."""

    #: `done`: the command is over. `matched`: what it shows matches, and it runs. `running`: the time was over, and it runs.
    #: `ended`: the shell has ended, and the session with it. `unanswered`: code that ran in the shell has broken it.
    state: Literal["done", "matched", "running", "ended", "unanswered"]
    #: Both streams since the last answer, or since the command began; with a match, the text before it. UTF-8, with U+FFFD
    #: in place of other bytes.
    output: str
    #: Of the command, or of the shell if that has ended. None while the command runs, and where nobody knows.
    exit_code: int | None = None
    #: Which of `expect` matches, from 0; None unless one does.
    matched: int | None = None
    #: The text that matches; the next answer begins after it.
    matched_text: str = ""
    #: Bytes that were shown and that the daemon has not kept. A line in `output` says where they are missing.
    omitted_bytes: int = 0

    @property
    def ok(self) -> bool:
        """The exit code is 0."""
        return self.exit_code == 0


@dataclass(frozen=True)
class Tls:
    """Files that prove who the daemon and its client are, for an `https` endpoint; `coffer tls init` makes them.

    `ca`: who must have signed the daemon's certificate. Default: an authority that gRPC itself trusts.
    `cert`, `key`: the client's certificate and its key. Default: none, which is for a client that has a token.

    They are read once, when the client is made: a client that outlives its certificate has to be made again.
    """

    ca: str | Path | None = None
    cert: str | Path | None = None
    key: str | Path | None = None


@dataclass(frozen=True)
class Found(Sequence[Item], Generic[Item]):
    """A list that may have been cut: `truncated` says so, and `hint` how to get the rest."""

    items: tuple[Item, ...]
    truncated: bool = False
    hint: str = ""

    @overload
    def __getitem__(self, at: int) -> Item: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[Item, ...]: ...
    def __getitem__(self, at: int | slice) -> Item | tuple[Item, ...]:
        return self.items[at]

    def __iter__(self) -> Iterator[Item]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)


@dataclass(frozen=True)
class FileInfo:
    """An entry of a directory."""

    #: As commands in the sandbox see it.
    path: str
    name: str
    type: Literal["file", "directory", "symlink", "other"]
    #: Bytes; 0 for anything but files.
    size: int
    modified: datetime


@dataclass(frozen=True)
class WriteInfo:
    """A file that was written."""

    path: str
    size: int
    sha256: str
    #: Of the content before; None: there was no file.
    sha256_before: str | None


@dataclass(frozen=True)
class TransferInfo:
    """A file or a directory that was copied into a sandbox, or out of it."""

    #: In the sandbox.
    path: str
    type: Literal["file", "directory"]
    #: Bytes of the file; of all files of a directory.
    size: int
    #: Of the file; of a directory, of the archive that it was sent as.
    sha256: str
    #: Files, directories and links in the directory; 1 for a file.
    entries: int = 1
    #: Entries of the directory that were not copied: git's own files, special files, and links that lead out of it.
    left_out: int = 0


@dataclass(frozen=True)
class FileEvent:
    """A change that `watch` has seen."""

    change: Literal["created", "modified", "removed"]
    #: As commands in the sandbox see it.
    path: str
    type: Literal["file", "directory", "symlink", "other"]


@dataclass(frozen=True)
class EditInfo:
    """A file that was edited."""

    path: str
    #: Unified, from old to new; the beginning of it where it was cut.
    diff: str
    diff_truncated: bool
    sha256: str
    sha256_before: str | None
    #: How many places changed.
    replacements: int


@dataclass(frozen=True)
class PatchedFile:
    """A file of a patch."""

    path: str
    change: Literal["created", "updated", "deleted", "moved"]
    #: Where it was before it was moved; None for others.
    moved_from: str | None
    #: None: the file is gone.
    sha256: str | None


@dataclass(frozen=True)
class PatchInfo:
    """The outcome of a patch."""

    files: tuple[PatchedFile, ...]
    diff: str
    diff_truncated: bool
    #: Remarks, such as a hunk that was applied at another line.
    notes: tuple[str, ...]


@dataclass(frozen=True)
class RemoveInfo:
    """A file or directory that was removed."""

    path: str
    type: Literal["file", "directory", "symlink", "other"]
    #: Its name in the run's trash; None: it is gone for good.
    trash_entry: str | None


@dataclass(frozen=True)
class Match:
    """A line that matched."""

    path: str
    #: From 1.
    line: int
    #: Without its newline, at most 400 characters.
    text: str
    before: tuple[str, ...]
    after: tuple[str, ...]


@dataclass(frozen=True)
class GitRefUpdate:
    """A reference of git before and after."""

    #: Such as `refs/remotes/origin/main`.
    name: str
    #: None: it was made.
    old_id: str | None
    #: None: it was deleted.
    new_id: str | None


@dataclass(frozen=True)
class GitOutput:
    """The output of git, in the form of the git command."""

    output: str
    truncated: bool
    #: The commit that `commit` made, or that `pull` moved the branch to; None for others.
    commit: str | None = None
    #: Host and repository of `fetch`, `pull` and `push`; None for others.
    remote: str | None = None
    #: The references that these have updated.
    updates: tuple[GitRefUpdate, ...] = ()


@dataclass(frozen=True)
class ApprovalInfo:
    """A call that needs, or needed, a person's consent."""

    approval_id: str
    state: Literal["pending", "approved", "denied", "expired", "cancelled"]
    run_id: str
    call_id: str
    agent_id: str
    #: Such as `write` or `git.commit`.
    operation: str
    #: The view for the reviewer.
    preview: str
    #: Why it is asked.
    justification: str
    risk: str
    created_at: datetime | None
    expires_at: datetime | None
    decided_by: str
    comment: str


@dataclass(frozen=True)
class AuditEvent:
    """A record of the audit log."""

    #: From 1, without gaps.
    sequence: int
    time: datetime
    #: Such as `call_intent` or `call_receipt`.
    kind: str
    run_id: str
    call_id: str
    principal: str
    agent_id: str
    operation: str
    #: As it is in the log.
    record: Mapping[str, Any] = field(repr=False)
    #: SHA-256 of this record.
    hash: str = field(repr=False)


@dataclass(frozen=True)
class ToolOutput:
    """The answer of a tool, for the model to see."""

    #: Send this to the model.
    text: str
    status: Literal["succeeded", "failed", "pending_approval", "denied"]
    call_id: str
    #: Set when a person has to decide, or has decided.
    approval_id: str | None = None
    #: Stable reason when it failed or was denied.
    reason: str = ""
    #: Whose failure it is; empty: it did not fail.
    fault: Fault = ""

    @property
    def ok(self) -> bool:
        return self.status == "succeeded"

    @property
    def failed_by_infrastructure(self) -> bool:
        """The host, its engine or the daemon failed: it says nothing about the model or the program."""
        return self.fault == "infrastructure"


CallResult: TypeAlias = (
    "str | bytes | CommandResult | SessionResult | WriteInfo | EditInfo | PatchInfo | RemoveInfo | GitOutput | Found[Any]"
    " | None"
)


@dataclass(frozen=True)
class CallInfo:
    """A call, as it is now."""

    call_id: str
    status: Literal["succeeded", "failed", "pending_approval", "denied", "running"]
    #: As the method that made it returns it; None until it has succeeded, and when it was dropped to free space.
    result: CallResult
    #: For the model.
    text: str
    approval_id: str | None
    reason: str
    message: str
    #: Whose failure it is; empty: it did not fail.
    fault: Fault = ""
    #: Nothing was done, so that a repetition does it once.
    retry_safe: bool = False
    #: Facts that show whose failure it is.
    evidence: Mapping[str, str] = field(default_factory=dict)

    @property
    def failed_by_infrastructure(self) -> bool:
        """The host, its engine or the daemon failed: it says nothing about the program."""
        return self.fault == "infrastructure"


@dataclass(frozen=True)
class ChangedFile:
    """A path that is not as it is beneath the overlay."""

    path: str
    change: Literal["added", "modified", "deleted"]
    type: str
    size: int
    #: Why `accept` applies it only with `force`; empty: nothing speaks against it.
    objection: str
    #: Why it cannot be applied; empty: it can.
    obstacle: str


@dataclass(frozen=True)
class Diff:
    """The changes in an overlay."""

    files: tuple[ChangedFile, ...]
    #: As `patch -p1` takes it.
    unified: str
    truncated: bool


@dataclass(frozen=True)
class ForkFailure:
    """Forks that could not be made."""

    #: Stable, such as `OVERLOADED`.
    reason: str
    message: str
    #: How many failed in this way.
    count: int


@dataclass(frozen=True)
class ComparedRun:
    """What a run has changed, and what it took for that."""

    run: RunInfo
    #: At most 1,000, by path.
    files: tuple[ChangedFile, ...]
    #: Number of all changes.
    total: int
    #: Lines that text files have more.
    lines_added: int
    #: Lines that text files have less.
    lines_removed: int
    #: Not all lines were counted: a file was large, or there were too many.
    lines_incomplete: bool
    #: Why the changes cannot be shown; empty: they are.
    unavailable: str
    #: Calls so far.
    calls: int
    #: Calls that policy, limits or people refused.
    refused: int
    #: Approvals that were asked for.
    approvals: int
    #: Seconds of processor time of its commands so far.
    cpu_time: float
    #: How the check ended in it; None: there was none, or the run has ended.
    check: CommandResult | None


@dataclass(frozen=True)
class Conflict:
    """A path that several runs have changed in different ways."""

    path: str
    #: Ids of these runs.
    run_ids: tuple[str, ...]


@dataclass(frozen=True)
class Comparison:
    """What several runs have changed."""

    #: In the order of the request.
    runs: tuple[ComparedRun, ...]
    #: At most 1,000, by path.
    conflicts: tuple[Conflict, ...]
    #: There are more conflicts.
    truncated: bool


@dataclass(frozen=True)
class FleetNode:
    """A daemon of a fleet, as a list of nodes has it."""

    #: Number, as in `node.id` of its configuration. None: the daemon says it.
    id: int | None
    #: Such as `https://node-7.example.org:7443`; see `AsyncClient`.
    endpoint: str
    #: Name in its certificate. Default: the host of `endpoint`.
    server_name: str | None = None
    #: Share of the sandboxes that it takes, against the weights of the others.
    weight: int = 1


@dataclass(frozen=True)
class NodeAmounts:
    """Amounts of what runs take."""

    #: Runs and companions.
    runs: int
    memory_mib: int
    cores: float
    #: On the state disk.
    disk_mib: int


@dataclass(frozen=True)
class NodeInfo:
    """A node of a fleet, as it is now."""

    #: Number; None: it has not answered yet, and the list of nodes does not say.
    node: int | None
    endpoint: str
    #: `draining`: it makes no runs, and some still live. `drained`: none lives. `unreachable`: it does not answer.
    state: Literal["serving", "draining", "drained", "unreachable"]
    #: Reason why it is unreachable; empty otherwise. All fields below are empty then.
    failure: str = ""
    #: Identity of its state, which no other daemon has.
    instance: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    #: Version of its daemon.
    version: str = ""
    capacity: NodeAmounts | None = None
    used: NodeAmounts | None = None
    #: Reason of its operator for the drain; empty otherwise.
    drain_reason: str = ""


@dataclass(frozen=True)
class OfNode(Generic[Item]):
    """A thing, and the node that has it."""

    node: int
    item: Item


@dataclass(frozen=True)
class Gathered(Sequence[OfNode[Item]], Generic[Item]):
    """All that the nodes that answered have. Nodes that did not are `missing`."""

    items: tuple[OfNode[Item], ...]
    missing: tuple[NodeInfo, ...] = ()

    @overload
    def __getitem__(self, at: int) -> OfNode[Item]: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[OfNode[Item], ...]: ...
    def __getitem__(self, at: int | slice) -> OfNode[Item] | tuple[OfNode[Item], ...]:
        return self.items[at]

    def __iter__(self) -> Iterator[OfNode[Item]]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)


@dataclass(frozen=True)
class FleetEvent:
    """A record of a node's audit log, among those of the others."""

    node: int
    event: AuditEvent
    #: Place of this record in all logs. `watch_events` goes on after it.
    position: str = field(repr=False)


@dataclass(frozen=True)
class AlertInfo:
    """A rule that fired."""

    alert_id: str
    #: Such as `loop`.
    rule: str
    severity: Literal["low", "medium", "high", "critical", ""]
    state: Literal["open", "acknowledged", ""]
    #: One sentence.
    summary: str
    #: Who made the call at which it fired.
    principal: str
    agent_id: str
    #: Empty: the call had no run.
    run_id: str
    raised_at: datetime | None
    #: Last time at which its condition was true.
    last_at: datetime | None
    #: How often its condition was true.
    occurrences: int
    #: `alert`, `throttle`, `require_approval`, `freeze` or `stop`.
    measure: str
    acknowledged_by: str
    comment: str
