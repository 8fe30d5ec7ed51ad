"""LangChain's own tests of sandboxes, against a real daemon."""

from collections.abc import Iterator

import pytest
from deepagents.backends.protocol import SandboxBackendProtocol
from langchain_tests.integration_tests import SandboxIntegrationTests

from cofferdam import Sandbox
from cofferdam.integrations.deepagents import CofferdamSandbox


class TestCofferdam(SandboxIntegrationTests):
    @pytest.fixture(scope="class")
    def sandbox(self, endpoint: str, image: str, profile: str) -> Iterator[SandboxBackendProtocol]:
        with Sandbox.create(profile=profile, image=image, endpoint=endpoint) as sandbox:
            yield CofferdamSandbox(sandbox=sandbox)


class TestCofferdamWorkspace(TestCofferdam):
    """Where writes and edits are the daemon's own operations."""

    @property
    def sandbox_root_dir(self) -> str:
        return "/workspace/test_sandbox_ops/"


def test_the_audit_log_has_edits_by_name(endpoint: str, image: str, profile: str) -> None:
    with Sandbox.create(profile=profile, image=image, endpoint=endpoint) as sandbox:
        backend = CofferdamSandbox(sandbox=sandbox)
        assert backend.write("/workspace/a.txt", "one two two\n").error is None
        assert backend.edit("/workspace/a.txt", "one", "1").occurrences == 1
        assert "multiple" in (backend.edit("/workspace/a.txt", "two", "2").error or "")
        assert backend.edit("/workspace/a.txt", "two", "2", replace_all=True).occurrences == 2
        assert backend.write("/workspace/large.txt", "x" * 2_000_000).error is None
        assert backend.write("/workspace/.git/hooks/pre-commit", "x").error
        operations = [event.operation for event in sandbox.audit.stream(follow=False, kinds=["call_receipt"])]
        assert operations[:4] == ["write", "edit", "edit", "edit"]
