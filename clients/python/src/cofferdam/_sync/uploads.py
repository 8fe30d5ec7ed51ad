# Generated from the asynchronous half by tools/unasync.py: change that half.
"""A file or an archive on its way into a run.

```text
Upload… ──begin, data …──▶ answered ──▶ done, or a person is waited for
    │ lost
    ▼
GetUpload ──so many bytes──▶ Upload… from there
    │ none: the daemon was another, or it had all of them
    ▼
Upload… from the beginning: if a call was made of it, the daemon answers with that and takes no bytes
    │ that call was interrupted
    ▼
the file has this content? ──yes──▶ done
    └──no──▶ Upload… as another request
```
"""

import uuid
from collections.abc import Generator
from typing import TypeVar

from cofferdam import v1
from cofferdam._local import Source
from cofferdam._sync.caller import PENDING, RUNNING, Caller, succeeded
from cofferdam._sync.progress import Progress
from cofferdam._sync.transport import ProgressCallback, aside, sleep
from cofferdam.errors import AlreadyExists, ApprovalRequired, CofferdamError, DaemonUnreachable, Interrupted, NotFound

Answer = v1.UploadFileResponse | v1.UploadArchiveResponse
Message = TypeVar("Message", v1.UploadFileRequest, v1.UploadArchiveRequest)
# Seconds between looks at an upload that a stream or a call still uses.
PAUSE = 0.2


class Upload:
    """One upload. `begin` names its place; its run, its id and what it has are filled in."""

    def __init__(
        self,
        caller: Caller,
        begin: v1.BeginUpload,
        source: Source,
        *,
        archive: bool = False,
        progress: ProgressCallback | None = None,
    ) -> None:
        self._caller = caller
        self._transport = caller.client._transport
        self._rpc = caller.client.files
        self._source = source
        self._archive = archive
        self._progress = Progress(progress)
        self._begin = begin
        begin.run_id = caller.run_id
        begin.upload_id = str(uuid.uuid4())
        # Kept over all tries: nobody is asked twice, and nothing is written twice.
        begin.request_id = uuid.uuid4().hex
        begin.size_bytes = source.size
        begin.sha256 = source.sha256
        begin.wait_for_approval = caller.options.wait_for_approval
        begin.refuse_awaiting_approval = caller.options.on_awaiting_approval == "raise"

    def result(self) -> v1.WriteResult:
        """Sends it, over any number of connections, and returns when it has been written."""
        patience = self._transport.patience()
        while True:
            try:
                return self._written(self._sent())
            except DaemonUnreachable as error:
                lost = error is not self._progress.error and self._transport.is_lost(error)
                pause = patience.pause() if lost else None
                if pause is None:
                    # A try before this one may have been carried out.
                    raise (self._transport.lost(error, self._begin, retry_safe=False) if lost else error) from None
            except Interrupted as error:
                if error is self._progress.error:
                    raise
                # A try before this one made the call, and the daemon ended in its middle.
                if (written := self._found()) is not None:
                    return written
                self._begin.request_id = uuid.uuid4().hex
                self._begin_anew()
                continue
            self._transport.reconnect(pause)
            before = self._begin.offset
            received = self._received()
            if received is None:
                self._begin_anew()
            else:
                self._begin.offset = received
            if self._begin.offset > before:
                patience.restore()

    def _begin_anew(self) -> None:
        # A daemon that was killed may have left a file of the old id, which its call still needs.
        self._begin.upload_id, self._begin.offset = str(uuid.uuid4()), 0

    def _sent(self) -> Answer:
        if self._archive:
            return self._rpc.upload_archive(self._pieces(v1.UploadArchiveRequest))
        return self._rpc.upload_file(self._pieces(v1.UploadFileRequest))

    def _pieces(self, message: type[Message]) -> Generator[Message, None]:
        yield message(begin=self._begin)
        at = self._begin.offset
        while piece := aside(self._source.piece, at):
            yield message(data=piece)
            at += len(piece)
            self._progress.tell(at, self._source.size)

    def _written(self, answer: Answer) -> v1.WriteResult:
        if answer.HasField("result"):
            return answer.result
        if answer.approval_id and not self._caller.options.wait_for_approval:
            message = "a person has to approve this upload; its content is kept for it"
            raise ApprovalRequired(message, approval_id=answer.approval_id, call_id=answer.call_id)
        # A daemon that ends answers so to those who wait for a person; the next one goes on.
        pause = PAUSE
        while True:
            call = (self._caller.client.tools.get_call(v1.GetCallRequest(call_id=answer.call_id))).call
            if call.status not in (PENDING, RUNNING):
                succeeded(call)
                return call.result.write
            sleep(pause)
            pause = min(pause * 1.5, 1.0)

    def _received(self) -> int | None:
        """Bytes that the daemon has; None: it has nothing of it, or has written it."""
        request = v1.GetUploadRequest(run_id=self._caller.run_id, upload_id=self._begin.upload_id)
        while True:
            try:
                return (self._rpc.get_upload(request)).received_bytes
            except NotFound:
                return None
            except AlreadyExists:
                # The daemon has yet to miss the stream, or its call is under way.
                sleep(PAUSE)

    def _found(self) -> v1.WriteResult | None:
        """The file, if it has this content: then it was written before the daemon ended."""
        if self._archive:
            return None
        operation = v1.Operation(read=v1.ReadRequest(path=self._begin.path, limit=1))
        try:
            read = (self._caller.result(operation)).read
        except DaemonUnreachable:
            raise
        except CofferdamError:
            return None
        if read.sha256 != self._begin.sha256:
            return None
        return v1.WriteResult(
            path=read.path,
            bytes_written=read.size_bytes,
            sha256_after=read.sha256,
            sha256_before=self._begin.if_match_sha256,
        )
