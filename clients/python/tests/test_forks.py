"""Restores, forks and comparisons: whose changes stay, and what is left of the others."""

import asyncio
from pathlib import Path

import pytest

from cofferdam import (
    AsyncClient,
    AsyncSandbox,
    Client,
    Denied,
    InvalidArgument,
    NotFound,
    Overlay,
    PreconditionFailed,
    Sandbox,
    v1,
)


@pytest.fixture
def directory(roots: Path, tmp_path: Path) -> Path:
    """A directory of the host with a file."""
    place = roots / tmp_path.name
    place.mkdir()
    (place / "a.txt").write_text("given\n")
    return place


async def there(sandbox: AsyncSandbox) -> bool:
    """Whether the daemon still knows the run."""
    try:
        await sandbox.info()
    except NotFound:
        return False
    return True


async def checkpoints(sandbox: AsyncSandbox) -> set[str]:
    request = v1.ListCheckpointsRequest(run_id=sandbox.run_id)
    return {one.checkpoint_id for one in (await sandbox.client.checkpoints.list_checkpoints(request)).checkpoints}


async def test_forks_begin_with_the_state_and_go_their_own_ways() -> None:
    async with await AsyncSandbox.create(profile="open", env={"A": "origin", "B": "origin"}, metadata={"a": "1"}) as sandbox:
        await sandbox.files.write("a.txt", "origin\n")
        async with await sandbox.fork(3, env={"A": "fork"}, metadata={"b": "2"}, issue_tokens=True) as forks:
            assert (len(forks), len(list(forks)), forks[1:], forks.failures) == (3, 3, (forks[1], forks[2]), ())
            for number, fork in enumerate(forks):
                assert await fork.files.read("a.txt") == "origin\n"
                await fork.files.write("a.txt", f"{number}\n")
                assert (await fork.commands.run("echo $A $B")).stdout == "fork origin\n"
                info = await fork.info()
                assert info.metadata == {"a": "1", "b": "2"}
                assert info.forked_from is not None
                assert (info.forked_from.checkpoint_id, info.forked_from.run_id) == (forks.checkpoint, sandbox.run_id)
            assert [await fork.files.read("a.txt") for fork in forks] == ["0\n", "1\n", "2\n"]
            assert len({fork.token for fork in forks} - {None}) == 3
            assert await sandbox.files.read("a.txt") == "origin\n"
            assert await checkpoints(sandbox) == {forks.checkpoint}
        assert [await there(fork) for fork in forks] == [False] * 3
        # It was made for them alone.
        assert await checkpoints(sandbox) == set()
        assert (await sandbox.info()).forked_from is None


async def test_a_fork_that_is_kept_outlives_its_block_and_the_others_end_also_after_an_error() -> None:
    async with AsyncClient() as client, await AsyncSandbox.create(profile="open", client=client) as sandbox:
        forks = await sandbox.fork(3)
        await forks[1].files.write("a.txt", "kept\n")
        forks.keep(forks[1])
        with pytest.raises(ZeroDivisionError):
            async with forks:
                raise ZeroDivisionError
        assert [await there(fork) for fork in forks] == [False, True, False]
        assert await forks[1].files.read("a.txt") == "kept\n"
        assert await checkpoints(sandbox) == {forks.checkpoint}
        assert await forks[1].kill()
        assert not await there(forks[1])


