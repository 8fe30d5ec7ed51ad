"""Mistakes and attacks of clients, callers and agents."""

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from pathlib import Path

import pytest

from cofferdam import (
    AsyncClient,
    AsyncSandbox,
    AuthenticationFailed,
    Client,
    CofferdamError,
    CommandTimedOut,
    DaemonUnreachable,
    Denied,
    InvalidArgument,
    NotFound,
    RateLimited,
    Sandbox,
    v1,
)
from cofferdam._options import Options

SANDBOXES = 100


@pytest.mark.parametrize("endpoint", ["/run/cofferd.sock", "unix:relative.sock", "unix:"])
def test_invalid_endpoints_are_refused(endpoint: str) -> None:
    with pytest.raises(InvalidArgument, match="endpoint"):
        Client(endpoint)


@pytest.mark.parametrize("token", ["a b", "a\nb", "ä", "\x00"])
def test_invalid_tokens_are_refused(token: str) -> None:
    with pytest.raises(InvalidArgument, match="token"):
        Client(token=token)


def test_a_token_is_in_no_representation() -> None:
    client = Client(token="cft_secret")
    assert "secret" not in repr(client._transport.settings)


@pytest.mark.parametrize("token", ["nonsense", "cft_" + "A" * 43, "x" * 5000])
def test_a_bad_token_is_refused_although_the_user_may_do_all(token: str) -> None:
    with pytest.raises((AuthenticationFailed, Denied)):
        Sandbox.create(profile="open", token=token)


def test_a_run_token_makes_the_calls_of_its_run_and_nothing_else() -> None:
    with Sandbox.create(profile="open", issue_token=True) as sandbox, Sandbox.create(profile="open") as other:
        assert sandbox.token is not None
        assert other.token is None
        agent = Sandbox.connect(sandbox.run_id, token=sandbox.token)
        agent.files.write("a.txt", "mine")
        assert agent.commands.run(["cat", "a.txt"]).stdout == "mine"
        assert agent.tools("openai", dialect="fs")
        with pytest.raises((Denied, NotFound)):
            Sandbox.connect(other.run_id, token=sandbox.token)
        with pytest.raises(Denied):
            Sandbox.create(profile="open", token=sandbox.token)
        with pytest.raises(Denied):
            agent.kill()
        sandbox.kill()
        with pytest.raises((AuthenticationFailed, Denied)):
            Sandbox.connect(sandbox.run_id, token=sandbox.token)


def test_no_run_is_not_found() -> None:
    for run_id in ("01900000-0000-7000-8000-000000000000", "nonsense"):
        with pytest.raises((NotFound, InvalidArgument)):
            Sandbox.connect(run_id)
    with pytest.raises(NotFound):
        Sandbox.create(profile="no-such-profile")
    with pytest.raises(NotFound, match="no-such-image"):
        Sandbox.create(profile="open", image="no-such-image")


def test_a_rate_limit_says_when_it_goes_through() -> None:
    with Sandbox.create(profile="strict", agent_id="eager") as sandbox:

        def look() -> None:
            for _ in range(200):
                sandbox.files.list()

        with pytest.raises(RateLimited) as caught:
            look()
    assert caught.value.retry_after is not None
    assert 0 < caught.value.retry_after <= 60


def test_a_callback_that_raises_ends_the_command() -> None:
    def broken(text: str) -> None:
        raise ZeroDivisionError(text)

    with Sandbox.create(profile="open") as sandbox:
        begun = time.monotonic()
        with pytest.raises(ZeroDivisionError):
            sandbox.commands.run("echo begun; sleep 77", on_stdout=broken)
        assert time.monotonic() - begun < 60
        assert gone(sandbox, "sleep 77")


def gone(sandbox: Sandbox, command: str) -> bool:
    """Whether the command is gone, at the latest after its time to end by itself."""
    for _ in range(100):
        if command not in sandbox.commands.run("ps -o args; true").stdout.replace(f"echo begun; {command}", ""):
            return True
        time.sleep(0.1)
    return False


async def test_a_call_that_is_cancelled_ends_its_command() -> None:
    async with await AsyncSandbox.create(profile="open") as sandbox:
        begun = asyncio.Event()

        async def hear(text: str) -> None:
            begun.set()

        running = asyncio.create_task(sandbox.commands.run("echo begun; exec sleep 78", on_stdout=hear))
        await begun.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        for _ in range(100):
            if "sleep 78" not in (await sandbox.commands.run(["ps", "-o", "args"])).stdout:
                break
            await asyncio.sleep(0.1)
        else:
            pytest.fail("the command runs on")
        # As often as one likes, at any time.
        for number in range(30):
            running = asyncio.create_task(sandbox.commands.run(["sleep", "79"]))
            await asyncio.sleep(0.002 * number)
            running.cancel()
        with pytest.raises(CommandTimedOut):
            await sandbox.commands.run(["sleep", "79"], timeout=0.2)


