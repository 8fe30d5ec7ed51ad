"""A fleet of three nodes that are stand-ins: one that is away, full, drained, or lost in the middle of an answer."""

import asyncio
import base64
import json
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import grpc
import pytest
from daemon import Daemon
from google.protobuf.timestamp_pb2 import Timestamp
from nodes import Node, Refused, id_of, stamp

from cofferdam import (
    AsyncFleet,
    Base,
    Cancelled,
    Client,
    DaemonTimedOut,
    DaemonUnreachable,
    Denied,
    Fleet,
    FleetEvent,
    FleetNode,
    InfrastructureError,
    InvalidArgument,
    NodeInfo,
    NodeLostError,
    NotFound,
    Overloaded,
    RateLimited,
    Sandbox,
    Unavailable,
    v1,
)
from cofferdam._async.members import resolved
from cofferdam._fleet import FLEET_VARIABLE, Mark, Position, draw, named, read
from cofferdam._node import node_of
from cofferdam._settings import CHANNEL_OPTIONS
from cofferdam._sync import merge
from cofferdam._sync.merge import Clock
from cofferdam._sync.transport import Background

# Seconds, with a margin for a busy machine: less than a fleet here waits for a node that it asks, or that was lost.
IN_TIME = 15.0
NODE_TIMEOUT = 20.0
PATIENCE = 30.0


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[list[Node]]:
    made = [Node(tmp_path, number) for number in (1, 2, 3)]
    yield made
    for node in made:
        node.remove()


@pytest.fixture
def fleet(nodes: list[Node]) -> Iterator[Fleet]:
    with opened(nodes) as it:
        yield it


def opened(nodes: list[Node], patience: float = PATIENCE, node_timeout: float = NODE_TIMEOUT) -> Fleet:
    return Fleet.open([node.listed for node in nodes], node_timeout=node_timeout, reconnect_timeout=patience)


def made_by(nodes: list[Node]) -> list[int]:
    return [node.created for node in nodes]


def await_renewals(node: Node, number: int) -> None:
    until = time.monotonic() + 10
    while node.renewals < number:
        assert time.monotonic() < until
        time.sleep(0.01)


