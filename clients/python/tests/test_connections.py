"""Connections and daemons that are lost in the middle: nothing is lost with them, and nothing happens twice."""

import asyncio
import json
import signal
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from daemon import Daemon
from proxy import Proxy

from cofferdam import (
    AlreadyExists,
    AsyncClient,
    AsyncSandbox,
    AuditEvent,
    Client,
    CommandInterrupted,
    CommandLost,
    DaemonUnreachable,
    InfrastructureError,
    NodeLostError,
    NotFound,
    RunLost,
    RunNotReady,
    Sandbox,
    v1,
)

STREAMS = 50
# Seconds, with a margin for a busy machine: less than the patience of a client.
IN_TIME = 20.0
DECISION = v1.DecideApprovalRequest(
    approval_id="01900000-0000-7000-8000-000000000000", decision=v1.DecideApprovalRequest.Decision.APPROVE
)


@pytest.fixture
def proxy(tmp_path: Path, endpoint: str) -> Iterator[Proxy]:
    proxy = Proxy(tmp_path / "proxy.sock", endpoint)
    yield proxy
    proxy.close()


def test_a_daemon_that_is_busy_when_a_client_connects_is_waited_for(proxy: Proxy) -> None:
    proxy.silent_for = 1.5
    with Sandbox.create(profile="open", endpoint=proxy.endpoint) as sandbox:
        assert sandbox.commands.run("echo here").stdout == "here\n"
    assert proxy.connections == 1


def test_output_comes_whole_over_connections_that_break(proxy: Proxy) -> None:
    heard: list[str] = []
    with Sandbox.create(profile="open", endpoint=proxy.endpoint) as sandbox:
        proxy.cut_after, proxy.cuts = 400_000, 4
        script = "i=0; while [ $i -lt 300000 ]; do echo $i; i=$((i+1)); done; echo x >> /workspace/count"
        result = sandbox.commands.run(script, on_stdout=heard.append)
        assert result.stdout == "".join(f"{number}\n" for number in range(300_000))
        assert "".join(heard) == result.stdout
        assert proxy.cuts == 0, "it was cut less often than it should have been"
        assert proxy.connections >= 5
        assert sandbox.files.read("count") == "x\n"


def test_calls_of_one_request_id_are_one_call_of_all_clients(endpoint: str) -> None:
    with Sandbox.create(profile="open", endpoint=endpoint) as sandbox, Client(endpoint) as client:
        again = Sandbox.connect(sandbox.run_id, client=client)
        outcomes = [
            one.with_options(request_id="mine").commands.run("echo x >> count; wc -l < count") for one in (sandbox, again)
        ]
        assert outcomes[0] == outcomes[1]
        assert outcomes[0].stdout == "1\n"
        with pytest.raises(AlreadyExists):
            again.with_options(request_id="mine").commands.run("echo other")
        assert sandbox.files.read("count") == "x\n"
        # A read is one, too, and has its first outcome.
        reader = sandbox.with_options(request_id="read")
        assert reader.files.read("count") == "x\n"
        sandbox.files.write("count", "y\n")
        assert reader.files.read("count") == "x\n"


def test_a_call_whose_answer_is_lost_happens_once(proxy: Proxy) -> None:
    with Sandbox.create(profile="open", endpoint=proxy.endpoint) as sandbox:
        for _ in range(10):
            # From one byte on: the request arrives, its answer does not.
            proxy.cut()
            proxy.cut_after, proxy.cuts = 1, 2
            sandbox.commands.run("echo x >> count")
        assert sandbox.files.read("count") == "x\n" * 10
        for number in range(5):
            proxy.cut()
            proxy.cuts = 2
            sandbox.files.write(f"new{number}", "x", create_only=True)


def test_a_run_is_made_once(proxy: Proxy) -> None:
    with Client(proxy.endpoint) as client:
        assert not list(Sandbox.list(metadata={"test": "once"}, client=client))
        proxy.cut()
        proxy.cut_after, proxy.cuts = 1, 2
        with Sandbox.create(profile="open", metadata={"test": "once"}, client=client) as sandbox:
            assert proxy.cuts == 0
            assert [run.run_id for run in Sandbox.list(metadata={"test": "once"}, client=client)] == [sandbox.run_id]


def test_a_missing_daemon_is_reported_at_once(tmp_path: Path) -> None:
    begun = time.monotonic()
    with pytest.raises(DaemonUnreachable, match="COFFERDAM_ENDPOINT"):
        Sandbox.create(profile="open", endpoint=f"unix:{tmp_path}/none.sock")
    assert time.monotonic() - begun < IN_TIME


def test_a_daemon_that_does_not_come_back_is_given_up(mortal: Daemon) -> None:
    client = Client(mortal.endpoint, reconnect_timeout=1.0)
    sandbox = Sandbox.create(profile="open", client=client)
    mortal.end()
    begun = time.monotonic()
    with pytest.raises(NodeLostError) as lost:
        sandbox.files.list()
    assert 1.0 <= time.monotonic() - begun < IN_TIME
    assert isinstance(lost.value, InfrastructureError)
    assert lost.value.retry_safe, "it only reads"
    with pytest.raises(NodeLostError) as lost:
        sandbox.commands.run("echo x >> count")
    assert (lost.value.retry_safe, lost.value.fault) == (False, "infrastructure")
    assert lost.value.request_id
    assert sandbox.failed_by_infrastructure()
    mortal.launch()
    assert not sandbox.is_running()
    client.close()