async def test_a_block_that_is_cancelled_ends_its_sandbox() -> None:
    made: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def work() -> None:
        async with await AsyncSandbox.create(profile="open") as sandbox:
            made.set_result(sandbox.run_id)
            await asyncio.sleep(60)

    working = asyncio.create_task(work())
    run_id = await made
    working.cancel()
    # Again while it ends, as frameworks do that cancel whole scopes.
    await asyncio.sleep(0)
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working
    for _ in range(600):
        try:
            await (await AsyncSandbox.connect(run_id)).close()
        except NotFound:
            return
        await asyncio.sleep(0.1)
    pytest.fail("it is there")


def test_exception_of_the_block_is_raised(tmp_path: Path) -> None:
    client = Client(f"unix:{tmp_path}/none.sock")
    sandbox = Sandbox(client, "01900000-0000-7000-8000-000000000000", Options(), owns_client=True, delete_workspace=False)
    with pytest.raises(ZeroDivisionError), sandbox:
        raise ZeroDivisionError
    with pytest.raises(DaemonUnreachable), sandbox:
        pass


async def test_cancelled_creation_leaves_no_sandbox() -> None:
    async with AsyncClient() as client:
        for number in range(8):
            make = AsyncSandbox.create(profile="open", client=client, metadata={"test": "cancelled"})
            making = asyncio.create_task(make)
            await asyncio.sleep(0.03 * number)
            if making.cancel():
                with pytest.raises(asyncio.CancelledError):
                    await making
            else:
                await (await making).kill()
    async with AsyncClient() as client:
        for _ in range(600):
            left = [run async for run in AsyncSandbox.list(None, metadata={"test": "cancelled"}, client=client)]
            if all(run.state in ("stopped", "failed") for run in left):
                return
            await asyncio.sleep(0.1)
        pytest.fail(f"they are there: {left}")


async def test_a_hundred_sandboxes_from_one_process() -> None:
    async with AsyncClient() as client:

        async def one(number: int) -> str:
            async with await AsyncSandbox.create(profile="open", client=client, agent_id=f"a{number}") as sandbox:
                await sandbox.files.write("n.txt", str(number))
                return (await sandbox.commands.run("cat n.txt; sleep 0.2")).stdout

        assert await asyncio.gather(*map(one, range(SANDBOXES))) == [str(number) for number in range(SANDBOXES)]


async def test_streams_that_are_left_end() -> None:
    async with await AsyncSandbox.create(profile="open") as sandbox:
        for _ in range(20):
            async with aclosing(sandbox.audit.stream()) as events:
                async for event in events:
                    assert event.run_id == sandbox.run_id
                    break
        async with aclosing(sandbox.approvals.watch()) as approvals:
            await sandbox.files.write("a", "x")
            watching = asyncio.create_task(anext(approvals))
            with pytest.raises(CofferdamError):
                await sandbox.files.remove("a")
            assert (await watching).state == "pending"


def test_one_client_serves_many_threads() -> None:
    with Client() as client, Sandbox.create(profile="open", client=client) as sandbox:

        def one(number: int) -> str:
            sandbox.files.write(f"{number}.txt", str(number))
            return sandbox.commands.run(["cat", f"{number}.txt"]).stdout

        with ThreadPoolExecutor(16) as threads:
            assert list(threads.map(one, range(64))) == [str(number) for number in range(64)]


def test_a_call_is_ended_by_its_id_from_elsewhere() -> None:
    with Sandbox.create(profile="open") as sandbox:
        failure: list[CofferdamError] = []

        def run() -> None:
            try:
                sandbox.commands.run("echo begun; sleep 80", on_stdout=lambda _: begun.set())
            except CofferdamError as error:
                failure.append(error)

        begun = threading.Event()
        thread = threading.Thread(target=run)
        thread.start()
        begun.wait()
        event = next(iter(sandbox.audit.stream(kinds=["call_intent"])))
        assert sandbox.calls.get(event.call_id).status == "running"
        assert sandbox.calls.cancel(event.call_id)
        thread.join(timeout=20)
        assert failure[0].reason == "CANCELLED"
        assert failure[0].call_id == event.call_id
        assert not sandbox.calls.cancel(event.call_id)


def test_the_whole_api_is_beneath() -> None:
    with Client() as client:
        assert "open" in client.policy.get_policy(v1.GetPolicyRequest()).profiles
        assert client.audit.verify_log(v1.VerifyLogRequest()).intact
        assert client.host.examine_host(v1.ExamineHostRequest()).findings
        with pytest.raises(NotFound):
            client.trash.list_trash(v1.ListTrashRequest(run_id="01900000-0000-7000-8000-000000000000"))