def an_hour_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets the clock forward. Pauses take as long as before."""
    now = time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: now() + 3600)


def lose(fleet: Fleet, node: Node) -> None:
    """Kills it, and waits until the fleet knows no connection to it: what is sent on one may have been carried out."""
    node.kill()
    (member,) = (member for member in fleet._members.present if member.number == node.number)
    is_unsent = False
    while not is_unsent:
        with pytest.raises(DaemonUnreachable) as caught:
            next(member.ask.runs.watch_runs(v1.WatchRunsRequest()))
        is_unsent = caught.value.retry_safe


def await_all(fleet: Fleet) -> None:
    """Until each node answers."""
    until = time.monotonic() + 10
    while fleet.list_runs().missing:
        assert time.monotonic() < until
        time.sleep(0.05)


def lives(work: Background) -> bool:
    return work.lives


# Lists.


def test_a_list_has_what_all_nodes_have_by_time(fleet: Fleet, nodes: list[Node]) -> None:
    for at, second in enumerate((5, 3, 4, 1, 2)):
        node = nodes[at % 3]
        node.runs[f"r{at}"] = v1.Run(run_id=id_of(node.number, at), created_at=stamp(second), labels={"at": str(at)})
        node.approvals.append(v1.Approval(approval_id=f"p{at}", created_at=stamp(second), state=v1.Approval.PENDING))
        node.alerts.append(v1.Alert(alert_id=f"a{at}", raised_at=stamp(second), severity=v1.Alert.HIGH))
    runs = fleet.list_runs()
    assert [(one.node, one.item.metadata["at"]) for one in runs] == [(1, "0"), (3, "2"), (2, "1"), (2, "4"), (1, "3")]
    assert [one.item.metadata["at"] for one in fleet.list_runs(metadata={"at": "4"})] == ["4"]
    assert [one.item.approval_id for one in fleet.approvals()] == ["p3", "p4", "p1", "p2", "p0"]
    alerts = fleet.alerts()
    assert [one.item.alert_id for one in alerts] == ["a0", "a2", "a1", "a4", "a3"]
    assert (alerts[0].item.severity, alerts[0].item.state, alerts.missing) == ("high", "", ())


def test_a_node_of_a_newer_release_fails_no_list(fleet: Fleet, nodes: list[Node]) -> None:
    newer: Any = 99
    nodes[0].runs["x"] = v1.Run(run_id=id_of(1, 1), start_kind=newer, holds=[v1.RunHold(kind=newer)])
    nodes[0].alerts.append(v1.Alert(alert_id="a", severity=newer))
    (run,), (alert,) = fleet.list_runs(), fleet.alerts()
    assert (run.item.start, run.item.holds, alert.item.severity) == ("", ("",), "")


def test_a_dead_node_is_a_warning_and_a_dead_fleet_an_error(fleet: Fleet, nodes: list[Node]) -> None:
    assert len(fleet.list_runs().missing) == 0
    nodes[1].kill()
    runs = fleet.list_runs()
    assert [(node.node, node.state) for node in runs.missing] == [(2, "unreachable")]
    assert [node.state for node in fleet.nodes()] == ["serving", "unreachable", "serving"]
    for node in nodes:
        node.kill()
    with pytest.raises(DaemonUnreachable, match="no node of the fleet answers"):
        fleet.approvals()
    assert [node.state for node in fleet.nodes()] == ["unreachable"] * 3


@pytest.mark.parametrize("reason", ["OVERLOADED", "RATE_LIMITED", "INTERNAL", "AUDIT_UNAVAILABLE"])
def test_a_node_that_cannot_answer_now_is_a_warning(fleet: Fleet, nodes: list[Node], reason: str) -> None:
    nodes[1].refuses_lists = reason
    runs = fleet.list_runs()
    assert [(node.node, node.failure) for node in runs.missing] == [(2, f"refused: {reason}")]
    # It is at its address, and is not looked for at others.
    assert not any(member.is_missed for member in fleet._members.present)
    nodes[1].kill()
    assert [node.node for node in fleet.list_runs().missing] == [2]
    assert [member.number for member in fleet._members.present if member.is_missed] == [2]


def test_a_limit_of_all_nodes_is_no_failure_of_them(fleet: Fleet, nodes: list[Node]) -> None:
    for node in nodes:
        node.refuses_lists = "RATE_LIMITED"
    with pytest.raises(RateLimited):
        fleet.list_runs()
    for node in nodes:
        node.refuses_looks = "OVERLOADED"
    with pytest.raises(Overloaded):
        fleet.create(profile="p")
    nodes[1].refuses_looks = ""
    assert node_of(fleet.create(profile="p").run_id) == 2


def test_a_daemon_that_hangs_ends_no_stream_later_than_its_signs_of_life(
    nodes: list[Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    # An answer to a ping may take three seconds, as the node is of this process, too.
    brief = {"grpc.keepalive_time_ms": 1000, "grpc.keepalive_timeout_ms": 3000, "grpc.http2.ping_timeout_ms": 3000}
    assert brief.keys() <= dict(CHANNEL_OPTIONS).keys()
    monkeypatch.setattr("cofferdam._settings.CHANNEL_OPTIONS", list({**dict(CHANNEL_OPTIONS), **brief}.items()))
    nodes[0].runs["r"] = v1.Run(run_id=id_of(1, 1))
    with Client(nodes[0].socket) as client, closing(client.runs.watch_runs(v1.WatchRunsRequest())) as stream:
        next(stream)
        nodes[0].mute()
        begun = time.monotonic()
        with pytest.raises(DaemonUnreachable):
            next(stream)
        assert time.monotonic() - begun < IN_TIME


def test_a_request_that_is_not_answered_in_time_is_a_failure_of_the_infrastructure(nodes: list[Node]) -> None:
    nodes[0].silent_for = 60.0
    with Client(nodes[0].socket, request_timeout=0.2) as client, pytest.raises(DaemonTimedOut) as late:
        client.runs.list_runs(v1.ListRunsRequest())
    assert isinstance(late.value, InfrastructureError)
    assert (late.value.fault, late.value.retry_safe) == ("infrastructure", False)


def test_a_silent_node_costs_its_time_once(nodes: list[Node]) -> None:
    nodes[0].silent_for = nodes[2].silent_for = 60.0
    with opened(nodes, node_timeout=4.0) as fleet:
        begun = time.monotonic()
        runs = fleet.list_runs()
        assert time.monotonic() - begun < 2 * 4.0
    assert [node.node for node in runs.missing] == [1, 3]
    assert "does not answer within 4 seconds" in runs.missing[0].failure


def test_a_node_that_says_another_number_is_not_used(fleet: Fleet, nodes: list[Node]) -> None:
    nodes[1].says = 7
    nodes[1].runs["x"] = v1.Run(run_id=id_of(7, 1))
    runs = fleet.list_runs()
    assert (len(runs), [node.node for node in runs.missing]) == (0, [2])
    assert [(node.node, node.state) for node in fleet.nodes()] == [(1, "serving"), (2, "unreachable"), (3, "serving")]
    assert "refused: WRONG_NODE" in fleet.nodes()[1].failure
    for _ in range(4):
        fleet.create(profile="p")
    assert nodes[1].created == 0


def test_nodes_without_numbers_say_theirs_and_two_addresses_of_one_count_once(nodes: list[Node]) -> None:
    listed = [FleetNode(None, node.socket) for node in (nodes[0], nodes[1], nodes[0])]
    nodes[1].runs["x"] = v1.Run(run_id=id_of(2, 1))
    with Fleet.open(listed) as fleet:
        assert [one.node for one in fleet.list_runs()] == [2]
        assert sorted(node.node or 0 for node in fleet.nodes()) == [1, 2]
        assert fleet.sandbox(nodes[1].runs["x"].run_id).client.endpoint == nodes[1].socket


def test_a_daemon_that_says_the_number_of_another_is_no_second_address(nodes: list[Node]) -> None:
    nodes[2].says = 2
    with Fleet.open([FleetNode(None, node.socket) for node in nodes]) as fleet:
        found = fleet.list_runs()
        (refused,) = found.missing
        assert refused.node is None
        assert "says that it is node 2, as another daemon at" in refused.failure
        # Which of them answers first is chance, and no other one takes its place while it answers.
        first = {node.node: node.endpoint for node in fleet.nodes()}
        assert {first[2], refused.endpoint} == {nodes[1].socket, nodes[2].socket}
        assert {node.node: node.endpoint for node in fleet.nodes()} == first


def test_a_daemon_that_says_a_listed_number_is_held_against_the_listed_node_first(nodes: list[Node]) -> None:
    nodes[1].silent_for = 0.3
    nodes[1].runs["x"] = v1.Run(run_id=id_of(2, 1))
    with Fleet.open([nodes[1].listed, FleetNode(None, nodes[1].socket)]) as fleet:
        # A second address, although a list alone does not ask the node with the number about itself.
        found = fleet.list_runs()
        assert ([one.node for one in found], found.missing) == ([2], ())
    nodes[2].says = 2
    listed = [nodes[1].listed, FleetNode(None, nodes[2].socket)]
    with Fleet.open(listed) as fleet:
        found = fleet.list_runs()
        assert ([one.node for one in found], [node.endpoint for node in found.missing]) == ([2], [nodes[2].socket])
        assert "says that it is node 2, as another daemon at" in found.missing[0].failure
    nodes[1].silent_for = 0.0
    nodes[1].kill()
    nodes[2].runs["y"] = v1.Run(run_id=id_of(2, 2))
    with Fleet.open([*listed, nodes[0].listed]) as fleet:
        found = fleet.list_runs()
        assert (len(found), [node.endpoint for node in found.missing]) == (0, [nodes[1].socket, nodes[2].socket])
        assert "and that has not answered" in found.missing[1].failure


# Sandboxes.


def test_a_sandbox_is_found_on_the_node_that_its_id_names(fleet: Fleet, nodes: list[Node]) -> None:
    run_id, nameless = id_of(2, 1), "0198a1b2-0000-4000-8000-000000000001"
    nodes[1].runs["x"] = v1.Run(run_id=run_id)
    nodes[2].runs["y"] = v1.Run(run_id=nameless)
    nodes[0].kill()
    assert fleet.sandbox(run_id).client.endpoint == nodes[1].socket
    assert fleet.sandbox(nameless).client.endpoint == nodes[2].socket
    with pytest.raises(NotFound, match="node 9"):
        fleet.sandbox(id_of(9, 1))
    with pytest.raises(DaemonUnreachable):
        fleet.sandbox(id_of(1, 1))
    with pytest.raises(DaemonUnreachable, match="no node that answers has the run"):
        fleet.sandbox("0198a1b2-0000-4000-8000-00000000000f")
    nodes[0].start()
    await_all(fleet)
    with pytest.raises(NotFound):
        fleet.sandbox("0198a1b2-0000-4000-8000-00000000000f")


def test_the_least_loaded_node_gets_the_next_sandbox(fleet: Fleet, nodes: list[Node]) -> None:
    nodes[0].used_runs, nodes[1].used_runs = 50, 52
    nodes[2].state = v1.Node.State.DRAINING
    for _ in range(6):
        fleet.create(profile="p")
    assert made_by(nodes) == [4, 2, 0]


def test_weights_divide_sandboxes(nodes: list[Node]) -> None:
    listed = [FleetNode(node.number, node.socket, weight=weight) for node, weight in zip(nodes, (2, 1, 1), strict=True)]
    with Fleet.open(listed) as fleet:
        for _ in range(8):
            fleet.create(profile="p")
    assert made_by(nodes) == [4, 2, 2]


def test_many_at_once_are_spread(fleet: Fleet, nodes: list[Node]) -> None:
    with ThreadPoolExecutor(30) as pool:
        made = list(pool.map(lambda _: fleet.create(profile="p").run_id, range(30)))
    assert len(set(made)) == 30
    assert all(5 <= number <= 15 for number in made_by(nodes))


@pytest.mark.parametrize("reason", ["OVERLOADED", "NODE_DRAINED", "IMAGE_MISSING"])
def test_a_node_that_refuses_is_passed_over(fleet: Fleet, nodes: list[Node], reason: str) -> None:
    nodes[0].refuses = nodes[1].refuses = reason
    nodes[2].used_runs = 90
    assert fleet.create(profile="p").client.endpoint == nodes[2].socket
    nodes[2].refuses = "OVERLOADED"
    lose(fleet, nodes[0])
    lose(fleet, nodes[1])
    with pytest.raises(Overloaded):
        fleet.create(profile="p")


def test_a_refusal_that_another_node_would_repeat_is_the_answer(fleet: Fleet, nodes: list[Node]) -> None:
    for node in nodes:
        node.refuses = "INVALID_ARGUMENT"
    with pytest.raises(InvalidArgument):
        fleet.create(profile="p")


def test_a_dead_node_is_passed_over_in_time(fleet: Fleet, nodes: list[Node]) -> None:
    for _ in range(3):
        fleet.create(profile="p")
    lose(fleet, nodes[0])
    longest = 0.0
    for _ in range(20):
        begun = time.monotonic()
        fleet.create(profile="p")
        longest = max(longest, time.monotonic() - begun)
    assert longest < IN_TIME
    assert sum(made_by(nodes)) == 23
    lose(fleet, nodes[1])
    lose(fleet, nodes[2])
    with pytest.raises(DaemonUnreachable):
        fleet.create(profile="p")


def test_a_silent_node_costs_one_create_its_time(nodes: list[Node]) -> None:
    nodes[0].silent_for = 60.0
    with opened(nodes, node_timeout=4.0) as fleet:
        begun = time.monotonic()
        fleet.create(profile="p")
        assert time.monotonic() - begun < 2 * 4.0
        asked, longest, left = nodes[0].looks, 0.0, 10
        # Also while it is asked again.
        while left > 0:
            left -= nodes[0].looks > asked
            before = time.monotonic()
            fleet.create(profile="p")
            longest = max(longest, time.monotonic() - before)
            time.sleep(0.05)
        assert longest < 4.0
        nodes[0].silent_for = 0.0
        made = nodes[0].created
        until = time.monotonic() + 30
        while nodes[0].created == made and time.monotonic() < until:
            fleet.create(profile="p")
            time.sleep(0.1)
        assert nodes[0].created > made


def test_a_create_whose_answer_was_lost_is_one_run_when_its_node_is_back(
    fleet: Fleet, nodes: list[Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes[1].used_runs = nodes[2].used_runs = 90

    def die() -> None:
        an_hour_passes(monkeypatch)
        nodes[0].kill()
        restart.start()

    nodes[0].before_answer = die

    def back() -> None:
        time.sleep(0.7)
        nodes[0].before_answer = lambda: None
        nodes[0].start()

    restart = threading.Thread(target=back)
    sandbox = fleet.create(profile="p", lease=3600, keep_alive=True, issue_token=True)
    restart.join()
    # All of its lease may be over.
    await_renewals(nodes[0], 1)
    assert made_by(nodes) == [1, 0, 0]
    assert [run.run_id for run in nodes[0].runs.values()] == [sandbox.run_id]
    assert sandbox.token == "token-1"


def test_a_repetition_that_is_refused_goes_to_no_other_node(fleet: Fleet, nodes: list[Node]) -> None:
    nodes[1].used_runs = nodes[2].used_runs = 90

    def die() -> None:
        nodes[0].kill()
        restart.start()

    nodes[0].before_answer = die

    def refuse() -> None:
        raise Refused("NODE_DRAINED", grpc.StatusCode.UNAVAILABLE)

    def back() -> None:
        time.sleep(0.7)
        nodes[0].before_answer = refuse
        nodes[0].start()

    restart = threading.Thread(target=back)
    with pytest.raises(Unavailable) as refused:
        fleet.create(profile="p")
    restart.join()
    assert not refused.value.retry_safe
    assert made_by(nodes) == [1, 0, 0]
    assert nodes[0].stopped == [run.run_id for run in nodes[0].runs.values()]


def test_a_create_whose_node_stays_away_is_found_later_and_never_made_twice(nodes: list[Node]) -> None:
    nodes[1].used_runs = nodes[2].used_runs = 90
    nodes[0].before_answer = nodes[0].kill
    with opened(nodes, patience=0.3) as fleet:
        with pytest.raises(NodeLostError, match="may have the sandbox") as lost:
            fleet.create(profile="p")
        name = lost.value.request_id
        assert name is not None
        assert not lost.value.retry_safe
        with pytest.raises(NodeLostError) as unknown:
            fleet.create(profile="p", request_id=name)
        assert unknown.value.request_id == name
        with pytest.raises(NodeLostError):
            fleet.find(name)
        nodes[0].before_answer = lambda: None
        nodes[0].start()
        await_all(fleet)
        found = fleet.find(name)
        assert found is not None
        assert fleet.create(profile="p", request_id=name).run_id == found.run_id
    assert made_by(nodes) == [1, 0, 0]


def test_a_name_is_one_sandbox_in_the_whole_fleet(fleet: Fleet, nodes: list[Node]) -> None:
    with opened(nodes) as another:
        fleets = [fleet, another] * 5
        with ThreadPoolExecutor(10) as pool:
            made = list(pool.map(lambda one: one.create(profile="p", request_id="mine").run_id, fleets))
    assert len(set(made)) == 1
    assert sum(made_by(nodes)) == 1
    # Also if it is on a node that the name would not choose.
    away = max(nodes, key=lambda node: draw(node.number, "other"))
    away.runs["other"] = v1.Run(run_id=id_of(away.number, 9))
    assert fleet.create(profile="p", request_id="other").run_id == away.runs["other"].run_id
    assert fleet.find("none") is None


def test_a_node_that_failed_to_make_a_run_does_not_hide_the_run_of_the_next(fleet: Fleet, nodes: list[Node]) -> None:
    first = min(nodes, key=lambda node: draw(node.number, "mine"))
    first.runs["mine"] = v1.Run(run_id=id_of(first.number, 9), state=v1.Run.State.FAILED)
    failed = fleet.find("mine")
    assert failed is not None
    assert failed.run_id == first.runs["mine"].run_id
    first.refuses_again = True
    made = fleet.create(profile="p", request_id="mine")
    assert made.client.endpoint != first.socket
    found = fleet.find("mine")
    assert found is not None
    assert found.run_id == made.run_id == fleet.create(profile="p", request_id="mine").run_id
    assert sum(made_by(nodes)) == 1


def test_a_lease_is_renewed_at_once_only_of_a_run_that_was_found_and_until_its_end(fleet: Fleet, nodes: list[Node]) -> None:
    nodes[1].used_runs = nodes[2].used_runs = 90
    fleet.create(profile="p", lease=3600, keep_alive=True)
    nodes[0].runs["mine"] = v1.Run(run_id=id_of(1, 9))
    fleet.create(profile="p", request_id="mine", lease=3600, keep_alive=True)
    await_renewals(nodes[0], 1)
    passing = ["DAEMON_STOPPING", "AUDIT_UNAVAILABLE", "RATE_LIMITED", "OVERLOADED", "INTERNAL", "TIMED_OUT"]
    nodes[0].refused_renewals = [*passing, "RUN_NOT_READY"]
    sandbox = fleet.create(profile="p", lease=0.3, keep_alive=True)
    await_renewals(nodes[0], 1 + len(passing) + 1)
    assert sandbox._keeping._work is not None
    assert sandbox._keeping._work.wait(IN_TIME)
    assert nodes[0].renewals == 1 + len(passing) + 1
    with pytest.raises(InvalidArgument, match="lease"):
        fleet.create(profile="p", keep_alive=True)


def test_a_lease_that_began_a_while_before_the_answer_is_renewed_at_once(
    fleet: Fleet, nodes: list[Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes[1].used_runs = nodes[2].used_runs = 90
    with Client(nodes[0].socket) as client:
        # Made within a third of its lease.
        Sandbox.create(profile="p", lease=3600, keep_alive=True, client=client)
        nodes[0].before_answer = lambda: an_hour_passes(monkeypatch)
        late = Sandbox.create(profile="p", lease=3600, keep_alive=True, client=client)
        await_renewals(nodes[0], 1)
        late_too = fleet.create(profile="p", lease=3600, keep_alive=True)
        await_renewals(nodes[0], 2)
        assert nodes[0].renewed == [late.run_id, late_too.run_id]
    with Client(nodes[1].socket) as client:
        # The first of them may have been ready for long.
        assert len(client.fork("c", 3, keep_alive=True)) == 3
        await_renewals(nodes[1], 3)


def test_a_sandbox_that_nobody_was_given_is_not_kept_alive(fleet: Fleet, nodes: list[Node]) -> None:
    for node in nodes:
        node.refuses_tokens = True
    with pytest.raises(Unavailable):
        fleet.create(profile="p", request_id="mine", lease=3600, keep_alive=True, issue_token=True)
    assert not [work for member in fleet._members.present for work in member.ask._transport._backgrounds if lives(work)]
    assert sum(made_by(nodes)) == 1
    assert not any(node.stopped for node in nodes)


def test_what_begins_with_a_base_goes_to_its_node(fleet: Fleet, nodes: list[Node]) -> None:
    nodes[1].used_runs = 99
    fleet.create(profile="p", workspace=Base(id_of(2, 1)))
    assert made_by(nodes) == [0, 1, 0]
    with pytest.raises(NotFound, match="node 9"):
        fleet.create(profile="p", workspace=Base(id_of(9, 1)))
    nodes[1].kill()
    with pytest.raises(DaemonUnreachable):
        fleet.create(profile="p", workspace=Base(id_of(2, 1)))
    assert made_by(nodes) == [0, 1, 0]


def test_a_create_that_is_cancelled_leaves_no_run(nodes: list[Node]) -> None:
    nodes[1].used_runs = nodes[2].used_runs = 90
    created, cancelled = threading.Event(), threading.Event()

    def late() -> None:
        created.set()
        cancelled.wait(IN_TIME)

    nodes[0].before_answer = late

    async def cancel() -> None:
        async with await AsyncFleet.open([node.listed for node in nodes]) as fleet:
            making = asyncio.create_task(fleet.create(profile="p"))
            await asyncio.to_thread(created.wait)
            making.cancel()
            cancelled.set()
            with pytest.raises(asyncio.CancelledError):
                await making

    asyncio.run(cancel())
    assert nodes[0].stopped == [run.run_id for run in nodes[0].runs.values()]


def test_a_create_that_is_cancelled_while_its_node_is_away_leaves_no_run(nodes: list[Node]) -> None:
    nodes[1].used_runs = nodes[2].used_runs = 90
    lost = threading.Event()

    def lose() -> None:
        nodes[0].kill()
        lost.set()

    nodes[0].before_answer = lose

    async def cancel() -> None:
        async with await AsyncFleet.open([node.listed for node in nodes]) as fleet:
            making = asyncio.create_task(fleet.create(profile="p"))
            await asyncio.to_thread(lost.wait)
            making.cancel()
            with pytest.raises(asyncio.CancelledError):
                await making
            await asyncio.sleep(0.5)
            nodes[0].start()

    asyncio.run(cancel())
    assert len(nodes[0].runs) == 1
    assert nodes[0].stopped == [run.run_id for run in nodes[0].runs.values()]


@pytest.mark.parametrize("creates", [100])
def test_a_node_that_dies_meanwhile_loses_no_create_and_doubles_none(nodes: list[Node], creates: int) -> None:
    for node in nodes:
        node.before_answer = lambda: time.sleep(0.01)
    begun = threading.Event()

    def die() -> None:
        begun.wait()
        nodes[1].kill()
        time.sleep(0.5)
        nodes[1].start()

    async def make() -> list[str]:
        async with await AsyncFleet.open([node.listed for node in nodes], node_timeout=NODE_TIMEOUT) as fleet:
            turns = asyncio.Semaphore(20)

            async def one(at: int) -> str:
                async with turns:
                    if at == creates // 4:
                        begun.set()
                    return (await fleet.create(profile="p")).run_id

            return await asyncio.gather(*(one(at) for at in range(creates)))

    killer = threading.Thread(target=die)
    killer.start()
    made = asyncio.run(make())
    killer.join()
    kept = [run.run_id for node in nodes for run in node.runs.values()]
    assert sorted(made) == sorted(kept)
    assert len(set(kept)) == creates


# Streams.


def seen(events: list[FleetEvent]) -> list[tuple[int, int]]:
    return [(event.node, event.event.sequence) for event in events]


def test_events_come_by_time_and_go_on_at_a_position(fleet: Fleet, nodes: list[Node]) -> None:
    for second in range(1, 301):
        nodes[second % 3].record(second)
    events = list(fleet.watch_events(follow=False))
    assert [event.event.time.timestamp() for event in events] == list(range(1, 301))
    for at in (0, 7, 150, 298):
        assert seen(list(fleet.watch_events(events[at].position, follow=False))) == seen(events[at + 1 :])
    assert list(fleet.watch_events(events[-1].position, follow=False)) == []


def test_another_log_and_a_shorter_one_are_read_from_their_beginning(fleet: Fleet, nodes: list[Node]) -> None:
    for second in range(1, 7):
        nodes[second % 3].record(second)
    last = list(fleet.watch_events(follow=False))[-1].position
    nodes[0].log, nodes[0].events = "a" * 32, []
    for second in (100, 101, 102):
        nodes[0].record(second)
    del nodes[1].events[1:]
    assert seen(list(fleet.watch_events(last, follow=False))) == [(2, 1), (1, 1), (1, 2), (1, 3)]


def test_a_stream_goes_on_when_a_node_is_back_and_tells_of_it(fleet: Fleet, nodes: list[Node]) -> None:
    for node in nodes:
        for at in range(3):
            node.record(at)
    told: list[NodeInfo] = []
    events: list[FleetEvent] = []
    with closing(fleet.watch_events(on_node=told.append)) as stream:
        events.extend(next(stream) for _ in range(9))
        nodes[1].kill()
        nodes[0].record(time.time())
        events.append(next(stream))
        nodes[1].record(time.time())
        nodes[1].start()
        events.append(next(stream))
        nodes[2].record(time.time())
        events.append(next(stream))
    assert seen(events)[9:] == [(1, 4), (2, 4), (3, 4)]
    assert Counter(seen(events)).most_common(1)[0][1] == 1
    assert [(node.node, node.state) for node in told] == [(2, "unreachable"), (2, "serving")]
    # The position has the node that was away, too.
    assert list(fleet.watch_events(events[-1].position, follow=False)) == []


def test_events_of_now_are_put_in_order(fleet: Fleet, nodes: list[Node], monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(fleet.watch_events()) as stream:
        for node in nodes:
            node.record(1)
        first = [next(stream) for _ in nodes]
        assert sorted(seen(first)) == [(1, 1), (2, 1), (3, 1)]
        # The second record may take a busy machine longer.
        with monkeypatch.context() as patched:
            patched.setattr(merge, "HOLD", 3.0)
            now = time.time()
            nodes[2].record(now + 0.02)
            time.sleep(0.05)
            # It was written before, and comes later.
            nodes[0].record(now)
            assert seen([next(stream)]) == [(1, 2)]
        assert seen([next(stream)]) == [(3, 2)]


def test_a_node_that_always_sends_earlier_records_hides_none_of_others(
    fleet: Fleet, nodes: list[Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merge, "LONGEST_WAIT", 0.2)
    nodes[0].floods = True
    for at in range(50):
        nodes[1].record(1_000_000_000 + at)
    others: list[int] = []
    with closing(fleet.watch_events()) as stream:
        until = time.monotonic() + 20
        while len(others) < 50:
            assert time.monotonic() < until
            event = next(stream)
            if event.node != 1:
                others.append(event.event.sequence)
    assert others == list(range(1, 51))


def test_the_time_of_its_taker_is_none_that_an_item_waits() -> None:
    clock, since = Clock(), time.monotonic()
    begun = clock.now()
    for _ in range(2):
        clock.leave()
        left = clock.now()
        time.sleep(0.2)
        assert clock.now() == left
        clock.back()
    # Both pauses are missing in it.
    assert clock.now() - begun < time.monotonic() - since - 0.3
    begun = clock.now()
    time.sleep(0.2)
    assert clock.now() >= begun + 0.2


@pytest.mark.parametrize("follow", [False, True])
def test_a_fleet_that_is_closed_ends_the_streams_of_other_threads(nodes: list[Node], follow: bool) -> None:
    nodes[0].record(1)
    # Without an end, so that a stream that does not follow waits for it.
    nodes[2].hangs = True
    fleet = opened(nodes)
    ends: list[BaseException] = []

    def read() -> None:
        with closing(fleet.watch_events(follow=follow)) as stream:
            try:
                list(stream)
            except Exception as error:
                ends.append(error)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    until = time.monotonic() + IN_TIME
    while not nodes[2].streams:
        assert time.monotonic() < until
        time.sleep(0.01)
    fleet.close()
    reader.join(IN_TIME)
    assert [type(error) for error in ends] == [Cancelled]


def test_a_fleet_is_closed_while_nobody_reads_its_stream(nodes: list[Node]) -> None:
    for second in range(300):
        nodes[0].record(second)
    fleet = opened(nodes)
    stream = fleet.watch_events()
    assert seen([next(stream)]) == [(1, 1)]
    closing_it = threading.Thread(target=fleet.close, daemon=True)
    closing_it.start()
    closing_it.join(IN_TIME)
    assert not closing_it.is_alive()
    with pytest.raises(Cancelled):
        list(stream)


@pytest.mark.parametrize("follow", [False, True])
def test_a_fleet_that_is_closed_ends_the_streams_of_other_tasks(nodes: list[Node], follow: bool) -> None:
    nodes[2].hangs = True

    async def close() -> None:
        fleet = await AsyncFleet.open([node.listed for node in nodes])
        stream = fleet.watch_events(follow=follow)
        reading = asyncio.ensure_future(anext(stream))
        until = time.monotonic() + IN_TIME
        while not nodes[2].streams:
            assert time.monotonic() < until
            await asyncio.sleep(0.01)
        await fleet.close()
        with pytest.raises(Cancelled):
            await asyncio.wait_for(reading, IN_TIME)

    asyncio.run(close())


def test_a_fleet_that_is_gone_ends_a_stream(nodes: list[Node]) -> None:
    nodes[0].record(1)
    with opened(nodes, patience=0.5) as fleet, closing(fleet.watch_events()) as stream:
        assert seen([next(stream)]) == [(1, 1)]
        for node in nodes:
            node.kill()
        with pytest.raises(DaemonUnreachable, match="no node of the fleet answers"):
            next(stream)
        with pytest.raises(DaemonUnreachable):
            list(fleet.watch_events(follow=False))


@pytest.mark.parametrize(
    "record",
    [
        v1.AuditEvent(sequence=1, time=stamp(2), record_json="{"),
        v1.AuditEvent(sequence=1, time=stamp(2), record_json="null"),
        v1.AuditEvent(sequence=1, time=stamp(2), record_json="{}"),
        v1.AuditEvent(sequence=1, time=stamp(2), record_json="[" * 100_000),
        v1.AuditEvent(sequence=1, time=Timestamp(seconds=10**18), record_json=f'{{"log":"{2:032x}"}}'),
    ],
)
def test_a_record_that_cannot_be_read_is_a_warning(fleet: Fleet, nodes: list[Node], record: v1.AuditEvent) -> None:
    nodes[1].events.append(record)
    nodes[0].record(1)
    nodes[2].record(3)
    told: list[NodeInfo] = []
    assert seen(list(fleet.watch_events(follow=False, on_node=told.append))) == [(1, 1), (3, 1)]
    assert [node.node for node in told] == [2]
    with closing(fleet.watch_events(on_node=told.append)) as stream:
        assert sorted(seen([next(stream), next(stream)])) == [(1, 1), (3, 1)]
    assert [node.state for node in told[:2]] == ["unreachable", "unreachable"]


def test_records_of_all_nodes_that_cannot_be_read_are_an_error(nodes: list[Node]) -> None:
    for node in nodes:
        node.events.append(v1.AuditEvent(sequence=1, time=stamp(2), record_json="{"))
    with opened(nodes, patience=0.5) as fleet:
        for follow in (False, True):
            with pytest.raises(DaemonUnreachable, match=r"no node of the fleet answers: node 1 .* cannot be read"):
                list(fleet.watch_events(follow=follow))


def test_a_list_that_cannot_be_read_is_a_warning(fleet: Fleet, nodes: list[Node]) -> None:
    nodes[1].runs["x"] = v1.Run(run_id=id_of(2, 1), created_at=Timestamp(seconds=10**18))
    nodes[2].garbles = True
    nodes[0].goes_on = True
    with pytest.raises(DaemonUnreachable, match=r"node 1 .* has no end|the list of runs has no end"):
        fleet.list_runs()
    nodes[0].goes_on = False
    runs = fleet.list_runs()
    assert ([node.node for node in runs.missing], runs.items) == ([2, 3], ())
    assert "cannot be read" in runs.missing[0].failure

    async def list_them() -> None:
        async with await AsyncFleet.open([node.listed for node in nodes]) as fleet:
            assert [node.node for node in (await fleet.list_runs()).missing] == [2, 3]

    asyncio.run(list_them())


def test_a_node_that_refuses_a_stream_ends_it(fleet: Fleet, nodes: list[Node]) -> None:
    nodes[2].denies = True
    with pytest.raises(Denied):
        list(fleet.watch_events())


def test_records_of_a_sandbox_are_whole_although_its_daemon_stops(fleet: Fleet, nodes: list[Node]) -> None:
    run_id = id_of(1, 1)
    nodes[0].runs["x"] = v1.Run(run_id=run_id)
    for second in (1, 2, 3):
        nodes[0].record(second)
    nodes[0].cuts, nodes[0].cut_reason = 1, "DAEMON_STOPPING"
    sandbox = fleet.sandbox(run_id)
    assert [event.sequence for event in sandbox.audit.stream(follow=False)] == [1, 2, 3]


@pytest.mark.parametrize("reason", ["", "DAEMON_STOPPING"])
def test_a_daemon_that_stops_cuts_no_list_of_events_short(fleet: Fleet, nodes: list[Node], reason: str) -> None:
    nodes[0].cut_reason = reason
    for second in (1, 2, 3):
        nodes[0].record(second)
    nodes[0].cuts = 1
    told: list[NodeInfo] = []
    assert seen(list(fleet.watch_events(follow=False, on_node=told.append))) == [(1, 1), (1, 2), (1, 3)]
    assert [(node.node, node.state) for node in told] == [(1, "unreachable"), (1, "serving")]


def test_a_watch_of_a_node_that_was_too_slow_begins_anew(fleet: Fleet, nodes: list[Node]) -> None:
    nodes[0].lags = 1
    for node in nodes:
        node.runs["r"] = v1.Run(run_id=id_of(node.number, 1), created_at=stamp(node.number))
    told: list[NodeInfo] = []
    with closing(fleet.watch_runs(on_node=told.append)) as stream:
        assert {next(stream).node for _ in nodes} == {1, 2, 3}
    assert [(node.node, node.state) for node in told] == [(1, "unreachable"), (1, "serving")]


def test_a_dead_node_is_left_out_of_a_stream_that_ends(fleet: Fleet, nodes: list[Node]) -> None:
    for node in nodes:
        node.record(node.number)
    nodes[1].kill()
    told: list[NodeInfo] = []
    events = list(fleet.watch_events(follow=False, on_node=told.append))
    assert seen(events) == [(1, 1), (3, 1)]
    assert [node.node for node in told] == [2]
    nodes[1].start()
    await_all(fleet)
    assert seen(list(fleet.watch_events(events[-1].position, follow=False))) == [(2, 1)]


def test_streams_without_positions_are_merged_asynchronously(nodes: list[Node], monkeypatch: pytest.MonkeyPatch) -> None:
    for node in nodes:
        node.runs["r"] = v1.Run(run_id=id_of(node.number, 1), created_at=stamp(10 - node.number))
        node.approvals.append(v1.Approval(approval_id=f"p{node.number}", created_at=stamp(1), state=v1.Approval.PENDING))
        node.alerts.append(v1.Alert(alert_id=f"a{node.number}", last_at=stamp(1)))
        node.record(node.number)

    async def watch() -> None:
        told: list[int | None] = []

        async def tell(node: NodeInfo) -> None:
            told.append(node.node)

        async with await AsyncFleet.open([node.listed for node in nodes]) as fleet:
            assert len(await fleet.list_runs()) == len(await fleet.approvals()) == len(await fleet.alerts()) == 3
            runs = fleet.watch_runs(on_node=tell)
            # The first item of a node may take a busy machine longer.
            with monkeypatch.context() as patched:
                patched.setattr("cofferdam._async.merge.HOLD", 3.0)
                assert [(await anext(runs)).node for _ in nodes] == [3, 2, 1]
            approvals, alerts = fleet.watch_approvals(), fleet.watch_alerts()
            assert sorted([(await anext(approvals)).item.approval_id for _ in nodes]) == ["p1", "p2", "p3"]
            assert sorted([(await anext(alerts)).item.alert_id for _ in nodes]) == ["a1", "a2", "a3"]
            events = [event async for event in fleet.watch_events(follow=False)]
            assert seen(events) == [(1, 1), (2, 1), (3, 1)]
            nodes[0].kill()
            nodes[0].start()
            assert (await anext(runs)).node == 1
            for stream in (runs, approvals, alerts):
                await stream.aclose()
            assert told == [1, 1]

    asyncio.run(watch())


# Files and positions.


def test_a_file_is_read_and_its_mistakes_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "fleet.yaml"
    one = {"id": 7, "address": "node-7.example.org:7443", "server_name": "n7", "weight": 3, "agent_check": "192.0.2.7:7445"}
    file.write_text(json.dumps({"nodes": [one, {"id": 8, "address": "[2001:db8::8]:7443"}]}))
    expected = (
        FleetNode(7, "https://node-7.example.org:7443", "n7", 3),
        FleetNode(8, "https://[2001:db8::8]:7443", None, 1),
    )
    monkeypatch.setenv(FLEET_VARIABLE, str(file))
    assert named(None) == read(file) == expected
    for mistake in (
        {"id": 0},
        {"id": 65_536},
        {"id": True},
        {"id": "7"},
        {"address": "node-7.example.org"},
        {"address": "http://node-7.example.org:1"},
        {"address": None},
        {"server_name": "a b"},
        {"weight": 0},
        {"weight": 257},
        {"token": "x"},
    ):
        file.write_text(json.dumps({"nodes": [{**one, **mistake}]}))
        with pytest.raises(InvalidArgument, match="fleet:"):
            read(file)
    wholes: tuple[object, ...] = (
        {},
        {"nodes": []},
        {"nodes": 7},
        {"nodes": [one, one]},
        {"nodes": [one], "more": 1},
        [one],
        "x",
    )
    for whole in wholes:
        file.write_text(json.dumps(whole))
        with pytest.raises(InvalidArgument, match="fleet:"):
            read(file)
    file.write_bytes(b" " * (1024 * 1024 + 1))
    with pytest.raises(InvalidArgument, match="larger"):
        read(file)
    with pytest.raises(InvalidArgument, match="cannot be read"):
        read(tmp_path / "none")
    monkeypatch.delenv(FLEET_VARIABLE)
    with pytest.raises(InvalidArgument, match=FLEET_VARIABLE):
        named(None)
    for wrong in ("dns:", "dns:fleet.example.org:", "dns:fleet example:1", "dns:[::1]:1", "dns:fleet.example.org:0"):
        with pytest.raises(InvalidArgument, match="dns:"):
            named(wrong)


def test_yaml_is_read_where_its_package_is_there(tmp_path: Path) -> None:
    file = tmp_path / "fleet.yaml"
    file.write_text("nodes:\n  - { id: 7, address: 'node-7.example.org:7443' }\n")
    try:
        import yaml
    except ImportError:
        with pytest.raises(InvalidArgument, match=r"cofferdam\[fleet\]"):
            read(file)
        return
    assert yaml.__name__ == "yaml"
    assert read(file) == (FleetNode(7, "https://node-7.example.org:7443"),)
    file.write_text("nodes: [")
    with pytest.raises(InvalidArgument, match="no YAML"):
        read(file)


def test_a_name_stands_for_all_its_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [(2, 1, 6, "", ("192.0.2.7", 1)), (10, 1, 6, "", ("2001:db8::7", 1, 0, 0)), (2, 1, 6, "", ("192.0.2.7", 1))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **kwargs: found)
    name = named("dns:fleet.example.org:7443")
    assert not isinstance(name, tuple)
    assert named("dns:fleet.example.org") == name
    assert resolved(name) == (
        FleetNode(None, "https://192.0.2.7:7443", "fleet.example.org"),
        FleetNode(None, "https://[2001:db8::7]:7443", "fleet.example.org"),
    )


@pytest.fixture
def name(nodes: list[Node], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The addresses of a name: those of the nodes at first."""
    addresses = [node.socket for node in nodes]
    for half in ("_async", "_sync"):
        found = lambda name: [FleetNode(None, address) for address in addresses]  # noqa: E731
        monkeypatch.setattr(f"cofferdam.{half}.fleet.resolved", found)
        monkeypatch.setattr(f"cofferdam.{half}.moving.REST", 0.1)
    return addresses


