"""Trials of Harbor that begin on a base."""

import asyncio
from pathlib import Path

import pytest
from repositories import bases, commit
from trials import Make, maker, trial

from cofferdam import Client, NotFound, Sandbox
from cofferdam.integrations.harbor import CofferdamEnvironment

#: Its commands begin where the files of a base are.
HERE = {"workdir": "/workspace"}


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARBOR_TELEMETRY", "off")


@pytest.fixture
def make(tmp_path: Path, image: str, profile: str) -> Make:
    return maker(tmp_path, image, profile)


async def read_and_changed(environment: CofferdamEnvironment) -> str | None:
    """The file as the environment finds it."""
    await environment.start(force_build=False)
    try:
        return (await environment.exec("cat given.txt && echo changed > given.txt")).stdout
    finally:
        await environment.stop(delete=True)


async def test_trials_at_once_begin_on_one_base_of_a_repository(client: Client, make: Make, repository: Path) -> None:
    before = bases(client)
    environments = [make(repository=str(repository), revision="main") for _ in range(3)]
    assert await asyncio.gather(*map(read_and_changed, environments)) == ["42\n"] * 3
    (base_id,) = bases(client) - before
    commit(repository, "43\n")
    assert await read_and_changed(make(base=base_id, task=HERE)) == "42\n"
    assert await read_and_changed(make(repository=str(repository))) == "43\n"
    assert base_id in bases(client)


async def test_a_run_that_stays_keeps_its_changes_and_its_base(client: Client, make: Make, repository: Path) -> None:
    environment = make(repository=str(repository))
    await environment.start(force_build=False)
    run_id = environment.sandbox.run_id
    await environment.exec("echo 43 > given.txt")
    await environment.stop(delete=False)
    sandbox = Sandbox.connect(run_id, client=client)
    assert [changed.path for changed in sandbox.diff().files] == ["given.txt"]
    sandbox.kill(delete_workspace=True)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"base": "a", "repository": "/b"}, "exclude"),
        ({"base": "a", "revision": "main"}, "revision"),
    ],
)
def test_two_sources_of_files_are_refused(make: Make, options: dict[str, str], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        make(**options)


async def test_a_base_that_is_not_there_is_reported_at_once(make: Make) -> None:
    with pytest.raises(NotFound, match="base"):
        await make(base="0190a6f0-0000-7000-8000-000000000000").start(force_build=False)


def test_a_revision_of_digits_is_a_text(make: Make) -> None:
    assert make(repository="/b", revision=1234567)._origin.revision == "1234567"


def test_a_whole_run_begins_on_the_base_of_a_repository(
    client: Client, tmp_path: Path, repository: Path, image: str, profile: str
) -> None:
    (repository / "more.txt").write_text("42\n")
    commit(repository, "41\n")
    before = bases(client)
    options = {"repository": str(repository)}
    result = trial(tmp_path, image, profile, "Write the answer.", "oracle", source="cat more.txt", options=options)
    assert result["verifier_result"]["rewards"] == {"reward": 1.0}
    assert len(bases(client) - before) == 1
    assert not (repository / "answer").exists()