def test_a_request_that_never_left_is_sent_to_the_next_daemon(mortal: Daemon) -> None:
    client = Client(mortal.endpoint)
    client.approvals.list_approvals(v1.ListApprovalsRequest())
    mortal.end(signal.SIGKILL)
    # A request on the connection that was there might have left: these find it lost, the last of them before it leaves.
    is_unsent = False
    while not is_unsent:
        with pytest.raises(DaemonUnreachable) as caught:
            next(client.runs.watch_runs(v1.WatchRunsRequest()))
        is_unsent = caught.value.retry_safe
    relaunch = threading.Timer(1.0, mortal.launch)
    relaunch.start()
    # A decision is none that may be sent twice.
    with pytest.raises(NotFound):
        client.approvals.decide_approval(DECISION)
    relaunch.join()
    client.close()


async def test_the_asynchronous_half_sends_it_too(mortal: Daemon) -> None:
    async with AsyncClient(mortal.endpoint) as client:
        await client.approvals.list_approvals(v1.ListApprovalsRequest())
        mortal.end(signal.SIGKILL)
        is_unsent = False
        while not is_unsent:
            with pytest.raises(DaemonUnreachable) as caught:
                await anext(client.runs.watch_runs(v1.WatchRunsRequest()))
            is_unsent = caught.value.retry_safe
        relaunch = threading.Timer(1.0, mortal.launch)
        relaunch.start()
        with pytest.raises(NotFound):
            await client.approvals.decide_approval(DECISION)
        relaunch.join()


def test_a_command_reports_a_lost_daemon_and_the_sandbox_continues(mortal: Daemon) -> None:
    with Sandbox.create(profile="open", endpoint=mortal.endpoint) as sandbox:
        first = threading.Event()

        def restart() -> None:
            first.wait()
            mortal.end(signal.SIGKILL)
            mortal.launch()

        thread = threading.Thread(target=restart)
        thread.start()
        heard: list[str] = []

        def hear(text: str) -> None:
            heard.append(text)
            first.set()

        with pytest.raises(CommandInterrupted, match="before you repeat it") as caught:
            sandbox.commands.run("echo x >> count; echo begun; sleep 30", on_stdout=hear)
        thread.join()
        assert caught.value.result.stdout == "begun\n"
        assert caught.value.call_id
        assert heard == ["begun\n"]
        assert sandbox.files.read("count") == "x\n"
        assert sandbox.info().restarts == 1


def test_a_reviewer_may_answer_the_next_daemon(mortal: Daemon) -> None:
    with Sandbox.create(profile="open", endpoint=mortal.endpoint, wait_for_approval=True) as sandbox:
        sandbox.files.write("a.txt", "x")
        removed: list[object] = []
        waiting = threading.Thread(target=lambda: removed.append(sandbox.files.remove("a.txt")))
        waiting.start()
        while not (asked := sandbox.approvals.list()):
            time.sleep(0.02)
        # It is kept by now, and not only shown.
        while sandbox.calls.get(asked[0].call_id).status != "pending_approval":
            time.sleep(0.02)
        mortal.end(signal.SIGKILL)
        mortal.launch()
        # A decision is sent once: not on the connection that is lost.
        assert [approval.approval_id for approval in sandbox.approvals.list()] == [asked[0].approval_id]
        sandbox.approvals.approve(asked[0].approval_id)
        waiting.join(timeout=30)
        assert len(removed) == 1
        assert not sandbox.files.exists("a.txt")


async def test_fifty_audit_streams_lose_nothing_over_a_restart(mortal: Daemon) -> None:
    async with AsyncClient(mortal.endpoint) as client:
        sandbox = await AsyncSandbox.create(profile="open", client=client)
        seen: list[list[AuditEvent]] = [[] for _ in range(STREAMS)]

        async def follow(events: list[AuditEvent]) -> None:
            async for event in sandbox.audit.stream():
                events.append(event)
                if event.kind == "call_intent" and "last.txt" in json.dumps(event.record):
                    return

        async def work() -> None:
            followers = [asyncio.create_task(follow(events)) for events in seen]
            for number in range(5):
                await sandbox.files.write(f"a{number}", "x")
            await asyncio.to_thread(mortal.end, signal.SIGKILL)
            await asyncio.to_thread(mortal.launch)
            for number in range(5):
                await sandbox.files.write(f"b{number}", "x")
            await sandbox.files.write("last.txt", "x")
            await asyncio.gather(*followers)

        await asyncio.wait_for(work(), 60)
        log = [event async for event in sandbox.audit.stream(follow=False)]
        for events in seen:
            assert events == log[: len(events)]
            assert sum(event.kind == "call_receipt" for event in events) >= 10
        await sandbox.kill()


