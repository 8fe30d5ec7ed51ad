"""A stock gRPC client with default options: grpclib, pure Python on asyncio, and the API's own descriptors.

Arguments: the file of descriptors, the endpoint (`unix:/path` or `host:port`), and a run with a file `a.txt`. With TLS also
the file of who signed, and a token.
Prints how many runs it is shown, what the file says, as often as it was read, and at last what `echo streamed` said as a
stream.
"""

import asyncio
import ssl
import sys

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from grpclib.client import Channel, UnaryStreamMethod, UnaryUnaryMethod

# The first call makes the entries of the connection's table of headers, later ones refer to them.
READS = 5

descriptors, endpoint, run, *secured = sys.argv[1:]
pool = descriptor_pool.DescriptorPool()
with open(descriptors, "rb") as file:
    for one in descriptor_pb2.FileDescriptorSet.FromString(file.read()).file:
        pool.Add(one)


def message(name):
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("cofferdam.v1." + name))


def call(kind, channel, method, request, response):
    return kind(channel, f"/cofferdam.v1.{method}", message(request), message(response))


def channel_of():
    if endpoint.startswith("unix:"):
        return Channel(path=endpoint.removeprefix("unix:"))
    host, port = endpoint.rsplit(":", 1)
    return Channel(host, int(port), ssl=ssl.create_default_context(cafile=secured[0]))


async def main():
    shown = {"authorization": f"Bearer {secured[1]}"} if secured else None
    async with channel_of() as channel:
        runs = call(UnaryUnaryMethod, channel, "RunService/ListRuns", "ListRunsRequest", "ListRunsResponse")
        listed = await runs(message("ListRunsRequest")(), metadata=shown, timeout=30)
        print(len(listed.runs))
        read = message("CallRequest")(run_id=run)
        read.operation.read.path = "a.txt"
        tool = call(UnaryUnaryMethod, channel, "ToolService/Call", "CallRequest", "CallResponse")
        for answer in await asyncio.gather(*(tool(read, metadata=shown, timeout=30) for _ in range(READS))):
            print(answer.result.read.content.strip())
        echo = message("CallRequest")(run_id=run)
        echo.operation.exec.command = "echo"
        echo.operation.exec.args.append("streamed")
        stream = call(UnaryStreamMethod, channel, "ToolService/CallStream", "CallRequest", "CallStreamResponse")
        events = await stream(echo, metadata=shown, timeout=30)
        print(b"".join(event.output.data for event in events if event.WhichOneof("event") == "output").decode().strip())


asyncio.run(main())