async def test_the_best_fork_is_found_by_a_check_and_accepted(directory: Path) -> None:
    sandbox = await AsyncSandbox.create(profile="open", workspace=Overlay(directory))
    async with await sandbox.fork(3) as forks:
        for number, fork in enumerate(forks):
            await fork.files.write("a.txt", f"{number}\n" * (number + 1))
        await forks[0].files.write("b.txt", "zero\n")
        compared = await forks.compare("echo checked; [ $(head -n 1 a.txt) = 1 ]")
        assert [run.run.run_id for run in compared.runs] == [fork.run_id for fork in forks]
        assert [(run.total, run.lines_added, run.lines_removed) for run in compared.runs] == [
            (2, 2, 1),
            (1, 2, 1),
            (1, 3, 1),
        ]
        assert [one.path for one in compared.runs[0].files] == ["a.txt", "b.txt"]
        assert [run.check.exit_code for run in compared.runs if run.check] == [1, 0, 1]
        assert all(run.check and run.check.stdout == "checked\n" and run.check.duration > 0 for run in compared.runs)
        assert [(one.path, len(one.run_ids)) for one in compared.conflicts] == [("a.txt", 3)]
        assert not compared.truncated
        assert await forks[1].accept() == 1
        assert (await forks[1].info()).state == "stopped"
    assert (directory / "a.txt").read_text() == "1\n1\n"
    assert not (directory / "b.txt").exists()
    assert [await there(fork) for fork in forks] == [False, True, False]
    await sandbox.kill(delete_workspace=True)


async def test_changes_that_cannot_be_accepted_are_kept(directory: Path) -> None:
    sandbox = await AsyncSandbox.create(profile="open", workspace=Overlay(directory))
    forks = await sandbox.fork(2)
    await forks[0].files.write("a.txt", "mine\n")
    (directory / "a.txt").write_text("changed meanwhile\n")
    with pytest.raises(PreconditionFailed):
        async with forks:
            await forks[0].accept()
    assert [await there(fork) for fork in forks] == [True, False]
    assert (directory / "a.txt").read_text() == "changed meanwhile\n"
    assert await forks[0].accept(force=True) == 1
    assert (directory / "a.txt").read_text() == "mine\n"
    await sandbox.kill(delete_workspace=True)


async def test_a_restore_is_undone_by_the_checkpoint_that_it_makes() -> None:
    async with await AsyncSandbox.create(profile="open") as sandbox:
        await sandbox.files.write("a.txt", "one\n")
        first = await sandbox.checkpoint("first")
        await sandbox.files.write("a.txt", "two\n")
        before = await sandbox.restore(first)
        assert await sandbox.files.read("a.txt") == "one\n"
        await sandbox.restore(before)
        assert await sandbox.files.read("a.txt") == "two\n"
        async with await AsyncSandbox.create(profile="open") as other:
            with pytest.raises((InvalidArgument, NotFound, PreconditionFailed)):
                await other.restore(first)


async def test_runs_of_a_checkpoint_are_compared_also_by_their_ids() -> None:
    async with AsyncClient() as client, await AsyncSandbox.create(profile="open", client=client) as sandbox:
        checkpoint = await sandbox.checkpoint()
        async with await client.fork(checkpoint, 3) as forks:
            await forks[2].stop()
            # One is ended by the check's time, and one has ended before: no error of the others.
            compared = await client.compare([forks[0], forks[1].run_id, forks[2]], "sleep 30", timeout=0.5)
            assert [run.check and run.check.timed_out for run in compared.runs] == [True, True, None]
            assert [run.check for run in (await client.compare(list(forks))).runs] == [None] * 3
        # It was there before them.
        assert await checkpoints(sandbox) == {checkpoint}


async def test_a_check_that_policy_refuses_ends_the_comparison() -> None:
    async with await AsyncSandbox.create(profile="review") as sandbox, await sandbox.fork(2) as forks:
        with pytest.raises(Denied):
            await forks.compare("touch a.txt")


@pytest.mark.parametrize("count", [0, -1, 2**32])
async def test_no_number_of_forks_is_sent_that_cannot_be_one(count: int) -> None:
    async with await AsyncSandbox.create(profile="open") as sandbox:
        with pytest.raises(InvalidArgument, match="count"):
            await sandbox.fork(count)


async def test_refused_forks_leave_nothing() -> None:
    async with await AsyncSandbox.create(profile="open") as sandbox:
        with pytest.raises(InvalidArgument):
            await sandbox.fork(101)
        with pytest.raises(NotFound):
            await sandbox.client.fork(sandbox.run_id, 2)
        assert await checkpoints(sandbox) == set()


