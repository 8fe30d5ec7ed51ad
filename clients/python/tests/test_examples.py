"""The examples of this repository and of the book, as they stand."""

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from repositories import commit, deleted_bases, repository_of

from cofferdam import ApprovalDenied, Client, Sandbox

EXAMPLES = Path(__file__).parents[3] / "examples"
BOOK = EXAMPLES.parent / "docs" / "examples"
SOURCE = Path(__file__).parents[1] / "src"
#: Of rollouts: the daemon of the tests has other work.
NUMBER = 100


@pytest.fixture
def client(endpoint: str) -> Iterator[Client]:
    yield from deleted_bases(endpoint)


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(SOURCE), "PYTHONUNBUFFERED": "1"}


def ran(example: str, *arguments: str, code: int = 0, talk: str = "", cwd: Path | None = None) -> str:
    command = [sys.executable, str(EXAMPLES / example), *arguments]
    done = subprocess.run(command, env=environment(), cwd=cwd, capture_output=True, text=True, timeout=200)
    assert (done.returncode, done.stderr) == (code, talk), done.stdout
    return done.stdout


def test_every_example_is_run() -> None:
    source = Path(__file__).read_text()
    for example in EXAMPLES.glob("*.py"):
        assert f'"{example.name}"' in source
        assert f"({example.name})" in (EXAMPLES / "README.md").read_text()


def test_every_program_of_the_book_is_run() -> None:
    suites = [suite.read_text() for suite in (Path(__file__).parent / "frameworks").glob("suite_*.py")]
    for program in (BOOK / "integrations").glob("*.py"):
        assert any(f'program("{program.stem}")' in suite for suite in suites), program.name


def test_a_model_repairs_a_program() -> None:
    said = ran("repair_loop.py")
    assert "multiply" in said
    assert "passed" in said


def test_rollouts_run_side_by_side() -> None:
    *lines, summary = ran("rollouts.py", str(NUMBER)).splitlines()
    results = [json.loads(line) for line in lines]
    assert sorted(result["seed"] for result in results) == list(range(NUMBER))
    assert len({result["run_id"] for result in results}) == NUMBER
    assert {result["reward"] for result in results} == {0.0, 1.0}
    assert summary.startswith(f"{NUMBER} rollouts in ")
    assert not list(Sandbox.list(metadata={"seed": "0"}))


def test_the_smallest_change_that_passes_is_the_best(roots: Path, tmp_path: Path) -> None:
    place = repository_of(roots / tmp_path.name, "given\n")
    (place / "area.sh").write_text("area() { echo $(($1 + $2)); }\n")
    (place / "test.sh").write_text('. ./area.sh\n[ "$(area 6 7)" = 42 ]\n')
    commit(place, "changed\n")
    before = {run.run_id for run in Sandbox.list(None)}
    assert ran("best_of_n.py", str(place), "2", code=1).endswith("no attempt passed\n")
    assert {run.run_id for run in Sandbox.list(None)} == before
    assert "$1 + $2" in (place / "area.sh").read_text()
    assert ran("best_of_n.py", str(place), "6").splitlines() == [
        "attempt 0: failed, 2 lines",
        "attempt 1: failed, 2 lines",
        "attempt 2: passed, 6 lines",
        "attempt 3: passed, 2 lines",
        "attempt 4: failed, 2 lines",
        "attempt 5: failed, 2 lines",
        "best: attempt 3, 1 file changed",
    ]
    assert (place / "area.sh").read_text() == "area() { echo $(($1 * $2)); }\n"
    # The run of the best attempt stays on record.
    assert [run.state for run in Sandbox.list(None) if run.run_id not in before] == ["stopped"]


def test_the_best_path_of_a_tree_of_episodes_is_found() -> None:
    *episodes, best = ran("episode_tree.py", "2").splitlines()
    assert len(episodes) == 9
    assert episodes[1] == "+ 3, * 2: 0.14"
    assert best == "best of 9: + 3, * 2, reward 0.14"
    assert not [run for run in Sandbox.list() if run.agent_id == "episodes"]


