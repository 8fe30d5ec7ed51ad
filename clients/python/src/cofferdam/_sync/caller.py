# Generated from the asynchronous half by tools/unasync.py: change that half.
"""Makes the calls of a run, each once, and has all of their output even if the connection breaks.

```text
CallStream ──accepted, output, result──▶ done
    │ lost before it was accepted: again, by the same request id
    ▼ lost afterwards
GetCall from the offsets that are here ──▶ … ──▶ done
```
"""

import uuid
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import dataclass

from cofferdam import v1
from cofferdam._method import Method
from cofferdam._options import Options
from cofferdam._output import Output
from cofferdam._requests import only_reads
from cofferdam._settings import Patience, Pauses
from cofferdam._status import after_lost_attempt, failed, is_void
from cofferdam._sync.client import Client
from cofferdam._sync.transport import OutputCallback, sleep, tell
from cofferdam.errors import (
    ApprovalRequired,
    AwaitingApproval,
    CofferdamError,
    DaemonUnreachable,
    Interrupted,
    NoConnection,
    NotFound,
    PreconditionFailed,
    RateLimited,
)

PENDING = v1.CallResponse.Status.PENDING_APPROVAL
RUNNING = v1.CallResponse.Status.RUNNING
SUCCEEDED = v1.CallResponse.Status.SUCCEEDED
# Reason of a call that was not made, because its run waits for a reviewer of another call.
AWAITING = "AWAITING_APPROVAL"
# Reason of a call that was not made, because there were too many before it.
LIMITED = "RATE_LIMITED"

# Most bytes of a stream that `GetCall` gives at once.
PIECE = 1024 * 1024
# A call that only reads, as one answer: there is no output to follow, and nothing happens twice if it is repeated.
READ = Method("/cofferdam.v1.ToolService/Call", v1.CallRequest, v1.CallResponse, True)
# Seconds. The daemon ends a read itself; this is for a daemon that hangs.
READ_TIMEOUT = 600.0
# Seconds for the message that ends a call whose caller has gone.
CANCEL_TIMEOUT = 5.0
# How often it is asked meanwhile whether the call is over.
ENDINGS = 100
# Most questions about one call whose files go on changing, after the first one.
QUESTIONS = 8


@dataclass
class Outcome:
    """The answer to a call, and the output of its command."""

    response: v1.CallResponse
    stdout: bytes
    stderr: bytes


