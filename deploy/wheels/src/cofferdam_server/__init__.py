"""The programs of Cofferdam, `cofferd` and `coffer`, with the example configuration and policies."""

import os
import sys
import sysconfig
from pathlib import Path

SHARE = Path(__file__).parent / "share"
"""Directory with `cofferd.example.yaml` and `policies`."""


def program(name: str) -> Path:
    """Returns the path of `cofferd` or `coffer`, wherever the installer has put it."""
    schemes = [sysconfig.get_path("scripts"), sysconfig.get_path("scripts", f"{os.name}_user")]
    # `pip install --target DIR` puts programs into DIR/bin.
    places = [Path(sys.argv[0]).parent, *map(Path, schemes), Path(__file__).parent.parent / "bin"]
    for place in places:
        found = place / name
        if found.is_file() and os.access(found, os.X_OK):
            return found.absolute()
    raise FileNotFoundError(f"{name} is not beside the package cofferdam-server: install the package again")


def main() -> None:
    """Becomes `coffer` with the same arguments, with `cofferd` on its PATH; `--share` prints the directory of examples."""
    if sys.argv[1:] == ["--share"]:
        print(SHARE)
        return
    coffer = program("coffer")
    os.environ["PATH"] = f"{coffer.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    os.execv(coffer, ["coffer", *sys.argv[1:]])
