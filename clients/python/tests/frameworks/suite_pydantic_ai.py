"""Pydantic AI's own suite of workspaces, against a real daemon."""

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from pydantic_ai.workspaces import WorkspaceBackend, WorkspaceRef
from pydantic_ai.workspaces.conformance import WorkspaceBackendSuite

from cofferdam.integrations.pydantic_ai import CofferdamWorkspaceBackend, delete_workspace


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class TestCofferdam(WorkspaceBackendSuite):
    @pytest.fixture
    async def backend(self, image: str, profile: str) -> AsyncIterator[WorkspaceBackend]:
        made = CofferdamWorkspaceBackend(profile=profile, image=image)
        yield made
        if made.ref is not None:
            await delete_workspace(made.ref)

    @pytest.fixture
    def fresh_backend(self, image: str, profile: str) -> Callable[[], WorkspaceBackend]:
        return lambda: CofferdamWorkspaceBackend(profile=profile, image=image)

    @pytest.fixture
    def attach_backend(self) -> Callable[[WorkspaceRef], WorkspaceBackend]:
        return lambda ref: CofferdamWorkspaceBackend(ref=ref)

    @pytest.fixture
    def destroy_environment(self) -> Callable[[WorkspaceBackend], Awaitable[None]]:
        async def destroy(backend: WorkspaceBackend) -> None:
            assert backend.ref is not None
            await delete_workspace(backend.ref)

        return destroy