class Call:
    """One call under way."""

    def __init__(
        self,
        client: Client,
        request: v1.CallRequest,
        on_stdout: OutputCallback | None,
        on_stderr: OutputCallback | None,
    ) -> None:
        self._client = client
        self._transport = client._transport
        self._request = request
        self._call_id = ""
        self._stdout = Output()
        self._stderr = Output()
        self._on_stdout = on_stdout
        self._on_stderr = on_stderr
        #: The caller's own code is running: its exceptions are no answers of the daemon.
        self.telling = False

    def outcome(self) -> Outcome:
        try:
            response = self._response(self._transport.patience())
            self._tell(self._on_stdout, self._stdout.rest())
            self._tell(self._on_stderr, self._stderr.rest())
        except BaseException as error:
            if isinstance(error, CofferdamError) and not self.telling:
                error.call_id = error.call_id or self._call_id or None
            elif self._call_id:
                self._transport.afterwards(self._end)
            raise
        return Outcome(response, self._stdout.whole(), self._stderr.whole())

    def _response(self, patience: Patience) -> v1.CallResponse:
        reads = only_reads(self._request.operation)
        repeatable = bool(self._request.request_id) or reads
        # An attempt was lost and may have been carried out.
        is_sent = False
        while True:
            try:
                response = self._streamed(patience)
                # A daemon that ends answers so to those who wait for a person; the next one goes on.
                if response.status != PENDING or not self._request.wait_for_approval:
                    return response
            except NoConnection as error:
                if self.telling:
                    raise
                pause = patience.pause() if repeatable and self._transport.is_lost(error) else None
                if pause is None:
                    raise self._transport.lost(error, self._request, retry_safe=reads) from None
                is_sent = is_sent or not error.retry_safe
                self._transport.reconnect(pause)
            except CofferdamError as error:
                if is_sent and not self.telling:
                    after_lost_attempt(error, repeatable=reads)
                raise
            if self._call_id:
                try:
                    return self._polled()
                except NotFound:
                    # It is in no record: it never began.
                    if self._stdout.next or self._stderr.next:
                        raise
                    self._call_id = ""
                except NoConnection as error:
                    if self.telling:
                        raise
                    # The question may be repeated, but the call has begun.
                    raise self._transport.lost(error, self._request, retry_safe=reads) from None

    def _streamed(self, patience: Patience) -> v1.CallResponse:
        response: v1.CallResponse | None = None
        with closing(self._client.tools.call_stream(self._request)) as events:
            # To its very end: a stream that is left before it costs a reset.
            for event in events:
                patience.restore()
                match event.WhichOneof("event"):
                    case "output":
                        output = event.output
                        if output.stream == v1.CallOutput.Stream.STDERR:
                            self._tell(self._on_stderr, self._stderr.take(output.offset, output.data))
                        else:
                            self._tell(self._on_stdout, self._stdout.take(output.offset, output.data))
                    case "result":
                        response = event.result
                    case "accepted":
                        self._call_id = event.accepted.call_id
        if response is None:
            raise DaemonUnreachable("the daemon ended the stream before the result")
        return response

    def _polled(self) -> v1.CallResponse:
        """By offset, until the call is over and all of its output is here."""
        pause = 0.02
        while True:
            request = v1.GetCallRequest(
                call_id=self._call_id,
                stdout_offset=self._stdout.next,
                stderr_offset=self._stderr.next,
                max_output_bytes=PIECE,
            )
            found = self._client.tools.get_call(request)
            self._tell(self._on_stdout, self._stdout.take(found.stdout.offset, found.stdout.data))
            self._tell(self._on_stderr, self._stderr.take(found.stderr.offset, found.stderr.data))
            if found.stdout.data or found.stderr.data:
                pause = 0.02
                continue
            status = found.call.status
            if status == PENDING and not self._request.wait_for_approval:
                return found.call
            if status not in (PENDING, RUNNING):
                return found.call
            sleep(pause)
            pause = min(pause * 1.5, 0.5)

    def _tell(self, callback: OutputCallback | None, text: str) -> None:
        if callback is not None and text:
            self.telling = True
            tell(callback, text)
            self.telling = False

    def _end(self) -> None:
        """Ends a call whose caller has gone, and a process that it has started."""
        tools, call_id = self._client.tools, self._call_id
        with suppress(CofferdamError):
            tools.cancel_call(v1.CancelCallRequest(call_id=call_id), timeout=CANCEL_TIMEOUT)
            if not self._request.operation.HasField("process"):
                return
            # One that is there already is not the call's any more.
            for _ in range(ENDINGS):
                if (tools.get_call(v1.GetCallRequest(call_id=call_id))).call.status != RUNNING:
                    break
                sleep(CANCEL_TIMEOUT / ENDINGS)
            number = v1.SignalProcessRequest.Signal.KILL
            kill = v1.SignalProcessRequest(run_id=self._request.run_id, process_id=call_id, signal=number)
            self._client.processes.signal_process(kill, timeout=CANCEL_TIMEOUT)