def test_a_node_that_is_away_is_found_at_its_second_address(nodes: list[Node], name: list[str], tmp_path: Path) -> None:
    nodes[1].used_runs = nodes[2].used_runs = 90
    second = nodes[0].at(tmp_path / "second.sock")
    name.append(second.endpoint)
    with Fleet.open("dns:fleet.example.org", node_timeout=NODE_TIMEOUT) as fleet:
        at = {node.node: node.endpoint for node in fleet.nodes()}
        assert sorted(node or 0 for node in at) == [1, 2, 3]
        sandbox = fleet.create(profile="p")
        # Which of its addresses answers first is chance.
        if at[1] == second.endpoint:
            second.close()
        else:
            nodes[0].kill()
        await_all(fleet)
        moved = {node.node: node.endpoint for node in fleet.nodes()}
        assert moved == {**at, 1: second.endpoint if at[1] == nodes[0].socket else nodes[0].socket}
        # The sandboxes of the node are there, too.
        assert node_of(sandbox.run_id) == 1
        assert sandbox.info().run_id == sandbox.run_id
    second.close()


def test_a_name_is_resolved_again_for_a_node_that_is_away(nodes: list[Node], name: list[str], tmp_path: Path) -> None:
    told: list[NodeInfo] = []
    with Fleet.open("dns:fleet.example.org", node_timeout=NODE_TIMEOUT) as fleet:
        with closing(fleet.watch_events(on_node=told.append)) as stream:
            nodes[0].record(1)
            assert seen([next(stream)]) == [(1, 1)]
            nodes[0].kill()
            name[0] = nodes[0].socket = f"unix:{tmp_path}/moved.sock"
            nodes[0].start()
            nodes[0].record(2)
            assert seen([next(stream)]) == [(1, 2)]
        assert [(node.node, node.state) for node in told] == [(1, "unreachable"), (1, "serving")]
        assert told[1].endpoint == nodes[0].socket
        # Two nodes exchange their addresses.
        nodes[1].kill()
        nodes[2].kill()
        nodes[1].socket, nodes[2].socket = nodes[2].socket, nodes[1].socket
        nodes[1].start()
        nodes[2].start()
        await_all(fleet)
        assert {node.node: node.endpoint for node in fleet.nodes()} == {node.number: node.socket for node in nodes}


