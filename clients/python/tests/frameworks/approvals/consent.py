"""Calls that wait for a reviewer, and the books that are kept of them."""

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from daemon import Daemon
from reviewer import COMMENT

from cofferdam import Client, v1

# Seconds.
PATIENCE = 60.0
KINDS = ("approval_requested", "approval_decided", "call_intent", "call_receipt")


@dataclass(frozen=True)
class Batch:
    """Calls that a framework makes at once, each with a word of its own."""

    words: tuple[str, ...]
    #: The word of a call that the reviewer denies.
    denied: str | None
    #: Each leaves a trace for each time that it runs.
    writes: bool

    @classmethod
    def of(cls, size: int, *, deny: bool = False, how: str = "", writes: bool = True) -> "Batch":
        """`deny`: the last one is denied. `how`: see reviewer.py."""
        name = uuid.uuid4().hex[:8]
        words = [f"{name}-{number}-of-{size}{how}" for number in range(size)]
        if deny:
            words[-1] += "-deny"
        return cls(tuple(words), words[-1] if deny else None, writes)

    @property
    def commands(self) -> list[str]:
        """For a shell."""
        trace = " >> log; echo ran {}" if self.writes else " > /dev/null; echo ran {}"
        return [f"echo {word}{trace.format(word)}" for word in self.words]

    @property
    def approved(self) -> list[str]:
        return [word for word in self.words if word != self.denied]

    def check_log(self, log: str) -> None:
        """Each approved command has run once, and no other one."""
        assert sorted(log.split()) == sorted(self.approved)

    def check_answers(self, answers: list[str]) -> None:
        """Each call has an answer, in the order of the calls: its output, or the reviewer's words."""
        assert len(answers) == len(self.words), answers
        for word, answer in zip(self.words, answers, strict=True):
            if word == self.denied:
                assert COMMENT in answer, answer
                assert f"ran {word}" not in answer, answer
            else:
                assert f"ran {word}" in answer, answer


class Books:
    """The records of approvals and calls in a daemon's log."""

    def __init__(self, records: list[Mapping[str, Any]]) -> None:
        self.of_kind = {kind: [record for record in records if record["kind"] == kind] for kind in KINDS}

    @classmethod
    def of(cls, client: Client, run_id: str = "") -> "Books":
        """`run_id`: of this run alone."""
        asked = v1.StreamEventsRequest(filter=v1.EventFilter(kinds=KINDS, run_id=run_id))
        return cls([json.loads(told.event.record_json) for told in client.audit.stream_events(asked)])

    @property
    def states(self) -> dict[str, str]:
        """Of approvals, by their ids, as they were decided."""
        return {record["approval_id"]: record["details"]["state"] for record in self.of_kind["approval_decided"]}

    def refused_beside(self) -> list[Mapping[str, Any]]:
        """Receipts of calls that waited for a reviewer of another call as long as they could."""
        return [record for record in self.of_kind["call_receipt"] if record["outcome"].get("reason") == "AWAITING_APPROVAL"]

    def check(self) -> dict[str, str]:
        """Each approval was decided once, and its call has ended once and as it was decided.

        Returns the states of the approvals.
        """
        for kind, key in (("approval_requested", "approval_id"), ("approval_decided", "approval_id"), *CALLS):
            counts = Counter(record[key] for record in self.of_kind[kind])
            assert set(counts.values()) <= {1}, (kind, counts.most_common(1))
        requested = {record["approval_id"]: record["call_id"] for record in self.of_kind["approval_requested"]}
        assert requested.keys() == self.states.keys()
        intents, receipts = ({record["call_id"]: record for record in self.of_kind[kind]} for kind, _ in CALLS)
        assert intents.keys() == receipts.keys()
        for approval_id, call_id in requested.items():
            outcome = receipts[call_id]["outcome"]
            match self.states[approval_id]:
                case "APPROVED" if outcome["status"] == "denied":
                    # Another call has changed the files that the reviewer saw: asked about once more, by another call.
                    assert "has changed" in outcome["message"], outcome
                case "APPROVED":
                    assert outcome["status"] == "succeeded", outcome
                case "DENIED":
                    assert (outcome["status"], outcome["reason"]) == ("denied", "APPROVAL_DENIED"), outcome
                case state:
                    raise AssertionError(f"nobody decided on {approval_id}: {state}")
        return self.states