class Caller:
    """Makes calls of one run, all with the same options."""

    def __init__(self, client: Client, run_id: str, options: Options) -> None:
        self.client = client
        self.run_id = run_id
        self.options = options

    def call(
        self,
        operation: v1.Operation | None = None,
        dialect: v1.DialectCall | None = None,
        on_stdout: OutputCallback | None = None,
        on_stderr: OutputCallback | None = None,
    ) -> Outcome:
        """The outcome, also of a tool that failed. Raises for a refusal, and if the daemon is gone.

        The reviewer of another call may take longer than the call itself may wait. An approved call may find other files
        than its reviewer saw, because another one was first. It has done nothing then, and is made anew if its caller waits
        for people: consent to the present files is asked for.
        """
        request = v1.CallRequest(
            run_id=self.run_id,
            task_id=self.options.task_id,
            correlation_id=self.options.correlation_id,
            wait_for_approval=self.options.wait_for_approval,
            refuse_awaiting_approval=self.options.on_awaiting_approval == "raise",
            operation=operation,
            dialect=dialect,
        )
        # A call that only reads can be repeated as it is. The daemon knows any other by its id.
        if self.options.request_id or operation is None or not only_reads(operation):
            request.request_id = self.options.request_id or uuid.uuid4().hex
        elif not request.wait_for_approval:
            request.cancel_on_disconnect = True
            return Outcome(self.client._transport.unary(READ, request, READ_TIMEOUT), b"", b"")
        outcome = self._attempted(request, on_stdout, on_stderr)
        if outcome is None:
            # One at a time: each changes the files that the consent to the next one covers.
            with self.client._transport.turn(self.run_id):
                left = QUESTIONS
                while outcome is None:
                    left -= 1
                    request.request_id = uuid.uuid4().hex
                    outcome = self._attempted(request, on_stdout, on_stderr, last=left == 0)
        check_kept(outcome.response)
        return outcome

    def _attempted(
        self,
        request: v1.CallRequest,
        on_stdout: OutputCallback | None,
        on_stderr: OutputCallback | None,
        *,
        last: bool = False,
    ) -> Outcome | None:
        """The outcome. None: another call has changed the files that its reviewer saw, and it is not the `last` attempt.

        Attempts while a reviewer of another call is waited for count for rate limits. What these refuse is made later.
        """
        pauses = Pauses()
        waits = False
        while True:
            call = Call(self.client, request, on_stdout, on_stderr)
            try:
                outcome = call.outcome()
            except (AwaitingApproval, PreconditionFailed) as error:
                if call.telling or not self._is_anew(error.reason, error.details, last):
                    raise
                reason = error.reason
            except RateLimited as error:
                if call.telling or not waits or error.reason != LIMITED or error.retry_after is None:
                    raise
                sleep(max(pauses.next(), error.retry_after))
                request.request_id = uuid.uuid4().hex
                continue
            else:
                reason = outcome.response.error.reason
                if not self._is_anew(reason, outcome.response.error.details, last):
                    return outcome
            if reason != AWAITING:
                return None
            waits = True
            sleep(pauses.next())
            request.request_id = uuid.uuid4().hex

    def _is_anew(self, reason: str, details: Mapping[str, str], last: bool) -> bool:
        """Whether a call that ended so has done nothing, and is made anew."""
        return self.options.outlasts_reviewers and (reason == AWAITING or (is_void(details) and not last))

    def result(self, operation: v1.Operation, *, of_file: bool = False) -> v1.Result:
        """The result. Raises for a tool that failed, too."""
        response = (self.call(operation)).response
        succeeded(response, of_file=of_file)
        return response.result


def check_kept(response: v1.CallResponse) -> None:
    """Raises for a call that was made earlier, by the same request id, and whose result is there no longer."""
    if response.result_dropped:
        message = "the call was made before, and its result is no longer stored"
        raise NotFound(message, reason="RESULT_DROPPED", call_id=response.call_id, hint="It was not made again.")


def succeeded(response: v1.CallResponse, *, of_file: bool = False) -> None:
    """Raises unless it did."""
    if response.status == SUCCEEDED:
        return
    if response.status == PENDING:
        message = "a person has to approve this call; nothing has been done yet"
        raise ApprovalRequired(message, approval_id=response.approval_id, call_id=response.call_id)
    if response.status == RUNNING:
        raise Interrupted("the call is under way", call_id=response.call_id)
    raise failed(response, of_file=of_file)
