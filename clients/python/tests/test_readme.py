"""The README's examples, as they stand; only names of this host are others."""

import asyncio
import re
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from daemon import Daemon

import cofferdam

README = (Path(__file__).parents[1] / "README.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```", README, flags=re.S)


@pytest.fixture
def repository(mortal: Daemon) -> Path:
    place = mortal.roots / "hello"
    (place / "src").mkdir(parents=True)
    (place / "src" / "main.rs").write_text('fn main() { println!("Hello"); }\n')
    (place / "Makefile").write_text("test:\n\tgrep Goodbye src/main.rs\n")
    for command in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-q", "-m", "first"]):
        subprocess.run(["git", "-c", "user.name=T", "-c", "user.email=t@example.org", *command], cwd=place, check=True)
    return place


def test_readme_has_six_examples() -> None:
    assert len(EXAMPLES) == 6


def test_the_first_example(
    mortal: Daemon,
    repository: Path,
    image: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # A daemon of its own: the profile limits the agent's commands.
    monkeypatch.setenv("COFFERDAM_ENDPOINT", mortal.endpoint)
    text = EXAMPLES[0].replace("/srv/workspaces/hello", str(repository)).replace("cofferdam/dev", image)
    exec(compile(text, "README.md", "exec"), {})
    said = capsys.readouterr().out
    assert "line=1" in said
    assert re.search(r"^[0-9a-f]{40}$", said, flags=re.M), said


def test_the_model_loop() -> None:
    function = SimpleNamespace(name="read", arguments='{"file_path": "a.txt"}')
    message = SimpleNamespace(tool_calls=[SimpleNamespace(id="c1", function=function)])
    messages: list[dict[str, Any]] = []
    with cofferdam.Sandbox.create(profile="open") as sandbox:
        sandbox.files.write("a.txt", "hi")
        names: dict[str, Any] = {
            "sandbox": sandbox,
            "messages": messages,
            "response": SimpleNamespace(choices=[SimpleNamespace(message=message)]),
        }
        exec(compile(EXAMPLES[1], "README.md", "exec"), names)
        assert {tool["type"] for tool in names["tools"]} == {"function"}
    assert messages[0]["tool_call_id"] == "c1"
    assert "hi" in messages[0]["content"]


def test_the_asynchronous_example() -> None:
    names: dict[str, Any] = {"AsyncSandbox": cofferdam.AsyncSandbox}
    indented = "".join(f"    {line}\n" for line in EXAMPLES[2].splitlines())
    exec(compile(f"async def example():\n{indented}    return sandbox\n", "README.md", "exec"), names)
    sandbox = asyncio.run(names["example"]())
    with pytest.raises(cofferdam.NotFound):
        cofferdam.Sandbox.connect(sandbox.run_id)


def test_commands_in_the_background(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {"Sandbox": cofferdam.Sandbox, "PtySize": cofferdam.PtySize}
    exec(compile(EXAMPLES[3], "README.md", "exec"), names)
    said = capsys.readouterr().out
    assert said.startswith("['counter']\n2\n")
    assert "40 120" in said
    assert said.endswith("0\n")


def test_sessions_and_transfers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.txt").write_text("a\n")
    exec(compile(EXAMPLES[4], "README.md", "exec"), {"Sandbox": cofferdam.Sandbox, "token": "not-a-real-one"})
    assert capsys.readouterr().out.endswith("bytes\nfast yes\n\n/workspace/data/made.txt\n")
    assert {path.name: path.read_text() for path in (tmp_path / "result").iterdir()} == {
        "a.txt": "a\n",
        "made.txt": "fast yes\n",
    }


def test_readme_lists_each_failing_framework_check() -> None:
    names: dict[str, Any] = {}
    exec((Path(__file__).parent / "frameworks" / "known.py").read_text(), names)
    checks = {
        (name, why)
        for table in (names["KNOWN"], names["LEFT_OUT"])
        for suite in table.values()
        for name, why in suite.items()
    }
    listed = re.findall(r"^\| [^|]+ \| `(test_\w+)` \| (.+?)(?:; not run)? \|$", README, flags=re.M)
    assert set(listed) == checks


def test_forks_and_checkpoints(roots: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = roots / "answers"
    place.mkdir()
    names = {"Sandbox": cofferdam.Sandbox, "Overlay": cofferdam.Overlay}
    exec(compile(EXAMPLES[5].replace("/srv/workspaces/answers", str(place)), "README.md", "exec"), names)
    assert capsys.readouterr().out == "1 file changed\n"
    assert (place / "answer.txt").read_text() == "42\n"
