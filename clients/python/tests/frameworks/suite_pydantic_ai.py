"""Pydantic AI's own suite of workspaces, against a real daemon."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from book import program
from people import approve_next
from pydantic_ai.workspaces import WorkspaceBackend, WorkspaceOutputLimitError, WorkspaceRef
from pydantic_ai.workspaces.conformance import WorkspaceBackendSuite

from cofferdam import ApprovalRequired
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


async def test_output_that_was_cut_does_not_look_whole(asking: str, image: str) -> None:
    assert asking
    backend = CofferdamWorkspaceBackend(profile="little", image=image)
    most = 64 * 1024
    try:
        whole = await backend.run(f"echo err >&2; echo first; head -c {most - 10} /dev/zero", shell=True)
        assert len(whole.stdout) == most - 10 + len("first\n")
        with pytest.raises(WorkspaceOutputLimitError, match="more output") as caught:
            await backend.run(f"echo err >&2; echo first; head -c {4 * most} /dev/zero", shell=True)
    finally:
        if backend.ref is not None:
            await delete_workspace(backend.ref)
    assert 0 < caught.value.limit <= most
    assert caught.value.stdout.startswith("first\n\0")
    assert caught.value.stderr == "err\n"


@pytest.mark.parametrize("lease", [60.0, None])
async def test_a_sandbox_ends_with_its_program_unless_it_is_to_stay(image: str, profile: str, lease: float | None) -> None:
    backend = CofferdamWorkspaceBackend(profile=profile, image=image, lease=lease)
    await backend.working_dir()
    assert backend.ref is not None
    attached = CofferdamWorkspaceBackend(ref=backend.ref)
    try:
        for one in (backend, attached):
            await one.working_dir()
            sandbox = await one._sandbox()
            assert ((await sandbox.info()).lease, sandbox._keeping.goes_on) == (lease, lease is not None)
    finally:
        await delete_workspace(backend.ref)


@pytest.mark.parametrize("wait", [False, True])
async def test_call_that_needs_consent_explains_how_or_waits(asking: str, image: str, wait: bool) -> None:
    backend = CofferdamWorkspaceBackend(profile=asking, image=image, wait_for_approval=wait)
    await backend.working_dir()
    assert backend.ref is not None
    try:
        if wait:
            person = asyncio.to_thread(approve_next, backend.ref.id)
            done, asked = await asyncio.gather(backend.run(["echo", "done"]), person)
            assert (done.stdout, asked.operation) == ("done\n", "exec")
        else:
            with pytest.raises(ApprovalRequired, match="coffer approval approve"):
                await backend.run(["echo", "done"])
    finally:
        await delete_workspace(backend.ref)


async def test_the_program_of_the_book(image: str) -> None:
    assert await program("pydantic_ai_workspace")["main"](image) == "42\n"
