"""The table that all SDKs share, for both halves of this one.

COFFERDAM_TEST_SCENARIOS    a regular expression of the scenarios to play, as `file: name`; all of them without it
"""

import asyncio
import inspect
import json
import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import aclosing, closing
from pathlib import Path
from typing import Any

import pytest
import yaml
from proxy import Proxy

import cofferdam

TABLE = Path(__file__).parents[2] / "scenarios"
CHOSEN = re.compile(os.environ.get("COFFERDAM_TEST_SCENARIOS", ""))
SCENARIOS = [
    pytest.param(scenario, id=name)
    for file in sorted(TABLE.glob("*.yaml"))
    for scenario in yaml.safe_load(file.read_text())
    if CHOSEN.search(name := f"{file.stem}: {scenario['name']}")
]
WORKSPACES: Mapping[str, Any] = {"bind": cofferdam.Bind, "clone": cofferdam.Clone, "overlay": cofferdam.Overlay}
MANAGED: Mapping[str, Any] = {"managed": cofferdam.Managed(), "kept": cofferdam.Managed(keep=True)}


class Local(dict[str, Any]):
    """What a scenario has saved, and its directory of the client's own."""

    place = Path()


def filled(value: Any, saved: Local) -> Any:
    """With `{$saved: name.attribute}`, `{$repeat: [text, times]}` and others replaced by their values."""
    if isinstance(value, dict):
        if "$saved" in value:
            name, *attributes = value["$saved"].split(".")
            found = saved[name]
            for attribute in attributes:
                found = getattr(found, attribute)
            return found
        if "$repeat" in value:
            text, times = value["$repeat"]
            return text * times
        if "$local" in value:
            return saved.place / value["$local"]
        if "$bytes" in value:
            return bytes.fromhex(value["$bytes"])
        if "$size" in value:
            return cofferdam.PtySize(*value["$size"])
        return {key: filled(inner, saved) for key, inner in value.items()}
    if isinstance(value, list):
        return [filled(inner, saved) for inner in value]
    return value


def check(found: Any, expected: Any, where: str) -> None:
    """A mapping names attributes or keys; a list is all of a sequence; `$…` are conditions."""
    if isinstance(expected, dict):
        for key, inner in expected.items():
            if key == "$contains":
                assert inner in found, f"{where}: {inner!r} is not in {found!r}"
            elif key == "$lacks":
                assert inner not in found, f"{where}: {inner!r} is in {found!r}"
            elif key == "$matches":
                assert re.search(inner, found), f"{where}: {found!r} does not match {inner!r}"
            elif key == "$length":
                assert len(found) == inner, f"{where}: {len(found)} long"
            else:
                part = found[key] if isinstance(found, Mapping) else getattr(found, key)
                check(part, inner, f"{where}.{key}")
    elif isinstance(expected, list):
        assert isinstance(found, Sequence), where
        assert len(found) == len(expected), f"{where}: {found!r}"
        for at, (one, inner) in enumerate(zip(found, expected, strict=True)):
            check(one, inner, f"{where}[{at}]")
    else:
        assert found == expected, f"{where}: {found!r} is not {expected!r}"


