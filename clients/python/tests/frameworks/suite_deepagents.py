"""LangChain's own tests of sandboxes, against a real daemon."""

from collections.abc import Iterator

import pytest
from deepagents.backends.protocol import SandboxBackendProtocol
from langchain_tests.integration_tests import SandboxIntegrationTests

from cofferdam import Sandbox
from cofferdam.integrations.deepagents import CofferdamSandbox


class TestCofferdam(SandboxIntegrationTests):
    @pytest.fixture(scope="class")
    def sandbox(self, endpoint: str, image: str) -> Iterator[SandboxBackendProtocol]:
        with Sandbox.create(profile="open", image=image, endpoint=endpoint) as sandbox:
            yield CofferdamSandbox(sandbox=sandbox)
