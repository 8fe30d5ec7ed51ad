"""Both SDKs have the same surface: methods and their arguments, fields of results, and errors.

The TypeScript one is read from its sources. Both count in the same units, so that names alone are compared.
"""

import dataclasses
import inspect
import re
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

import cofferdam
from cofferdam import errors, types
from cofferdam._options import Options

SOURCES = Path(__file__).parents[2] / "typescript/src"
WORKSPACES = ("Managed", "Bind", "Clone", "Overlay", "Base", "Checkpoint")
PARTS = ("approvals", "audit", "calls", "commands", "files", "git", "pty", "search", "sessions")

#: `Class.member` or `Class.member.argument` as Python has it: how TypeScript names the same.
NAMES = {
    "Files.download.progress": "on_progress",
    "Files.upload.progress": "on_progress",
    "Sandbox.call_tool.arguments": "args",
    "Sandbox.edit.new": "replacement",
}

#: What a sequence has by itself, in Python and in TypeScript.
SEQUENCE = ({"count", "index"}, {"at", "length"})

#: Errors that TypeScript lacks: only the Harbor integration has the daemon build images.
ONLY_PYTHON = ("BuildFailed",)

#: Arguments of each method by its name; None for an attribute.
Surface = dict[str, set[str] | None]


def snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])([A-Z])", lambda found: f"_{found[1].lower()}", name)


def closing(text: str, at: int) -> int:
    """Where the bracket that opens at this place is closed."""
    depth = 0
    for found in re.finditer(r"=>|[()\[\]{}<>]", text[at:]):
        if found[0] != "=>":
            depth += 1 if found[0] in "([{<" else -1
        if depth == 0:
            return at + found.start()
    raise AssertionError(f"never closed: {text[at : at + 80]}")


def pieces(text: str, separator: str) -> Iterator[str]:
    """Its parts between separators that are in no bracket."""
    begin = at = 0
    while at < len(text):
        if text[at] in "([{<":
            at = closing(text, at)
        elif text[at] in separator:
            yield text[begin:at].strip()
            begin = at + 1
        at += 1
    yield text[begin:].strip()


class TypeScript:
    """Its classes and interfaces, as far as their sources are written in the usual form."""

    def __init__(self) -> None:
        #: What a class or an interface extends, and its body.
        self.found: dict[str, tuple[list[str], str]] = {}
        self.functions: dict[str, set[str]] = {}
        for file in sorted(SOURCES.glob("*.ts")):
            self._read(file.read_text())

    def _read(self, text: str) -> None:
        text = re.sub(r"/\*\*(?:(?!\*/).)*@internal.*?\*/\s*(?=\w)", "#", text, flags=re.S)
        text = re.sub(r"/\*.*?\*/|^\s*//.*?$", "", text, flags=re.S | re.M)
        head = r"^export (?:class|interface) (\w+)(?:<[^{]*?>)?(?: extends ([\w, ]+?))?(?: implements [^{]+?)? (\{\}?)$"
        for found in re.finditer(head, text, flags=re.M):
            body = "" if found[3] == "{}" else text[found.end() : text.index("\n}", found.end())]
            self.found[found[1]] = ([name.strip() for name in (found[2] or "").split(",") if name], body)
        for found in re.finditer(r"^export function (\w+)\(", text, flags=re.M):
            if found[1] in WORKSPACES:
                self.functions[found[1]] = self._arguments(text[found.end() : closing(text, found.end() - 1)])

    def fields(self, name: str) -> set[str]:
        """Those of an interface, or of a class that is one."""
        bases, body = self.found[name]
        own = {snake(found[1]) for found in re.finditer(r"^  (?:readonly |get )?(\w+)(?:\?|\(\))?: ", body, flags=re.M)}
        return own.union(*(self.fields(base) for base in bases if base in self.found))

    def members(self, name: str) -> Surface:
        bases, body = self.found[name]
        members: Surface = {}
        for base in bases:
            members |= self.members(base)
        for found in re.finditer(r"^  (?:readonly |get )(\w+)(?:\(\))?: ", body, flags=re.M):
            members[snake(found[1])] = None
        for found in re.finditer(r"^  (?:static )?(?:async )?(\w+)(?:<\w+>)?\(", body, flags=re.M):
            given = self._arguments(body[found.end() : closing(body, found.end() - 1)])
            members[snake(found[1])] = given | (members.get(snake(found[1])) or set())
        return members

    def _arguments(self, listed: str) -> set[str]:
        names: set[str] = set()
        for one in pieces(listed, ","):
            if one:
                name, kind = re.split(r"\?? ?: |\?? = ", one, maxsplit=1)
                names |= self._options(kind) if name == "options" else {snake(name)}
        return names

    def _options(self, kind: str) -> set[str]:
        """The names in a type of options: interfaces and literals, joined by `&` or `|`."""
        names: set[str] = set()
        for one in pieces(kind.removesuffix(" = {}"), "&|"):
            omitted = re.fullmatch(r"Omit<(\w+), keyof (\w+)>", one)
            if omitted is not None:
                names |= self._options(omitted[1]) - self._options(omitted[2])
                continue
            if one.startswith("{"):
                listed = [field for field in pieces(one[1:-1], ";") if field]
            else:
                bases, body = self.found[one]
                listed = [field for field in pieces(body, ";") if field]
                names = names.union(*(self._options(base) for base in bases))
            for field in listed:
                name, kind = field.split(":", maxsplit=1)
                # Python cancels the task, or has none to cancel.
                if "AbortSignal" not in kind:
                    names.add(snake(name.removeprefix("readonly ").rstrip("?")))
        return names