async def settled(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


def is_directory(path: str) -> bool:
    return Path(path).is_dir()


def tree(place: Path) -> Any:
    """The content of a file; names and contents of all that is in a directory, links as links."""
    if place.is_symlink():
        return place.readlink()
    return {inner.name: tree(inner) for inner in place.iterdir()} if place.is_dir() else place.read_bytes()


async def next_of(sequence: Any) -> Any:
    return await anext(sequence) if hasattr(sequence, "__anext__") else next(sequence)


async def first_of(sequence: Any) -> Any:
    """What iterating it anew gives first, as soon as it is there."""
    if hasattr(sequence, "__aiter__"):
        async with aclosing(aiter(sequence)) as items:
            return await anext(items)
    with closing(iter(sequence)) as items:
        return next(items)


async def rest_of(sequence: Any) -> list[Any]:
    return [item async for item in sequence] if hasattr(sequence, "__anext__") else list(sequence)


async def records(sandbox: Any) -> str:
    """Those of the run in the audit log."""
    events = await rest_of(sandbox.audit.stream(follow=False))
    return json.dumps([event.record for event in events])


async def play(scenario: Mapping[str, Any], kind: Any, place: Path, local: Path) -> None:
    saved = Local()
    saved.place = local
    sandbox = await settled(kind.create(**wanted(scenario, place)))
    try:
        for number, step in enumerate(scenario["steps"], 1):
            if "directory" in step:
                assert is_directory(filled(step["directory"], saved)) == step["exists"], f"step {number}"
                continue
            if "local" in step:
                assert tree(local / step["local"]) == tree(local / step["same_as"]), f"step {number}"
                continue
            if "record" in step:
                check(await records(sandbox), step["record"], f"step {number}")
                continue
            if "next" in step:
                item = await next_of(saved[step["next"]])
                check(item, filled(step["gives"], saved), f"step {number}")
                if "save" in step:
                    saved[step["save"]] = item
                continue
            if "first" in step:
                check(await first_of(saved[step["first"]]), step["gives"], f"step {number}")
                continue
            if "rest" in step:
                check(await rest_of(saved[step["rest"]]), filled(step["gives"], saved), f"step {number}")
                continue
            where = f"step {number}, {step['call']}"
            target = sandbox if "options" not in step else sandbox.with_options(**step["options"])
            target = saved[step["of"]] if "of" in step else target
            for name in step["call"].split("."):
                target = getattr(target, name)
            arguments = filled(step.get("with", {}), saved)
            heard: dict[str, list[str]] = {name: [] for name in step.get("hears", {})}
            for name, pieces in heard.items():
                arguments[name] = pieces.append
            if "raises" in step:
                with pytest.raises(getattr(cofferdam, step["raises"]["kind"])) as caught:
                    await settled(target(**arguments))
                assert isinstance(caught.value, cofferdam.CofferdamError)
                check(caught.value, {k: v for k, v in filled(step["raises"], saved).items() if k != "kind"}, where)
                outcome: Any = caught.value
            else:
                outcome = await settled(target(**arguments))
                if "gives" in step:
                    check(outcome, filled(step["gives"], saved), where)
            for name, pieces in heard.items():
                whole = pieces[0][:0].join(pieces) if pieces else ""
                check(whole, filled(step["hears"][name], saved), f"{where}, {name}")
            if "save" in step:
                saved[step["save"]] = outcome
    finally:
        await settled(sandbox.kill())


def wanted(scenario: Mapping[str, Any], place: Path) -> dict[str, Any]:
    """The arguments of `create`, with a workspace of these files."""
    arguments: dict[str, Any] = {"profile": "open", **scenario.get("sandbox", {})}
    kind = arguments.pop("workspace", "managed")
    if kind in MANAGED:
        return {**arguments, "workspace": MANAGED[kind]}
    for path, content in scenario.get("files", {}).items():
        file = place / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    if scenario.get("repository"):
        for command in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-q", "-m", "first"]):
            subprocess.run(
                ["git", "-c", "user.name=Test", "-c", "user.email=test@example.org", *command], cwd=place, check=True
            )
    subprocess.run(["chown", "-R", "4321:4321", str(place)], check=True)
    arguments["workspace"] = WORKSPACES[kind](place)
    return arguments


@pytest.mark.parametrize("kind", [cofferdam.Sandbox, cofferdam.AsyncSandbox], ids=["sync", "async"])
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_scenario(
    scenario: Mapping[str, Any],
    kind: Any,
    roots: Path,
    endpoint: str,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = roots / re.sub(r"\W+", "-", request.node.name)
    place.mkdir()
    local = tmp_path / "local"
    for path, content in scenario.get("local", {}).items():
        file = local / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(filled(content, Local()))
    proxy = Proxy(tmp_path / "proxy.sock", endpoint)
    if "connection" in scenario:
        proxy.cut_after_sent = scenario["connection"]["cut_after"]
        monkeypatch.setenv("COFFERDAM_ENDPOINT", proxy.endpoint)
    asyncio.run(play(scenario, kind, place, local))
    proxy.close()