def test_a_node_that_never_answered_is_found_by_a_name(nodes: list[Node], name: list[str], tmp_path: Path) -> None:
    nodes[2].kill()

    async def find() -> None:
        async with await AsyncFleet.open("dns:fleet.example.org", node_timeout=NODE_TIMEOUT) as fleet:
            assert [node.node for node in (await fleet.list_runs()).missing] == [None]
            name[2] = nodes[2].socket = f"unix:{tmp_path}/moved.sock"
            nodes[2].start()
            until = time.monotonic() + 10
            while (await fleet.list_runs()).missing:
                assert time.monotonic() < until
                await asyncio.sleep(0.05)
            assert [node.node for node in await fleet.nodes()] == [1, 2, 3]

    asyncio.run(find())


def test_a_node_needs_an_endpoint_and_a_server_name_needs_tls() -> None:
    with pytest.raises(InvalidArgument, match="endpoint"):
        Fleet.open([FleetNode(1, "")])
    for endpoint, name in (("unix:/x", "a.example.org"), ("https://a.example.org:1", "a b")):
        with pytest.raises(InvalidArgument, match="server_name"):
            Fleet.open([FleetNode(1, endpoint, name)])
    with pytest.raises(InvalidArgument, match="node_timeout"):
        Fleet.open([FleetNode(1, "unix:/x")], node_timeout=0.0)


