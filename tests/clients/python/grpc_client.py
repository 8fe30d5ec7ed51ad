"""A stock gRPC client with default options: grpcio, synchronous or grpc.aio, and the API's own descriptors.

Arguments: the file of descriptors, the endpoint, `sync` or `aio`, and a run with a file `a.txt`. With TLS also the file of
who signed, and a token, or nothing and the files of a client's certificate and its key.
Prints how many runs it is shown, what the file says, as often as it was read, and at last what `echo streamed` said as a
stream.
"""

import asyncio
import sys

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

# The first call makes the entries of the connection's table of headers, later ones refer to them.
READS = 5

descriptors, endpoint, how, run, *secured = sys.argv[1:]
pool = descriptor_pool.DescriptorPool()
with open(descriptors, "rb") as file:
    for one in descriptor_pb2.FileDescriptorSet.FromString(file.read()).file:
        pool.Add(one)


def message(name):
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("cofferdam.v1." + name))


def codec(request, answer):
    return {
        "request_serializer": message(request).SerializeToString,
        "response_deserializer": message(answer).FromString,
    }


def read():
    request = message("CallRequest")(run_id=run)
    request.operation.read.path = "a.txt"
    return request


def echo():
    request = message("CallRequest")(run_id=run)
    request.operation.exec.command = "echo"
    request.operation.exec.args.append("streamed")
    return request


def streamed(events):
    data = b"".join(event.output.data for event in events if event.WhichOneof("event") == "output")
    return data.decode().strip()


def methods(channel):
    package = "/cofferdam.v1."
    runs = channel.unary_unary(package + "RunService/ListRuns", **codec("ListRunsRequest", "ListRunsResponse"))
    call = channel.unary_unary(package + "ToolService/Call", **codec("CallRequest", "CallResponse"))
    stream = channel.unary_stream(package + "ToolService/CallStream", **codec("CallRequest", "CallStreamResponse"))
    return runs, call, stream


def content(path):
    with open(path, "rb") as file:
        return file.read()


def channel_of(kind):
    if not secured:
        return kind.insecure_channel(endpoint)
    ca, token, *pair = secured
    cert, key = (content(path) for path in pair) if pair else (None, None)
    credentials = grpc.ssl_channel_credentials(content(ca), key, cert)
    if token:
        token = grpc.access_token_call_credentials(token)
        credentials = grpc.composite_channel_credentials(credentials, token)
    return kind.secure_channel(endpoint, credentials)


def synchronous():
    with channel_of(grpc) as channel:
        runs, call, stream = methods(channel)
        print(len(runs(message("ListRunsRequest")(), timeout=30).runs))
        for _ in range(READS):
            print(call(read(), timeout=30).result.read.content.strip())
        print(streamed(list(stream(echo(), timeout=30))))


async def asynchronous():
    async with channel_of(grpc.aio) as channel:
        runs, call, stream = methods(channel)
        print(len((await runs(message("ListRunsRequest")(), timeout=30)).runs))
        for answer in await asyncio.gather(*(call(read(), timeout=30) for _ in range(READS))):
            print(answer.result.read.content.strip())
        print(streamed([event async for event in stream(echo(), timeout=30)]))


if how == "sync":
    synchronous()
else:
    asyncio.run(asynchronous())
