"""The programs of the book."""

import runpy
from pathlib import Path
from typing import Any

PROGRAMS = Path(__file__).parents[4] / "docs" / "examples" / "integrations"


def program(name: str) -> dict[str, Any]:
    """The names of a program, as it stands."""
    return runpy.run_path(str(PROGRAMS / f"{name}.py"))