def test_a_chat_decides() -> None:
    command = [sys.executable, str(EXAMPLES / "approver_bot.py")]
    pipe = subprocess.PIPE
    with (
        Sandbox.create(profile="strict", agent_id="chatty", wait_for_approval=True) as sandbox,
        subprocess.Popen(command, env=environment(), stdin=pipe, stdout=pipe, text=True) as bot,
    ):
        assert bot.stdin is not None
        assert bot.stdout is not None

        def say(text: str) -> None:
            assert bot.stdin is not None
            print(text, file=bot.stdin, flush=True)

        def hear(pattern: str) -> str:
            assert bot.stdout is not None
            for line in bot.stdout:
                if found := re.search(pattern, line):
                    return found[1]
            pytest.fail(f"the bot does not say {pattern}")

        def write() -> None:
            outcomes.append(sandbox.files.write("a.txt", "hi"))

        outcomes: list[object] = []
        writing = threading.Thread(target=write)
        writing.start()
        say("nonsense")
        asked = hear(r"(\w{8}): chatty asks for write")
        say(f"yes {asked}")
        hear(f"({asked}): approved")
        writing.join(timeout=30)
        assert len(outcomes) == 1

        def refused() -> None:
            with pytest.raises(ApprovalDenied, match="not today"):
                sandbox.files.write("b.txt", "hi")
            outcomes.append(None)

        writing = threading.Thread(target=refused)
        writing.start()
        asked = hear(r"(\w{8}): chatty asks for write")
        say(f"no {asked} not today")
        hear(f"({asked}): denied")
        writing.join(timeout=30)
        assert outcomes[1:] == [None]
        bot.stdin.close()
        assert bot.wait(timeout=30) == 0


def test_a_commit_is_reviewed(roots: Path) -> None:
    place = roots / "reviewed"
    place.mkdir()

    def git(*words: str) -> None:
        identity = ["-c", "user.name=T", "-c", "user.email=t@example.org"]
        subprocess.run(["git", *identity, *words], cwd=place, check=True)

    git("init", "-q", "-b", "main")
    (place / "a.py").write_text("def area():\n    pass\n")
    git("add", "-A")
    git("commit", "-q", "-m", "first")
    (place / "b.py").write_text(f"# One.\n\ndef area():\n    token = 'abc'\n    return {'1' * 200}\n")
    git("add", "-A")
    git("commit", "-q", "-m", "second")
    found = [json.loads(line) for line in ran("review_bot.py", str(place), code=1).splitlines()]
    assert [(one["path"], one["line"], one["remark"].split(":")[0].split(" ")[0]) for one in found] == [
        ("b.py", 3, "is"),
        ("b.py", 4, "looks"),
        ("b.py", 5, "is"),
    ]
    assert "a.py:1" in found[0]["remark"]
    (place / "a.py").write_text("def area(sides):\n    pass\n")
    git("commit", "-q", "-a", "-m", "third")
    assert "b.py:3" in ran("review_bot.py", str(place), code=1)
    (place / "c.py").write_text("x = 1\n")
    git("add", "-A")
    git("commit", "-q", "-m", "fourth")
    assert ran("review_bot.py", str(place)) == ""
    assert ran("review_bot.py", str(place), "HEAD~2", code=1).count("\n") == 3


def test_a_directory_is_built_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("one\ntwo\n")
    (tmp_path / ".git").mkdir()
    talk = "1 entries, 8 bytes; 1 left out\n"
    said = ran("remote_build.py", str(tmp_path), "n=$(wc -l < words.txt)", "mkdir out; echo $n | tee out/n", talk=talk)
    assert said == "2\n"
    assert (tmp_path / "out" / "n").read_text() == "2\n"
    talk = "3 entries, 10 bytes; 1 left out\n"
    assert ran("remote_build.py", str(tmp_path), "echo a; exit 3", "echo b", code=3, talk=talk) == "a\n"


def test_the_loop_of_the_book(roots: Path, tmp_path: Path) -> None:
    place = roots / "area"
    place.mkdir()
    (place / "area.sh").write_text("area() { echo $(($1 + $2)); }\n")
    (place / "test.sh").write_text('. ./area.sh\n[ "$(area 6 7)" = 42 ] && echo passed\n')
    for words in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-q", "-m", "first"]):
        identity = ["-c", "user.name=T", "-c", "user.email=t@example.org"]
        subprocess.run(["git", *identity, *words], cwd=place, check=True)
    command = [sys.executable, str(BOOK / "loop.py"), str(place)]
    done = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "before: 1",
        "after: passed",
        "refused: COMMAND_NOT_ALLOWED",
        "event: exec failed",
        "event: write succeeded",
        "event: exec succeeded",
        "event: exec denied",
    ]
    assert "\n+area() { echo $(($1 * $2)); }\n" in (tmp_path / "change.diff").read_text()