async def test_a_making_of_forks_that_is_cancelled_leaves_no_run() -> None:
    async with AsyncClient() as client, await AsyncSandbox.create(profile="open", client=client) as sandbox:
        for seconds in (0.05, 0.0):
            making = asyncio.ensure_future(sandbox.fork(4, metadata={"made": "for nobody"}))
            await asyncio.sleep(seconds)
            if making.cancel():
                with pytest.raises(asyncio.CancelledError):
                    await making
            else:
                # This process was not scheduled until they were made.
                assert seconds
                await (await making).kill()
        # The work that the cancelled one has left goes on with its client, which the sandbox shares.
        await asyncio.gather(*client._transport._afterwards)
        assert not [run async for run in AsyncSandbox.list(None, metadata={"made": "for nobody"}, client=client)]


async def test_leases_of_forks_are_renewed_as_that_of_their_origin() -> None:
    async with (
        await AsyncSandbox.create(profile="open", lease=6, keep_alive=True) as sandbox,
        await sandbox.fork(2) as forks,
        await sandbox.fork(1, keep_alive=False) as left,
    ):
        # It is the newest one: the leases of the others would be over, too.
        info = await left[0].info()
        while info.state not in ("stopped", "failed"):
            await asyncio.sleep(0.05)
            info = await left[0].info()
        assert info.end_cause == "lease"
        assert [(await fork.info()).state for fork in forks] == ["ready", "ready"]


async def test_the_daemon_makes_checkpoints_by_itself() -> None:
    async with await AsyncSandbox.create(profile="open", checkpoints="write", keep_checkpoints=2) as sandbox:
        for number in range(3):
            await sandbox.files.write("a.txt", f"{number}\n")
        made = await checkpoints(sandbox)
        assert len(made) == 2
    async with await AsyncSandbox.create(profile="open", checkpoints="turn") as sandbox:
        for turn in ("one", "two"):
            await sandbox.with_options(task_id=turn).files.write("a.txt", f"{turn}\n")
            await sandbox.with_options(task_id=turn).files.write("b.txt", f"{turn}\n")
        assert len(await checkpoints(sandbox)) == 2


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"keep_checkpoints": 2}, "keep_checkpoints"),
        ({"checkpoints": "minute"}, "checkpoints"),
        ({"checkpoints": "turn", "keep_checkpoints": 0}, "1 to 100"),
    ],
)
async def test_automatic_checkpoints_that_cannot_be_are_refused(options: dict[str, object], told: str) -> None:
    with pytest.raises(InvalidArgument, match=told):
        await AsyncSandbox.create(profile="open", **options)  # type: ignore[arg-type]


def test_the_blocking_half_does_the_same_side_by_side(client: Client) -> None:
    with Sandbox.create(profile="open", client=client) as sandbox:
        sandbox.files.write("a.txt", "one\n")
        with sandbox.fork(3) as forks:
            for number, fork in enumerate(forks):
                fork.files.write("a.txt", f"{number}\n")
            compared = forks.compare("date +%s; sleep 5; date +%s; cat a.txt")
            shown = [run.check.stdout.split() for run in compared.runs if run.check]
            assert [content for *_, content in shown] == ["0", "1", "2"]
            # The last one began before the first one ended.
            assert max(int(begun) for begun, *_ in shown) < min(int(ended) for _, ended, _ in shown)
            forks.keep(forks[2])
            winner = forks[2]
        left = {run.run_id for run in Sandbox.list(None, client=client)}
        assert left & {fork.run_id for fork in forks} == {winner.run_id}
        # The workspace takes the changes, so its run must have ended.
        with pytest.raises(PreconditionFailed):
            winner.accept()
        sandbox.stop()
        assert winner.accept() == 1
        winner.kill()