def test_a_position_forgets_nodes_that_left_before_it_is_too_long_to_be_read() -> None:
    position = Position()
    fleet = range(100, 700)
    for node in range(1, 700):
        position.saw(node, Mark(b"l" * 16, node), fleet)
    assert Position.read(position.written()) == position
    assert position.of.keys() == set(range(188, 700))
    # One that left stays as long as there is room.
    position = Position()
    for node in (1, 2):
        position.saw(node, Mark(b"l" * 16, node), {2})
    assert position.of.keys() == {1, 2}


def test_a_position_that_is_none_is_refused() -> None:
    one = Position({1: Mark(b"\7" * 16, 42)}).written()
    once = base64.urlsafe_b64decode(one.removeprefix("p1.") + "==")
    twice = "p1." + base64.urlsafe_b64encode(once * 2).decode().rstrip("=")
    zero = "p1." + base64.urlsafe_b64encode(bytes(26)).decode().rstrip("=")
    for wrong in ("42", "p1", one[1:], one[:-1], f"{one}A", "p2.", "p1.é", twice, zero, "p1." + "A" * 100_000):
        with pytest.raises(InvalidArgument, match="position"):
            Position.read(wrong)
    position = Position({2: Mark(b"a" * 16, 7), 1: Mark(b"b" * 16, 2**64 - 1)})
    assert Position.read(position.written()) == position
    end = Mark(b"a" * 16, 7)
    assert (position.after(2, end), position.after(2, Mark(b"c" * 16, 9)), position.after(3, end)) == (7, 0, 0)
    assert (position.after(2, Mark(b"a" * 16, 6)), position.after(2, None)) == (0, 0)
    # The other package and `coffer` read and write the same.
    assert one == "p1.AAEHBwcHBwcHBwcHBwcHBwcHAAAAAAAAACo"
    assert Position.read(None) == Position.read("") == Position()


