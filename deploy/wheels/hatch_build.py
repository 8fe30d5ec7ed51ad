"""Gives the wheel the tag of the platform that its programs are for."""

import os
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class PlatformHook(BuildHookInterface):  # type: ignore[misc]
    """Reads the platform from the environment of deploy/package.sh."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Replaces the tag of pure Python."""
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{os.environ['COFFERDAM_PLATFORM']}"
