#!/usr/bin/env python3
"""Makes the tables of docs/src/operating/engines.md from tests/hosts/results, and compares results of tests/hosts/run.sh with these.

  tests/hosts/table.py                          writes the tables
  tests/hosts/table.py --check                  fails if the page has other ones
  tests/hosts/table.py --compare FILE [--keep]  fails if a check of FILE fails, or has another outcome than the one in the results, which
                                                --keep replaces
"""

import argparse
import json
import pathlib
import sys

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent.parent
RESULTS = REPOSITORY / "tests/hosts/results"
PAGE = REPOSITORY / "docs/src/operating/engines.md"
BEGIN, END = "<!-- tables: tests/hosts/table.py -->\n", "<!-- end of the tables -->\n"
# Rows of the first table, in the order of columns of the second one.
HOSTS = {
    "docker-20": "Docker 20.10",
    "docker-cgroup2": "Docker 26",
    "docker-28": "Docker 28",
    "ubuntu-userns": "Docker 29, Ubuntu",
    "docker-userns-remap": "Docker, `userns-remap`",
    "docker-rootless": "Docker, rootless",
    "podman-rootful": "Podman",
    "podman-rootless": "Podman, rootless",
}
CHECKS = {
    "doctor": "`coffer doctor`: nothing is missing",
    "start": "`cofferd` starts",
    "launch": "a run on a user's workspace",
    "read": "read",
    "exec": "commands",
    "write": "writes by both lanes, as the owner",
    "git": "git",
    "pause": "pause and resume",
    "timeout": "a timeout ends the whole tree",
    "left_behind": "processes that a command leaves end",
    "memory": "limit of memory, put down to the program",
    "processes": "limit of processes",
    "egress": "`egress` by rules",
    "writable_root": "`root: writable-layer`",
    "mapped_root": "`root_in_user_namespace`",
    "warm": "warm start",
    "adoption": "adoption after `kill -9` of the daemon",
    "stop": "stop removes the container",
    "record": "`coffer audit verify`",
}
OUTCOMES = {"works": "yes", "refused": "refused", "fails": "**fails**"}


def read(file):
    """Returns the result in a file, and reports what it lacks."""
    try:
        result = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        sys.exit(f"{file.name}: no result: {error}")
    if result.get("name") not in HOSTS:
        sys.exit(f"{file.name}: the result of an unknown host")
    unknown = [check["name"] for check in result["checks"] if check["name"] not in CHECKS or check["outcome"] not in OUTCOMES]
    if unknown or not result["checks"]:
        sys.exit(f"{file.name}: unknown checks, or none: {unknown}")
    return result


def kept():
    """Returns the results that are kept, in the order of the tables."""
    found = {file.stem: read(file) for file in RESULTS.glob("*.json")}
    for name, result in found.items():
        if result["name"] != name:
            sys.exit(f"{name}.json is the result of {result['name']}")
    return [found[name] for name in HOSTS if name in found]


def cell(text):
    """Returns a text of a program for a cell of a table."""
    return " ".join(text.replace("|", "\\|").replace("<", "&lt;").split())


def row(cells):
    return f"| {' | '.join(cells)} |\n"


def with_tables(page, begin, tables, end):
    """Returns the text of a page, with these tables between its two marks."""
    text = page.read_text(encoding="utf-8")
    if text.count(begin) != 1 or text.count(end) != 1:
        sys.exit(f"{page.name} has no place for the tables")
    before, rest = text.split(begin)
    return before + begin + tables + end + rest.split(end)[1]


def hosts_table(results):
    head = ["host", "engine", "distribution, kernel", "runtime, storage", "cgroups", "security", "tried on, with"]
    lines = [row(head), "|---|---|---|---|---|---|---|\n"]
    for result in results:
        engine = f"{result['engine']} {result['version']}, API {result['api']}"
        system = f"{result['distribution']}, {result['kernel']}"
        tried = f"{result['date']}, {result['cofferd']}"
        rest = [f"{result['runtime']}, {result['storage']}", result["cgroups"], ", ".join(result["security"]) or "–", tried]
        lines.append(row([HOSTS[result["name"]], *(cell(text) for text in [engine, system, *rest])]))
    return "".join(lines)


def checks_table(results):
    """Returns the table of outcomes, and the words of refusals by their numbers."""
    words = []
    lines = [row(["", *(HOSTS[result["name"]] for result in results)]), f"|---|{'---|' * len(results)}\n"]
    for name, title in CHECKS.items():
        cells = [title]
        for result in results:
            check = next((check for check in result["checks"] if check["name"] == name), None)
            if check is None:
                cells.append("–")
                continue
            said = cell(check.get("said", ""))
            if said and said not in words:
                words.append(said)
            cells.append(OUTCOMES[check["outcome"]] + (f" ({words.index(said) + 1})" if said else ""))
        lines.append(row(cells))
    numbered = "".join(f"{number}. {said}\n" for number, said in enumerate(words, 1))
    return "".join(lines) + ("\nThe words, by their numbers:\n\n" + numbered if numbered else "")


def doctor_table(results):
    """Returns what the doctor says about each engine, and about what the host lacks beside it."""
    lines = [row(["host", "finding", "what `coffer doctor` says"]), "|---|---|---|\n"]
    for result in results:
        host = HOSTS[result["name"]]
        for finding in result["doctor"]:
            if finding["topic"] == "engine" or finding["verdict"] == "missing" or "AppArmor" in finding["found"]:
                said = finding["found"] + (f": {finding['follows']}" if finding.get("follows") else "")
                lines.append(row([host, f"{finding['topic']}: {finding['verdict']}", cell(said)]))
    return "".join(lines)


def tables():
    results = kept()
    parts = [hosts_table(results), checks_table(results), doctor_table(results)]
    return "\n".join(parts)


def page():
    """Returns the page with the tables of the results."""
    return with_tables(PAGE, BEGIN, "\n" + tables() + "\n", END)


def compare(file, keep):
    result = read(file)
    outcomes = {check["name"]: check["outcome"] for check in result["checks"]}
    failed = [name for name, outcome in outcomes.items() if outcome == "fails"]
    before = RESULTS / f"{result['name']}.json"
    if keep:
        before.write_text(json.dumps(result, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    elif not before.exists():
        sys.exit(f"{result['name']} has no result yet: run it with --keep")
    else:
        earlier = {check["name"]: check["outcome"] for check in read(before)["checks"]}
        failed += [name for name in CHECKS if outcomes.get(name) != earlier.get(name) and name not in failed]
    if failed:
        sys.exit(f"{result['name']}: other than it should be: {', '.join(failed)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--compare", type=pathlib.Path, metavar="FILE")
    parser.add_argument("--keep", action="store_true")
    arguments = parser.parse_args()
    if arguments.compare:
        compare(arguments.compare, arguments.keep)
    elif not arguments.check:
        PAGE.write_text(page(), encoding="utf-8")
    elif page() != PAGE.read_text(encoding="utf-8"):
        sys.exit(f"{PAGE.relative_to(REPOSITORY)} does not have the tables of tests/hosts/results: run tests/hosts/table.py")


if __name__ == "__main__":
    main()
