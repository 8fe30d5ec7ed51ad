# Generated from the asynchronous half by tools/unasync.py: change that half.
"""The choice of a node for a sandbox, and its making there: once, also when an answer is lost."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial

from cofferdam import _requests, v1
from cofferdam._fleet import FleetCreateOptions, draw, has_no_answer, home_of, is_away, was_refused
from cofferdam._node import node_of
from cofferdam._settings import Patience
from cofferdam._status import after_lost_attempt, lost, may_pass
from cofferdam._sync.member import Member
from cofferdam._sync.members import Members, none_answers, was_made
from cofferdam._sync.sandbox import ABANDONING_PAUSE, ABANDONINGS, Sandbox
from cofferdam._sync.transport import Lock, sleep, together
from cofferdam.errors import CofferdamError, DaemonUnreachable, NoConnection, NotFound, RateLimited


class Placing:
    """Gives each sandbox to the least loaded node that makes runs."""

    def __init__(self, members: Members, patience: float) -> None:
        self._members = members
        self._patience = patience
        self._looking = Lock()

    def create(self, request_id: str | None, issue_token: bool, options: FleetCreateOptions) -> Sandbox:
        """For `Fleet.create`."""
        workspace = options.get("workspace")
        home = None
        if (number := node_of(home_of(workspace))) is not None:
            home = self._members.at(number)
        name = request_id or f"fleet-{_requests.new_id()}"
        if request_id:
            found = self._members.holder(request_id)
            home = found[0] if found is not None and was_made(found[1]) else home
        passed_over: list[CofferdamError] = []
        tried: list[Member] = []
        while (member := self._chosen(home, request_id, tried)) is not None:
            tried.append(member)
            member.standing.begin()
            try:
                sandbox = self._created(member, name, options, abandons=not request_id)
            except CofferdamError as error:
                if not was_refused(error):
                    raise
                if isinstance(error, NoConnection):
                    member.failed(error)
                passed_over.append(error)
                continue
            finally:
                member.standing.end()
            if issue_token:
                self._with_token(sandbox, member, name, abandons=not request_id)
            return sandbox
        # A refusal says more than a node that is away.
        passed_over.sort(key=lambda error: isinstance(error, NoConnection))
        if passed_over:
            raise passed_over[0]
        failures = [member.failure for member in self._members.present]
        limited = [error for error in failures if isinstance(error, RateLimited)]
        raise limited[0] if limited else none_answers([member.label for member in self._members.present])

    def _chosen(self, home: Member | None, request_id: str | None, tried: Sequence[Member]) -> Member | None:
        """The node for the next attempt. None: there is none."""
        if home is not None:
            if home in tried:
                return None
            home.look()
            return home
        if request_id:
            # The same for all clients, and each node has just answered.
            left = [member for member in self._members.present if member not in tried]
            return min(left, key=lambda member: draw(member.number or 0, request_id), default=None)
        with self._looking:
            members = self._members.present
            for member in members:
                # Nobody waits for a node that did not answer before.
                if member.standing.is_due():
                    member.ask._transport.background(partial(looked, member))
            asked = [member for member in members if member.standing.is_stale]
            if all(member.standing.is_suspect for member in members):
                asked = members
            together([partial(looked, member) for member in asked])
        left = [member for member in self._members.present if member not in tried and not member.standing.is_suspect]
        return min(left, key=lambda member: member.standing.rank(), default=None)

    def _created(self, member: Member, name: str, options: FleetCreateOptions, *, abandons: bool) -> Sandbox:
        """Makes the sandbox at this node. Once an answer was lost, only the node itself can say that it has made none."""
        patience = Patience(self._patience)
        was_lost = False
        begun = time.monotonic()
        lease = _requests.renewed(options.get("lease"), keep_alive=options.get("keep_alive", False))
        given: FleetCreateOptions = {**options, "keep_alive": False}
        try:
            while True:
                try:
                    made = Sandbox.create(request_id=name, client=member.ask, **given)
                    break
                except CofferdamError as error:
                    if not has_no_answer(error):
                        if was_lost:
                            after_lost_attempt(error, repeatable=False)
                        raise
                    was_lost = was_lost or not error.retry_safe
                    if not was_lost:
                        raise
                    pause = patience.pause()
                    if pause is None:
                        away = DaemonUnreachable(f"{member.label} was lost, and may have the sandbox: {error.message}")
                        raise lost(away, name, retry_safe=False) from None
                    member.ask._transport.reconnect(pause)
        except BaseException as error:
            if abandons and (not isinstance(error, CofferdamError) or error._follows_lost_attempt):
                member.ask._transport.afterwards(partial(abandoned, member, name, self._patience))
            raise
        sandbox = Sandbox(
            member.client, made.run_id, made._options, owns_client=False, delete_workspace=made._delete_workspace
        )
        if lease is not None:
            sandbox._keeping.begin(member.ask, sandbox.run_id, lease, since=begun if abandons else None)
        return sandbox

    def _with_token(self, sandbox: Sandbox, member: Member, name: str, *, abandons: bool) -> None:
        try:
            sandbox.issue_token()
        except BaseException:
            # Its caller has no object that ends the renewing.
            sandbox._keeping.end()
            if abandons:
                member.ask._transport.afterwards(partial(abandoned, member, name, self._patience))
            raise


def looked(member: Member) -> None:
    """Has the facts of a node be fresh, or the node be suspect."""
    try:
        member.look()
    except CofferdamError as error:
        if not is_away(error):
            raise


def abandoned(member: Member, name: str, seconds: float) -> None:
    """Ends a run that nobody wants any more, and whose id nobody was told. A node that is away is asked for so long."""
    patience, left = Patience(seconds), ABANDONINGS
    request = v1.ListRunsRequest(request_id=name, page_size=1)
    while left > 0:
        # The daemon may not have begun with it.
        pause = ABANDONING_PAUSE
        try:
            page = member.ask.runs.list_runs(request, timeout=member.timeout)
            if page.runs:
                member.ask.runs.stop_run(v1.StopRunRequest(run_id=page.runs[0].run_id))
                return
            left -= 1
        except NotFound:
            left -= 1
        except CofferdamError as error:
            # Not now, such as without a log or a connection.
            again = patience.pause() if may_pass(error) else None
            if again is None:
                return
            pause = again
        sleep(pause)