CALLS = (("call_intent", "call_id"), ("call_receipt", "call_id"))


class Review:
    """A reviewer at work, for one test."""

    def __init__(self, daemon: Daemon, token: str, client: Client) -> None:
        """`token`: the reviewer's. `client`: of somebody who may read the log."""
        self._client = client
        program = Path(__file__).with_name("reviewer.py")
        address = {"COFFERDAM_ENDPOINT": daemon.endpoint, "COFFERDAM_TOKEN": token}
        environment = {**os.environ, **address, "PYTHONPATH": os.pathsep.join(sys.path)}
        self._program = subprocess.Popen(
            [sys.executable, program], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def release(self) -> None:
        """Lets it decide on what it was to hold."""
        assert self._program.stdin is not None
        self._program.stdin.write("\n")
        self._program.stdin.flush()

    def wait_for(self, run_id: str, batch: Batch) -> None:
        """Until all calls of a batch wait for it."""
        end = time.monotonic() + PATIENCE
        request = v1.ListApprovalsRequest(run_id=run_id, state=v1.Approval.State.PENDING)
        while time.monotonic() < end:
            if len(self._client.approvals.list_approvals(request).approvals) == len(batch.words):
                return
            time.sleep(0.05)
        raise AssertionError("they do not wait")

    def wait_for_refusal(self, run_id: str) -> None:
        """Until a call has waited for a reviewer of another call as long as it could."""
        end = time.monotonic() + PATIENCE
        while not Books.of(self._client, run_id).refused_beside():
            assert time.monotonic() < end, "no call waited too long"
            time.sleep(0.1)

    def __enter__(self) -> "Review":
        return self

    def __exit__(self, *error: object) -> None:
        self._program.kill()
        self._program.communicate(timeout=PATIENCE)

    def stop(self) -> list[dict[str, Any]]:
        """Its decisions."""
        self._program.terminate()
        written, _ = self._program.communicate(timeout=PATIENCE)
        assert self._program.returncode == -signal.SIGTERM, "the reviewer has given up: its own error says why"
        return [cast(dict[str, Any], json.loads(line)) for line in written.splitlines()]

    def check(self, *batches: Batch, profile: str = "build", rounds: bool = False) -> None:
        """All that these batches asked for was shown to the reviewer, all calls of a batch at once, and done as decided.

        It is the one run of the test. The first call that is made changes the files that the others cover. Each of these is
        asked about once more, or with `rounds` together with all that are left.
        """
        decisions = self.stop()
        (run_id,) = {decision["run_id"] for decision in decisions}
        books = Books.of(self._client, run_id)
        states = books.check()
        assert {decision["approval_id"]: decision["state"] for decision in decisions} == states
        calls = {record["approval_id"]: record["call_id"] for record in books.of_kind["approval_requested"]}
        assert {decision["approval_id"]: decision["call_id"] for decision in decisions} == calls
        assert {decision["profile"] for decision in decisions} <= {profile}
        inputs = {record["call_id"]: json.dumps(record["input"]) for record in books.of_kind["call_intent"]}
        ended = {record["call_id"]: record["outcome"]["status"] for record in books.of_kind["call_receipt"]}
        assert {decision["word"] for decision in decisions} - {None} == {word for batch in batches for word in batch.words}
        for batch in batches:
            for word in batch.words:
                shown = [decision for decision in decisions if decision["word"] == word]
                assert all(decision["together"] >= len(batch.words) for decision in shown), shown
                # The calls that were recorded are those that the reviewer saw, and one of them was made.
                assert all(word in inputs[decision["call_id"]] for decision in shown)
                made = [ended[decision["call_id"]] for decision in shown].count("succeeded")
                assert made == (0 if word == batch.denied else 1), shown
            left = max(len(batch.approved) - 1, 0) if batch.writes else 0
            again = sum(decision["word"] in batch.words for decision in decisions) - len(batch.words)
            assert again <= (left * (left + 1) // 2 if rounds else left)
