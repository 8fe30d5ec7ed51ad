"""Compose files of tasks: one service is the sandbox itself, the others are companions.

The same form as `coffer run create --compose` reads. Every problem is named with its line.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cofferdam.integrations._compose_values import MIB, Key, Values, loaded
from cofferdam.types import Companion, Limits

# Bounds of a file: bytes, and services.
MAX_FILE = MIB
MAX_SERVICES = 32
# Seconds: the longest time until a companion is ready, the bounds between two attempts, and Compose's defaults.
MAX_READY = 600.0
INTERVALS = (0.05, 60.0)
DEFAULT_TIME, DEFAULT_RETRIES = 30.0, 3
LABEL = re.compile(r"(?!localhost$)[a-z]([a-z0-9-]{0,61}[a-z0-9])?")

OF_FILE = ("services", "name", "version")
OF_COMPANION = (
    "image",
    "command",
    "environment",
    "healthcheck",
    "depends_on",
    "expose",
    "ports",
    "mem_limit",
    "deploy",
    "init",
    "restart",
    "network_mode",
)
# What it says of a container that a run does not have is without effect.
OF_MAIN = (*OF_COMPANION, "build", "cpus", "pull_policy", "stop_grace_period")
OF_CHECK = ("test", "interval", "timeout", "retries", "start_period", "start_interval", "disable")


@dataclass(frozen=True)
class Main:
    """The service that is the sandbox itself. Its command is not started."""

    name: str = "default"
    #: None: the file leaves it to the task.
    image: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True)
class Project:
    main: Main = field(default_factory=Main)
    companions: tuple[Companion, ...] = ()
    #: What is under `x-cofferdam`.
    options: Mapping[str, Any] = field(default_factory=dict)


def read(path: Path, is_main: Callable[[str, Mapping[str, Any]], bool], **known: Any) -> Project:
    """Reads a file. Raises `OSError`, and `ValueError` with every problem and its line. See `parse`."""
    with path.open("rb") as file:
        data = file.read(MAX_FILE + 1)
    if len(data) > MAX_FILE:
        raise ValueError(f"{path}: larger than {MAX_FILE} bytes")
    try:
        tree, lines = loaded(data.decode())
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    return parse(tree, is_main, file=str(path), lines=lines, **known)


def parse(
    tree: object,
    is_main: Callable[[str, Mapping[str, Any]], bool],
    *,
    file: str = "the Compose file",
    lines: Mapping[Key, int] | None = None,
    variables: Mapping[str, str] | None = None,
    default_main: str | None = None,
) -> Project:
    """Returns what the values of a file say. Raises `ValueError` with every problem.

    `is_main`: which service is the sandbox itself, by name and keys. `variables`: values that replace them in texts; any
    other variable is a problem. `default_main`: the name of the sandbox where the file has no such service.
    """
    reader = _Reader(file, lines or {}, variables or {})
    project = reader.project(tree, is_main, default_main)
    if reader.problems:
        raise ValueError("the Compose file cannot be used:\n" + "\n".join(reader.problems))
    assert project is not None, "what is not read is a problem"
    return project


class _Reader(Values):
    """Reads the services of a file."""

    def project(
        self, tree: object, is_main: Callable[[str, Mapping[str, Any]], bool], default_main: str | None
    ) -> Project | None:
        top = self.keys(tree, (), OF_FILE)
        services = self.mapping(top.get("services"), ("services",))
        if not 1 <= len(services) <= MAX_SERVICES:
            self.problem(("services",), f"must have 1 to {MAX_SERVICES} services")
            return None
        plain = {name: value if isinstance(value, dict) else {} for name, value in services.items()}
        mains = [name for name, service in plain.items() if is_main(name, service)]
        if len(mains) > 1 or not (mains or default_main):
            self.problem(("services",), f"one service must be the sandbox itself, and {', '.join(mains) or 'none'} is")
            return None
        main = Main(mains[0] if mains else default_main or "")
        companions = []
        for name, service in services.items():
            if name in mains:
                main = self.main(name, service)
            else:
                companions.append(self.companion(name, service))
        self.order(plain, main.name, [companion.name for companion in companions if companion.ready is not None])
        options = self.mapping(tree.get("x-cofferdam") if isinstance(tree, dict) else None, ("x-cofferdam",))
        return Project(main, tuple(companions), options)

    def main(self, name: str, service: object) -> Main:
        path = ("services", name)
        keys = self.keys(service, path, OF_MAIN)
        self.no_network(keys, path)
        build = keys.get("build")
        context = build.get("context") if isinstance(build, dict) and set(build) == {"context"} else build
        if context is not None and self.text(context, (*path, "build")) != ".":
            self.problem((*path, "build"), "only `.`, the directory of the task, can be built")
        image = self.text(keys["image"], (*path, "image"), blank=True) if "image" in keys else ""
        cpus = self.number(keys["cpus"], (*path, "cpus")) if "cpus" in keys else None
        memory = self.memory(keys, path)
        return Main(
            name=name,
            image=image or None,
            env=self.environment(keys.get("environment"), (*path, "environment")),
            limits=Limits(
                cpu_millis=None if cpus is None else round(cpus * 1000),
                memory_bytes=None if memory is None else memory * MIB,
            ),
        )

    def companion(self, name: str, service: object) -> Companion:
        path = ("services", name)
        if not LABEL.fullmatch(name):
            self.problem(path, "the name of a companion has at most 63 small letters, digits and `-`, as in a host name")
        keys = self.keys(service, path, OF_COMPANION)
        if "image" not in keys:
            self.problem(path, "`image` is missing")
        if keys.get("restart", "no") != "no":
            self.problem((*path, "restart"), "a companion that ends is not started again; leave the key out")
        self.no_network(keys, path)
        ports = self.ports(keys, path)
        if not ports:
            self.problem(path, "no command could reach it, because it names no port; write it as in `expose: [5432]`")
        ready, timeout, interval = self.check(keys.get("healthcheck"), (*path, "healthcheck"))
        return Companion(
            name=name,
            image=self.text(keys.get("image", ""), (*path, "image"), blank=True),
            command=self.words(keys["command"], (*path, "command")) if "command" in keys else (),
            env=self.environment(keys.get("environment"), (*path, "environment")),
            ready=ready,
            ready_timeout=timeout,
            ready_interval=interval,
            memory_mib=self.memory(keys, path),
            ports=ports,
            depends_on=tuple(self.dependencies(keys.get("depends_on"), (*path, "depends_on"))),
        )

    def no_network(self, keys: Mapping[str, Any], path: Key) -> None:
        if keys.get("network_mode", "none") != "none":
            self.problem((*path, "network_mode"), "no container has a network; leave the key out")

    def order(self, services: Mapping[str, Mapping[str, Any]], main: str, checked: Sequence[str]) -> None:
        """Names under `depends_on` exist, and nothing depends on the sandbox or on itself."""
        needs: dict[str, set[str]] = {}
        for name, service in services.items():
            path: Key = ("services", name, "depends_on")
            depends = self.dependencies(service.get("depends_on"), path)
            needs[name] = set(depends)
            for other, given in depends.items():
                condition = given.get("condition", "service_started")
                if other not in services:
                    self.problem(path, f"no service is named {other!r}")
                elif other == main:
                    self.problem(path, f"{other} is the sandbox, which is ready after all companions")
                elif condition not in ("service_started", "service_healthy") or given.get("required") is False:
                    self.problem(path, f"{other}: only the conditions service_started and service_healthy are known")
                elif condition == "service_healthy" and other not in checked:
                    self.problem(path, f"{other} has no healthcheck")
        waiting = dict(needs)
        while ready := [name for name, others in waiting.items() if not others & waiting.keys()]:
            for name in ready:
                del waiting[name]
        for name in waiting:
            self.problem(("services", name, "depends_on"), "depends on itself, directly or by way of others")

    def dependencies(self, value: object, path: Key) -> dict[str, dict[str, Any]]:
        """Names and their conditions, of a list or a mapping."""
        if isinstance(value, list):
            return {name: {} for name in self.strings(value, path)}
        return {
            name: self.keys(how, (*path, name), ("condition", "required")) for name, how in self.mapping(value, path).items()
        }

    def check(self, value: object, path: Key) -> tuple[Sequence[str] | None, float | None, float | None]:
        """A command, the time that a companion has, and the time between two attempts."""
        none = (None, None, None)
        keys = self.keys(value, path, OF_CHECK) if value is not None else {}
        if not keys or keys.get("disable") is True:
            return none
        test = keys.get("test")
        words = self.strings(test, (*path, "test")) if isinstance(test, list) else ["CMD-SHELL", self.text(test, path)]
        if words == ["NONE"]:
            return none
        times = {
            name: self.seconds(keys[name], (*path, name))
            for name in ("interval", "timeout", "start_period", "start_interval")
            if name in keys
        }
        retries = self.number(keys["retries"], (*path, "retries")) if "retries" in keys else DEFAULT_RETRIES
        total = times.get("start_period", 0) + (retries or 0) * (
            times.get("interval", DEFAULT_TIME) + times.get("timeout", DEFAULT_TIME)
        )
        interval = times.get("start_interval", times.get("interval"))
        if interval is not None:
            interval = min(max(interval, INTERVALS[0]), INTERVALS[1])
        if words[:1] == ["CMD-SHELL"] and len(words) == 2:
            words = ["CMD", "/bin/sh", "-c", words[1]]
        if words[:1] != ["CMD"] or len(words) < 2:
            self.problem(path, "`test` must be a text, [CMD, PROGRAM, …], [CMD-SHELL, SCRIPT] or [NONE]")
        return tuple(words[1:]), max(1.0, min(total, MAX_READY)), interval
