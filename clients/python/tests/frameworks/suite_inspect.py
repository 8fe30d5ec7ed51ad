"""Inspect's own checks of sandboxes, against a real daemon."""

from collections.abc import AsyncIterator

import pytest
from inspect_ai.util import SandboxEnvironment
from inspect_ai.util._sandbox.self_check import *  # noqa: F403

from cofferdam.integrations.inspect import CofferdamSandboxConfig, CofferdamSandboxEnvironment


@pytest.fixture
async def sandbox_env(image: str, profile: str) -> AsyncIterator[SandboxEnvironment]:
    config = CofferdamSandboxConfig(profile=profile, image=image)
    made = await CofferdamSandboxEnvironment.sample_init("self_check", config, {})
    yield made["default"]
    await CofferdamSandboxEnvironment.sample_cleanup("self_check", config, made, False)