def test_a_sandbox_of_a_fleet_is_one_like_others(fleet: Fleet, nodes: list[Node]) -> None:
    sandbox = fleet.create(profile="p", env={"A": "1"}, metadata={"m": "1"})
    assert isinstance(sandbox, Sandbox)
    assert sandbox.client.endpoint in [node.socket for node in nodes]
    assert sandbox.client._transport.settings.patience == PATIENCE


@pytest.fixture
def daemons() -> Iterator[list[Daemon]]:
    made: list[Daemon] = []
    try:
        made.extend(Daemon(f"node: {{ id: {number} }}\n") for number in (1, 2, 3))
        yield made
    finally:
        for daemon in made:
            daemon.remove()


def test_three_daemons_are_one_fleet_and_one_of_them_dies_and_comes_back(daemons: list[Daemon]) -> None:
    listed = [FleetNode(number, daemon.endpoint) for number, daemon in enumerate(daemons, 1)]
    with Fleet.open(listed, node_timeout=NODE_TIMEOUT) as fleet:
        sandboxes = [fleet.create(profile="open") for _ in range(6)]
        ids = {sandbox.run_id for sandbox in sandboxes}
        of = {number: [one for one in sandboxes if node_of(one.run_id) == number] for number in (1, 2, 3)}
        assert all(of.values())
        events = list(fleet.watch_events(follow=False))
        assert {event.event.run_id for event in events} >= ids
        assert {one.item.run_id for one in fleet.list_runs()} == ids

        daemons[1].end(signal.SIGKILL)
        begun = time.monotonic()
        assert [node.node for node in fleet.list_runs().missing] == [2]
        with pytest.raises(DaemonUnreachable):
            fleet.sandbox(of[2][0].run_id)
        assert time.monotonic() - begun < IN_TIME
        assert {node_of(fleet.create(profile="open").run_id) for _ in range(2)} <= {1, 3}
        assert all(sandbox.commands.run("echo here").stdout == "here\n" for sandbox in of[1] + of[3])

        daemons[1].launch()
        await_all(fleet)
        found = fleet.sandbox(of[2][0].run_id)
        assert found.commands.run("echo back").stdout == "back\n"
        runs = fleet.list_runs()
        assert len(runs) == 8
        assert runs.missing == ()
        rest = list(fleet.watch_events(events[-1].position, follow=False))
        assert set(seen(events)).isdisjoint(seen(rest))
        assert {event.node for event in rest} == {1, 2, 3}

        with Client(daemons[2].endpoint) as third:
            third.node.drain_node(v1.DrainNodeRequest(reason="a new kernel"))
        assert [node.state for node in fleet.nodes()] == ["serving", "serving", "draining"]
        assert {node_of(fleet.create(profile="open").run_id) for _ in range(4)} <= {1, 2}
        assert len(fleet.list_runs()) == 12
