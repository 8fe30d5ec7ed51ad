"""A request is repeated by itself only if the proto file says that nothing can happen twice by it."""

from google.protobuf.descriptor_pb2 import MethodOptions

from cofferdam import v1
from cofferdam._async import rpc
from cofferdam._method import Method


def test_methods_are_repeatable_as_the_descriptors_say() -> None:
    table = {method.path: method.repeatable for method in vars(rpc).values() if isinstance(method, Method)}
    files = {getattr(v1, name).DESCRIPTOR.file.name: getattr(v1, name).DESCRIPTOR.file for name in v1.__all__}
    described = {
        f"/{service.full_name}/{method.name}": method.GetOptions().idempotency_level != MethodOptions.IDEMPOTENCY_UNKNOWN
        for file in files.values()
        for service in file.services_by_name.values()
        for method in service.methods
    }
    assert table == described
    assert table["/cofferdam.v1.RunService/StopRun"]
    assert not table["/cofferdam.v1.RunService/CreateRun"]


def test_a_request_id_makes_any_request_repeatable() -> None:
    create = Method("/cofferdam.v1.RunService/CreateRun", v1.CreateRunRequest, v1.CreateRunResponse, False)
    assert not create.may_repeat(v1.CreateRunRequest(), is_in_fleet=False)
    assert create.may_repeat(v1.CreateRunRequest(request_id="one"), is_in_fleet=False)
    assert not create.may_repeat(v1.CreateRunRequest(request_id="one"), is_in_fleet=True)