def test_a_lost_sandbox_is_no_result_and_never_comes_back_as_another(mortal: Daemon) -> None:
    with Client(mortal.endpoint) as client:
        sandbox = Sandbox.create(profile="open", request_id="once", client=client)
        assert not sandbox.failed_by_infrastructure()
        begun = threading.Event()

        def kill() -> None:
            begun.wait()
            mortal.kill_containers()

        lost = threading.Thread(target=kill)
        lost.start()
        with pytest.raises(CommandLost) as caught:
            sandbox.commands.run("echo begun; sleep 60", on_stdout=lambda _: begun.set())
        lost.join()
        assert caught.value.result.failed_by_infrastructure
        assert (caught.value.reason, caught.value.retry_safe) == ("RUN_LOST", False)
        assert caught.value.evidence["engine.exit_code"] == "137"
        while (info := sandbox.info()).state in ("ready", "stopping"):
            time.sleep(0.02)
        assert sandbox.failed_by_infrastructure()
        assert (info.state, info.failure_reason, info.failed_by_infrastructure) == ("failed", "RUN_LOST", True)
        with pytest.raises(RunLost) as refused:
            sandbox.files.list()
        assert refused.value.retry_safe
        # The same name is the same sandbox, which has ended.
        again = Sandbox.create(profile="open", request_id="once", client=client)
        assert again.run_id == sandbox.run_id
        with pytest.raises(RunLost):
            again.commands.run("true")
        found = Sandbox.find("once", client=client)
        assert found is not None
        assert found.run_id == sandbox.run_id
        assert Sandbox.find("another", client=client) is None
        sandbox.kill()


async def test_a_sandbox_with_a_name_is_one_of_all_that_ask_for_it(endpoint: str) -> None:
    async with AsyncClient(endpoint) as client:
        name = f"named-{time.monotonic_ns()}"
        create = partial(AsyncSandbox.create, profile="open", request_id=name, client=client)
        one, other = await asyncio.gather(create(), create())
        assert one.run_id == other.run_id
        found = await AsyncSandbox.find(name, client=client)
        assert found is not None
        await found.kill()
        with pytest.raises(RunNotReady) as stopped:
            await one.files.list()
        assert not isinstance(stopped.value, InfrastructureError)
        assert not await one.failed_by_infrastructure()


async def test_a_graceful_stop_of_the_daemon_ends_the_run(mortal: Daemon) -> None:
    async with await AsyncSandbox.create(profile="open", endpoint=mortal.endpoint) as sandbox:
        await asyncio.to_thread(mortal.end)
        await asyncio.to_thread(mortal.launch)
        with pytest.raises(RunNotReady):
            await sandbox.files.list()


def _fails(daemon: Daemon, sandbox: Sandbox) -> None:
    daemon.kill_containers()
    while sandbox.info().state not in ("stopping", "failed"):
        time.sleep(0.001)


def _restarts(daemon: Daemon, sandbox: Sandbox) -> threading.Thread:
    daemon.end(signal.SIGKILL)
    launching = threading.Timer(0.3, daemon.launch)
    launching.start()
    return launching


def _is_deleted(daemon: Daemon, sandbox: Sandbox) -> None:
    assert sandbox.stop()
    sandbox.client.runs.delete_run(v1.DeleteRunRequest(run_id=sandbox.run_id, delete_workspace=True))


def _expires(daemon: Daemon, sandbox: Sandbox) -> None:
    while sandbox.info().state == "ready":
        time.sleep(0.01)


ENDS = {
    "fails": _fails,
    "has stopped": lambda daemon, sandbox: sandbox.stop(),
    "is deleted": _is_deleted,
    "expires": _expires,
    "restarts": _restarts,
}


@pytest.mark.parametrize("end", ENDS)
async def test_the_end_of_a_sandbox_is_no_error_in_any_state_of_its_run(mortal: Daemon, end: str) -> None:
    # Long enough for a file to be written on a busy machine.
    timeout = 6 if end == "expires" else None
    for _ in range(2):
        with Sandbox.create(profile="harness", timeout=timeout, endpoint=mortal.endpoint) as sandbox:
            sandbox.files.write("a.txt", "a")
            place = mortal.place / "state" / "workspaces" / sandbox.run_id
            assert place.is_dir()
            follows = ENDS[end](mortal, sandbox)
        assert not place.exists()
        assert sandbox.kill() is False
        if isinstance(follows, threading.Thread):
            follows.join()
        async with await AsyncSandbox.create(profile="harness", timeout=timeout, endpoint=mortal.endpoint) as other:
            place = mortal.place / "state" / "workspaces" / other.run_id
            with await asyncio.to_thread(Sandbox.connect, other.run_id, endpoint=mortal.endpoint) as blocking:
                # Ended by both at once.
                follows = await asyncio.to_thread(ENDS[end], mortal, blocking)
                threads = [asyncio.to_thread(blocking.kill, delete_workspace=True) for _ in range(2)]
                await asyncio.gather(other.kill(), other.kill(), *threads)
        assert not place.exists()
        if isinstance(follows, threading.Thread):
            await asyncio.to_thread(follows.join)
