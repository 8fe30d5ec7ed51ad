"""SWE-ReX's own tests of runtimes, from its source distribution, against a real daemon.

They run beside what they test: they write at a path and expect the runtime to find it there. So the workspace is a
directory of this host, and the paths that they are given name it as the sandbox does.
"""

import importlib
import os
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import ModuleType

import pytest
from daemon import Daemon
from swerex.runtime.abstract import BashAction, Command, CreateBashSessionRequest, UploadRequest, UploadResponse

from cofferdam import Bind
from cofferdam.integrations.swerex import CofferdamDeployment, CofferdamRuntime

HOME = "/workspace"


class Action(BashAction):
    timeout: float | None = 20


class Execution(Command):
    timeout: float | None = 20


def given() -> ModuleType:
    """Their module, with the two names that it wants of a conftest."""
    package, conftest = ModuleType("swerex_tests"), ModuleType("swerex_tests.conftest")
    package.__path__ = [os.environ["COFFERDAM_TEST_SWEREX"]]
    vars(conftest).update(_Action=Action, _Command=Execution)
    sys.modules |= {package.__name__: package, conftest.__name__: conftest}
    pytest.register_assert_rewrite("swerex_tests.test_execution")
    return importlib.import_module("swerex_tests.test_execution")


vars(sys.modules[__name__]).update({name: value for name, value in vars(given()).items() if name.startswith("test_")})


class Inside:
    """A path as the sandbox has it, whose content is this host's."""

    def __init__(self, outside: Path, inside: str = HOME) -> None:
        self._outside, self._inside = outside, inside

    def __truediv__(self, name: str) -> "Inside":
        return Inside(self._outside / name, f"{self._inside}/{name}")

    def __str__(self) -> str:
        return self._inside

    def read_text(self) -> str:
        return self._outside.read_text()

    def write_text(self, text: str) -> None:
        self._outside.write_text(text)

    def mkdir(self) -> None:
        self._outside.mkdir()


class Runtime(CofferdamRuntime):
    """What is uploaded is named as the sandbox has it, too."""

    outside: Path

    async def upload(self, request: UploadRequest) -> UploadResponse:
        source = self.outside / Path(request.source_path).relative_to(HOME)
        return await super().upload(UploadRequest(source_path=str(source), target_path=request.target_path))


@pytest.fixture(scope="session")
def endpoint() -> Iterator[str]:
    daemon = Daemon(config="harness_on_bind: allow\n")
    os.environ["COFFERDAM_TEST_ROOTS"] = str(daemon.roots)
    yield daemon.endpoint
    daemon.remove()


@pytest.fixture
def outside(roots: Path, request: pytest.FixtureRequest) -> Path:
    place = roots / str(request.node.name)
    place.mkdir()
    return place


@pytest.fixture
def tmp_path(outside: Path) -> Inside:
    return Inside(outside)


@pytest.fixture
async def remote_runtime(outside: Path, image: str, profile: str) -> AsyncIterator[CofferdamRuntime]:
    deployment = CofferdamDeployment(profile=profile, image=image, workspace=Bind(outside))
    await deployment.start()
    runtime = Runtime(deployment.runtime.sandbox)
    runtime.outside = outside
    yield runtime
    await runtime.close()
    await deployment.stop()


@pytest.fixture
async def runtime_with_default_session(remote_runtime: CofferdamRuntime) -> CofferdamRuntime:
    await remote_runtime.create_session(CreateBashSessionRequest())
    return remote_runtime
