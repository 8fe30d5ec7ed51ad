#!/usr/bin/env python3
"""Makes tests/hosts/arm64.json of a run of tests/hosts/arm64.sh, and the table of docs/src/operating/arm64.md of that file.

  tests/hosts/arm64_table.py VERSIONS CHECKS  writes both; the files have a line for each version and check, with tabs
  tests/hosts/arm64_table.py --check          fails if the page has another table
"""

import json
import pathlib
import sys
import time

from table import cell, row, with_tables

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent.parent
RESULT = REPOSITORY / "tests/hosts/arm64.json"
PAGE = REPOSITORY / "docs/src/operating/arm64.md"
BEGIN, END = "<!-- table: tests/hosts/arm64_table.py -->\n", "<!-- end of the table -->\n"


def rows(path):
    return [line.split("\t") for line in pathlib.Path(path).read_text(encoding="utf-8").splitlines()]


def page():
    """Returns the page with the table of the result."""
    result = json.loads(RESULT.read_text(encoding="utf-8"))
    versions = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
    lines = [f"\nOn {result['date']}, with {versions}:\n\n", row(["check", "result", "words"]), "|---|---|---|\n"]
    lines += [row([cell(check["check"]), check["result"], cell(check["words"])]) for check in result["checks"]]
    return with_tables(PAGE, BEGIN, "".join(lines) + "\n", END)


def main():
    if sys.argv[1:] == ["--check"]:
        if page() != PAGE.read_text(encoding="utf-8"):
            sys.exit(f"{PAGE.relative_to(REPOSITORY)} does not have the table of {RESULT.relative_to(REPOSITORY)}")
        return
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    result = {
        "name": "arm64",
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "versions": dict(rows(sys.argv[1])),
        "checks": [dict(zip(("check", "result", "words"), row, strict=True)) for row in rows(sys.argv[2])],
    }
    RESULT.write_text(json.dumps(result, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
