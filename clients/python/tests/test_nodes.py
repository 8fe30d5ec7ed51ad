"""The node that a request is for: of its ids, the same in all clients, on the way to a daemon's stand-in."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.json_format import ParseDict
from google.protobuf.message import Message
from google.rpc.error_details_pb2 import ErrorInfo
from google.rpc.status_pb2 import Status

from cofferdam import AsyncClient, Client, WrongNodeError, v1
from cofferdam._node import node_for, node_of
from cofferdam._status import DETAILS

VECTORS: dict[str, Any] = json.loads((Path(__file__).parents[2] / "nodes.json").read_text())
IDS: dict[str, int | None] = VECTORS["ids"]
OF_SEVEN = next(written for written, node in IDS.items() if node == 7)


@pytest.mark.parametrize(("written", "node"), IDS.items())
def test_every_client_reads_the_same_nodes(written: str, node: int | None) -> None:
    assert node_of(written) == node


@pytest.mark.parametrize("vector", VECTORS["requests"])
def test_every_client_finds_the_same_node_in_a_request(vector: dict[str, Any]) -> None:
    method = vector["method"].partition("/")[2]
    name = {"Call": "CallRequest", "GetCall": "GetCallRequest"}.get(method, f"{method}Request")
    message: Message = getattr(v1, name)()
    assert node_for(ParseDict(vector["request"], message)) == vector["node"]


def test_no_request_is_for_no_node() -> None:
    assert node_for(None) is None


class StandIn(grpc.GenericRpcHandler):
    """Refuses what is not for node 8, as that node does, and notes the node and the number of the requests."""

    def __init__(self) -> None:
        self.seen: list[tuple[str | None, int]] = []

    def service(self, handler_call_details: Any) -> Any:
        metadata = dict(handler_call_details.invocation_metadata)

        def refuse(requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
            node = metadata.get("cofferdam-node")
            self.seen.append((node, sum(1 for _ in requests)))
            detail = AnyMessage()
            named = {"asked": node or "", "node": "8"}
            detail.Pack(ErrorInfo(reason="WRONG_NODE", domain="cofferdam", metadata=named))
            status = Status(code=9, message="this is node 8", details=[detail])
            context.set_trailing_metadata(((DETAILS, status.SerializeToString()),))
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, "this is node 8")
            yield b""

        return grpc.stream_stream_rpc_method_handler(refuse)


@pytest.fixture
def stand_in(tmp_path: Path) -> Iterator[tuple[str, StandIn]]:
    server = grpc.server(ThreadPoolExecutor(4))
    handler = StandIn()
    server.add_generic_rpc_handlers((handler,))
    server.add_insecure_port(f"unix:{tmp_path}/s")
    server.start()
    yield f"unix:{tmp_path}/s", handler
    server.stop(None).wait()


BEGIN = v1.UploadFileRequest(begin=v1.BeginUpload(run_id=OF_SEVEN))
REST = v1.UploadFileRequest(data=b"x")
START = v1.ForwardPortRequest(start=v1.ForwardStart(run_id=OF_SEVEN))


def test_each_kind_of_request_goes_whole_and_with_its_node(stand_in: tuple[str, StandIn]) -> None:
    endpoint, daemon = stand_in
    with Client(endpoint) as client:
        with pytest.raises(WrongNodeError) as refused:
            client.runs.get_run(v1.GetRunRequest(run_id=OF_SEVEN))
        assert (refused.value.asked, refused.value.node) == (7, 8)
        with pytest.raises(WrongNodeError):
            client.runs.list_runs(v1.ListRunsRequest())
        with pytest.raises(WrongNodeError):
            list(client.runs.watch_runs(v1.WatchRunsRequest(run_id=OF_SEVEN)))
        with pytest.raises(WrongNodeError):
            client.files.upload_file(iter([BEGIN, REST, REST]))
        with pytest.raises(WrongNodeError):
            list(client.forward.forward_port(iter([START])))
        with pytest.raises(WrongNodeError):
            client.files.upload_file(iter([]))
    assert daemon.seen == [("7", 1), (None, 1), ("7", 1), ("7", 3), ("7", 1), (None, 0)]


def test_each_kind_of_request_goes_whole_and_with_its_node_asynchronously(stand_in: tuple[str, StandIn]) -> None:
    endpoint, daemon = stand_in

    async def sent(*requests: Any) -> AsyncIterator[Any]:
        for request in requests:
            yield request

    async def ask() -> None:
        async with AsyncClient(endpoint) as client:
            with pytest.raises(WrongNodeError) as refused:
                await client.runs.get_run(v1.GetRunRequest(run_id=OF_SEVEN))
            assert (refused.value.asked, refused.value.node) == (7, 8)
            with pytest.raises(WrongNodeError):
                await client.runs.list_runs(v1.ListRunsRequest())
            with pytest.raises(WrongNodeError):
                _ = [run async for run in client.runs.watch_runs(v1.WatchRunsRequest(run_id=OF_SEVEN))]
            with pytest.raises(WrongNodeError):
                await client.files.upload_file(sent(BEGIN, REST, REST))
            with pytest.raises(WrongNodeError):
                _ = [event async for event in client.forward.forward_port(sent(START))]
            with pytest.raises(WrongNodeError):
                await client.files.upload_file(sent())

    asyncio.run(ask())
    assert daemon.seen == [("7", 1), (None, 1), ("7", 1), ("7", 3), ("7", 1), (None, 0)]


def test_an_error_of_the_first_request_is_the_callers(stand_in: tuple[str, StandIn]) -> None:
    def broken() -> Iterator[v1.UploadFileRequest]:
        raise KeyError("mine")
        yield BEGIN

    with Client(stand_in[0]) as client, pytest.raises(KeyError, match="mine"):
        client.files.upload_file(broken())
    assert stand_in[1].seen == []


def test_details_that_are_no_numbers_are_none() -> None:
    for written in ("", "x", "-1", "+7", "\u0667", "123456"):
        error = WrongNodeError("told", details={"node": written})
        assert (error.node, error.asked) == (None, None)
    assert WrongNodeError("told", details={"asked": "65535"}).asked == 65535
