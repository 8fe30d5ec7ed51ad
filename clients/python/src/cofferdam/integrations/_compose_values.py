"""Values of a Compose file, with every problem and its line."""

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

MIB = 1024 * 1024
# Bounds of a file: values after aliases are expanded, and levels.
MAX_VALUES = 50_000
MAX_DEPTH = 24
MAX_PORTS = 16

UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,3})?)([kmg]?)i?b?", re.IGNORECASE)
TIME = re.compile(r"(?:\d{1,9}(?:ms|h|m|s))+")
VARIABLE = re.compile(r"\$(?:(\$)|\{([A-Za-z_]\w*)(?::-([^}$]*))?\}|([A-Za-z_]\w*)|)")

FILES = "no directory of the host and no volume is mounted in a companion"
NETWORK = "companions share no network: commands reach each by its name; leave the key out"
HOST = "a companion has no more rights on the host than a sandbox"
#: Reasons for which keys are refused. All others are unknown.
REFUSED: Mapping[str, str] = {
    "build": "no image is built for a companion; name one that the engine has by `image`",
    "entrypoint": "the entrypoint of the image stays; give its arguments by `command`",
    "env_file": "no other file is read; write the variables under `environment`",
    "extends": "no other service is taken over",
    **dict.fromkeys(("volumes", "volumes_from", "tmpfs", "configs", "secrets"), FILES),
    **dict.fromkeys(("networks", "links", "extra_hosts", "hostname", "container_name", "dns"), NETWORK),
    **dict.fromkeys(("privileged", "cap_add", "devices", "security_opt", "pid", "ipc", "sysctls", "ulimits"), HOST),
    **dict.fromkeys(("user", "working_dir"), "the user and the working directory of the image stay"),
    "include": "no other file is read",
}

#: The way to a value.
Key = tuple[str | int, ...]


def loaded(text: str) -> tuple[Any, Mapping[Key, int]]:
    """Returns the plain values of a text, and the line of each key. Raises `ValueError`."""
    lines: dict[Key, int] = {}
    try:
        return _Tree(lines).of(yaml.compose(text, Loader=yaml.SafeLoader), ()), lines
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(str(error)) from error


class _Tree:
    """Plain values of a file, and the line of each key. Numbers stay as they are written."""

    def __init__(self, lines: dict[Key, int]) -> None:
        self._lines = lines
        self._left = MAX_VALUES

    def of(self, node: yaml.Node | None, path: Key) -> Any:
        self._left -= 1
        if self._left < 0 or len(path) > MAX_DEPTH:
            raise ValueError("too many values, or too deep")
        if node is None:
            return None
        self._lines.setdefault(path, node.start_mark.line + 1)
        if not node.tag.startswith("tag:yaml.org,2002:"):
            raise ValueError(f"line {node.start_mark.line + 1}: tags are not read")
        if isinstance(node, yaml.SequenceNode):
            return [self.of(item, (*path, index)) for index, item in enumerate(node.value)]
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if node.tag.endswith(":null"):
            return None
        # `no` and `on` are texts, as in YAML 1.2.
        flags = {"true": True, "false": False}
        return flags.get(node.value, node.value) if node.tag.endswith(":bool") else node.value

    def _mapping(self, node: yaml.MappingNode, path: Key) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for key, value in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode) or key.value in values or key.value == "<<":
                raise ValueError(f"line {line}: a key must be text, and be there once; merge keys are not read")
            at: Key = (*path, key.value)
            self._lines[at] = line
            values[key.value] = self.of(value, at)
        return values


