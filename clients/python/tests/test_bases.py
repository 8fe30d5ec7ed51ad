"""Bases that integrations share among samples and trials."""

import asyncio
from pathlib import Path

import pytest
from repositories import bases, commit, repository_of

from cofferdam import AsyncSandbox, Base, Client, Managed, NotFound, PreconditionFailed, v1
from cofferdam.integrations._bases import Origin, TaskBases, workspace


@pytest.fixture
def repository(roots: Path, tmp_path: Path) -> Path:
    return repository_of(roots / tmp_path.name, "first\n")


@pytest.mark.parametrize(
    ("origin", "told"),
    [
        (Origin(base="a", repository="/b"), "exclude"),
        (Origin(repository="/b", directory="/c"), "exclude"),
        (Origin(base="a", revision="main"), "revision"),
    ],
)
def test_an_origin_with_two_sources_is_refused(origin: Origin, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        origin.checked()


async def test_a_base_that_is_named_is_not_made() -> None:
    named = TaskBases()
    for origin, wanted in [(Origin(), Managed()), (Origin(base="a"), Base("a"))]:
        await named.enter(origin.checked())
        assert workspace(await named.base_id(origin)) == workspace(await origin.base_id()) == wanted
        await named.leave(origin, delete=True)


async def test_one_base_of_a_repository_is_made_for_all_at_once(client: Client, repository: Path) -> None:
    before = bases(client)
    origin = Origin(repository=str(repository))
    found = set(await asyncio.gather(*(origin.base_id() for _ in range(10))))
    assert found == bases(client) - before
    assert len(found) == 1
    first = found.pop()
    commit(repository, "second\n")
    assert await Origin(repository=str(repository), revision="main").base_id() != first
    assert await origin.base_id() not in {first, None}


async def test_samples_of_a_task_have_one_commit_and_the_next_task_has_the_newest(client: Client, repository: Path) -> None:
    shared, origin = TaskBases(), Origin(repository=str(repository))
    await shared.enter(origin)
    first = await shared.base_id(origin)
    commit(repository, "second\n")
    assert set(await asyncio.gather(*(shared.base_id(origin) for _ in range(5)))) == {first}
    await shared.leave(origin, delete=True)
    assert first in bases(client)
    await shared.enter(origin)
    second = await shared.base_id(origin)
    assert second != first
    async with await AsyncSandbox.create(profile="open", workspace=workspace(second)) as sandbox:
        assert await sandbox.files.read("given.txt") == "second\n"


@pytest.mark.parametrize("delete", [True, False])
async def test_a_base_of_a_directory_lasts_until_the_last_task_leaves(client: Client, roots: Path, delete: bool) -> None:
    directory = roots / f"given-{delete}"
    directory.mkdir()
    (directory / "given.txt").write_text("42\n")
    before = bases(client)
    shared, origin = TaskBases(), Origin(directory=str(directory))
    await asyncio.gather(shared.enter(origin), shared.enter(origin))
    base_id = await shared.base_id(origin)
    assert bases(client) - before == {base_id}
    await shared.leave(origin, delete=delete)
    assert base_id in bases(client)
    async with await AsyncSandbox.create(profile="open", workspace=workspace(base_id)) as sandbox:
        await sandbox.files.write("given.txt", "43\n")
        with pytest.raises(PreconditionFailed):
            client.bases.delete_base(v1.DeleteBaseRequest(base_id=base_id))
    await shared.leave(origin, delete=delete)
    assert (base_id in bases(client)) is not delete
    # A task that entered and one that did not.
    await shared.leave(origin, delete=delete)
    assert (directory / "given.txt").read_text() == "42\n"


async def test_a_base_that_the_daemon_has_deleted_is_left_without_an_error(client: Client, roots: Path) -> None:
    directory = roots / "displaced"
    directory.mkdir()
    shared, origin = TaskBases(), Origin(directory=str(directory))
    await shared.enter(origin)
    base_id = await shared.base_id(origin)
    assert base_id is not None
    client.bases.delete_base(v1.DeleteBaseRequest(base_id=base_id))
    with pytest.raises(NotFound):
        await AsyncSandbox.create(profile="open", workspace=workspace(base_id))
    await shared.leave(origin, delete=True)


async def test_a_source_that_the_daemon_refuses_is_tried_again(client: Client, roots: Path) -> None:
    shared, origin = TaskBases(), Origin(directory=str(roots / "late"))
    with pytest.raises(NotFound, match="directory"):
        await shared.enter(origin)
    (roots / "late").mkdir()
    await shared.enter(origin)
    assert await shared.base_id(origin) in bases(client)