def python(kind: type[Any], instance: object = None) -> Surface:
    members: Surface = {name: None for name in (vars(instance) if instance is not None else ()) if not name.startswith("_")}
    for name, value in inspect.getmembers(kind):
        if not name.startswith("_"):
            members[name] = set(inspect.signature(value).parameters) - {"self"} if callable(value) else None
    return members


def named(surface: Surface, of: str) -> set[str]:
    """All members and arguments, under TypeScript's names."""
    names: set[str] = set()
    for member, given in surface.items():
        whole = f"{of}.{member}"
        names |= {whole} | {f"{whole}.{NAMES.get(f'{whole}.{argument}', argument)}" for argument in given or ()}
    return names


def both(asynchronous: bool) -> Iterator[tuple[str, Surface]]:
    """Classes of the two halves, by TypeScript's names."""
    prefix = "Async" if asynchronous else ""
    client = getattr(cofferdam, f"{prefix}Client")("unix:/nowhere")
    sandbox = getattr(cofferdam, f"{prefix}Sandbox")(
        client, "", Options(wait_for_approval=False, env={}), owns_client=False, delete_workspace=False
    )
    yield "Sandbox", python(type(sandbox), sandbox)
    yield "Client", {**python(type(client), client), "constructor": set(inspect.signature(type(client)).parameters)}
    forks = getattr(cofferdam, f"{prefix}Forks")(client, (), (), "", owns_checkpoint=False)
    surface = python(type(forks), forks)
    yield "Forks", {name: given for name, given in surface.items() if name not in SEQUENCE[0]}
    listed = (cofferdam.FleetNode(1, "unix:/nowhere"),)
    fleet = getattr(cofferdam, f"{prefix}Fleet")(listed, None, None, 1.0, 1.0, 1.0)
    surface = python(type(fleet), fleet)
    # All but the connection, which is the fleet's.
    connection = {"client", "endpoint", "token", "tls"}
    surface["create"] = set(inspect.signature(type(sandbox).create).parameters) - connection
    yield "Fleet", surface
    for name in ("CommandHandle", "Session"):
        yield name, python(getattr(cofferdam, prefix + name))
    for name in PARTS:
        yield name.capitalize(), python(type(getattr(sandbox, name)))


@pytest.fixture(scope="module")
def typescript() -> TypeScript:
    return TypeScript()


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
def test_methods_and_arguments_are_the_same(typescript: TypeScript, asynchronous: bool) -> None:
    ours: set[str] = set()
    theirs: set[str] = set()
    for name, surface in both(asynchronous):
        members = typescript.members(name)
        if "constructor" not in surface:
            # A program has these from other methods.
            members.pop("constructor", None)
        if name == "Forks":
            members = {member: given for member, given in members.items() if member not in SEQUENCE[1]}
        ours |= named(surface, name)
        theirs |= named(members, name)
    assert len(theirs) > 250, "the sources of the TypeScript SDK have another form than this test knows"
    assert ours - theirs == set(), "the TypeScript SDK lacks these"
    assert theirs - ours == set(), "the Python SDK lacks these"


def test_results_have_the_same_fields(typescript: TypeScript) -> None:
    for name, kind in vars(types).items():
        if not dataclasses.is_dataclass(kind):
            continue
        ours = {field.name for field in dataclasses.fields(kind)}
        if name in WORKSPACES:
            assert ours == typescript.functions[name], name
            continue
        ours |= {name for name, value in vars(kind).items() if isinstance(value, property | cached_property)}
        if hasattr(kind, "__len__"):
            ours.add("length")
        assert ours == typescript.fields(name), name


def test_errors_are_the_same(typescript: TypeScript) -> None:
    kinds = [kind for kind in vars(errors).values() if inspect.isclass(kind) and issubclass(kind, errors.CofferdamError)]
    # Python's own classes come after those of this package.
    ours = {kind.__name__: kind.__bases__[0].__name__ for kind in kinds if kind.__name__ not in ONLY_PYTHON}
    # There a failure of the infrastructure is known by its `fault`, and its class has one base.
    ours = {name: "CofferdamError" if base == "InfrastructureError" else base for name, base in ours.items()}
    theirs = {name: bases[0] for name, (bases, _) in typescript.found.items() if bases and bases[0] in ours}
    assert theirs == {name: base for name, base in ours.items() if name != "CofferdamError"}