class Values:
    """Reads values and collects problems. Methods return something harmless where there is a problem."""

    def __init__(self, file: str, lines: Mapping[Key, int], variables: Mapping[str, str]) -> None:
        self.problems: list[str] = []
        self._file = file
        self._lines = lines
        self._variables = variables

    def problem(self, path: Key, message: str) -> None:
        line = next((self._lines[path[:end]] for end in range(len(path), -1, -1) if path[:end] in self._lines), None)
        where = self._file if line is None else f"{self._file}:{line}"
        key = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).removeprefix(".")
        told = f"  {where}: {key}: {message}"
        if told not in self.problems:
            self.problems.append(told)

    def environment(self, value: object, path: Key) -> dict[str, str]:
        pairs: list[tuple[Key, str, Any]] = []
        if isinstance(value, list):
            for index, text in enumerate(self.strings(value, path)):
                name, is_pair, given = text.partition("=")
                pairs.append(((*path, index), name, given if is_pair else None))
        else:
            pairs = [((*path, name), name, given) for name, given in self.mapping(value, path).items()]
        variables: dict[str, str] = {}
        for at, name, given in pairs:
            if given is None:
                self.problem(at, "has no value, and the variables of the caller are not read")
            elif not name or "=" in name or name in variables:
                self.problem(at, "must be a name and a value, once")
            else:
                # Texts of a list have their variables replaced already.
                variables[name] = given if isinstance(value, list) else self.text(given, at, blank=True)
        return variables

    def words(self, value: object, path: Key) -> tuple[str, ...]:
        if isinstance(value, list):
            words = self.strings(value, path)
        else:
            try:
                words = shlex.split(self.text(value, path))
            except ValueError:
                words = []
        if not words or not words[0]:
            self.problem(path, "names no program or argument, or has a quote that is not closed")
        return tuple(words)

    def strings(self, value: object, path: Key) -> list[str]:
        return [self.text(item, (*path, index), blank=True) for index, item in enumerate(self.sequence(value, path))]

    def seconds(self, value: object, path: Key) -> float:
        written = self.text(value, path)
        total = sum(float(number) * SECONDS[unit] for number, unit in re.findall(r"(\d+)(ms|h|m|s)", written))
        if not TIME.fullmatch(written) or total > 86_400:
            self.problem(path, "must be a time up to 24h, such as 500ms, 30s or 1m30s")
        return total

    def number(self, value: object, path: Key) -> float:
        written = self.text(value, path)
        if not re.fullmatch(r"\d{1,4}(\.\d{1,3})?", written) or not float(written):
            self.problem(path, "must be a positive number, at most 9999")
            return 1
        return float(written)

    def memory(self, keys: Mapping[str, Any], path: Key) -> int | None:
        """MiB, rounded up."""
        given, at = keys.get("mem_limit"), (*path, "mem_limit")
        value, deep = keys.get("deploy"), (*path, "deploy")
        for key in ("resources", "limits", "memory"):
            if value is None:
                break
            deep, levels = (*deep, key), self.mapping(value, deep)
            if set(levels) - {key}:
                self.problem(deep[:-1], "of `deploy` only `resources.limits.memory` is read")
            value = levels.get(key)
        if value is not None:
            if given is not None:
                self.problem(at, "give one of `mem_limit` and `deploy.resources.limits.memory`")
            given, at = value, deep
        if given is None:
            return None
        size = SIZE.fullmatch(self.text(given, at))
        mib = -int(-float(size[1]) * UNITS[size[2].lower()] // MIB) if size else 0
        if not 1 <= mib <= MIB:
            self.problem(at, "must be a size from 1m to 1024g, such as 512m")
        return mib

    def ports(self, keys: Mapping[str, Any], path: Key) -> tuple[int, ...]:
        found: list[int] = []
        for key in ("expose", "ports"):
            for index, item in enumerate(self.sequence(keys.get(key), (*path, key))):
                at = (*path, key, index)
                given = item
                if isinstance(item, dict):
                    given = item.get("target")
                    if {"published", "host_ip", "mode"} & set(item) or item.get("protocol", "tcp") != "tcp":
                        self.problem(at, "no port of the host is published, and only TCP is known")
                        continue
                written = self.text(given, at).removesuffix("/tcp")
                if ":" in written:
                    self.problem(
                        at, f"no port of the host is published; write `{written.rpartition(':')[2]}` under `expose`"
                    )
                elif not written.isdecimal() or len(written) > 5 or not 0 < int(written) < 65536:
                    self.problem(at, "must be a TCP port from 1 to 65535; a range is not read")
                elif int(written) not in found:
                    found.append(int(written))
        if len(found) > MAX_PORTS:
            self.problem(path, f"must have at most {MAX_PORTS} ports")
        return tuple(found)

    def text(self, value: object, path: Key, *, blank: bool = False) -> str:
        """With variables replaced, and `$$` as a dollar sign."""
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            self.problem(path, "must be text or a number")
            return ""
        written = str(value)
        if (not blank and not written.strip()) or any(ord(sign) < 32 and sign not in "\n\t" for sign in written):
            self.problem(path, "must not be blank, and have no control characters")
        unknown = False

        def replaced(found: re.Match[str]) -> str:
            nonlocal unknown
            if found[1]:
                return "$"
            given = self._variables.get(found[2] or found[4] or "", found[3])
            unknown |= given is None
            return given or found[3] or ""

        literal = VARIABLE.sub(replaced, written)
        if unknown:
            self.problem(path, "has a variable that is not known; write the value, or `$$` for a dollar sign")
        return literal

    def sequence(self, value: object, path: Key) -> list[Any]:
        if value is not None and not isinstance(value, list):
            self.problem(path, "must be a list")
        return value if isinstance(value, list) else []

    def mapping(self, value: object, path: Key) -> dict[str, Any]:
        if value is not None and not isinstance(value, dict):
            self.problem(path, "must be a mapping")
        return {str(key): inner for key, inner in value.items()} if isinstance(value, dict) else {}

    def keys(self, value: object, path: Key, known: Sequence[str]) -> dict[str, Any]:
        """The known keys that have a value. All others are problems, except for `x-…`."""
        found = {}
        for key, inner in self.mapping(value, path).items():
            if key.startswith("x-") or inner is None:
                continue
            if key in known:
                found[key] = inner
            else:
                self.problem((*path, key), REFUSED.get(key, f"is not read; known: {', '.join(known)}"))
        return found
