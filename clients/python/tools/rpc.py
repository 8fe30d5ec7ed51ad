"""Makes one method for each method of the API, and the module that names all messages, from the API's descriptors.

Usage: rpc.py DESCRIPTORS PACKAGE; the descriptors carry the comments of the proto files.
"""

import re
import sys
import textwrap
from pathlib import Path

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet, MethodOptions

PACKAGE = "cofferdam.v1"
# Where the first path of a method's comment leads: file → service → method.
SERVICE, METHOD = 6, 2
# Of the transport, by whether the client and the daemon send streams.
KINDS = {(False, False): "unary", (False, True): "stream", (True, False): "client_stream", (True, True): "duplex"}


def comments(file: FileDescriptorProto) -> dict[tuple[int, ...], str]:
    return {tuple(at.path): " ".join(at.leading_comments.split()) for at in file.source_code_info.location}


def doc(text: str, indent: int) -> str:
    text = re.sub(r"buf:lint:ignore \w+", "", text).strip().replace("\\", "\\\\")
    margin = " " * indent
    lines = textwrap.wrap(text, 116 - indent, initial_indent='"""') or ['"""']
    if len(lines) == 1 and len(lines[0]) < 110 - indent:
        return f'{margin}{lines[0]}"""\n'
    return "".join(f"{margin}{line}\n" for line in lines) + f'{margin}"""\n'


def snake(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


def name_of(message: str) -> str:
    return message.removeprefix(f".{PACKAGE}.")


def service(file: FileDescriptorProto, at: int) -> str:
    texts, it = comments(file), file.service[at]
    body = f"class {it.name}:\n" + doc(texts.get((SERVICE, at), it.name), 4)
    body += "\n    def __init__(self, transport: Transport) -> None:\n        self._transport = transport\n"
    for index, method in enumerate(it.method):
        asked, answered = f"v1.{name_of(method.input_type)}", f"v1.{name_of(method.output_type)}"
        kind = KINDS[method.client_streaming, method.server_streaming]
        argument = "requests" if method.client_streaming else "request"
        taken = f"AsyncIterable[{asked}]" if method.client_streaming else asked
        declared = "def" if method.server_streaming else "async def"
        result = f"AsyncGenerator[{answered}, None]" if method.server_streaming else answered
        awaited = "" if method.server_streaming else "await "
        repeat = method.options.idempotency_level != MethodOptions.IDEMPOTENCY_UNKNOWN
        body += f"\n    {declared} {snake(method.name)}(\n"
        body += f"        self, {argument}: {taken}, *, timeout: float | None = None\n    ) -> {result}:\n"
        body += doc(texts.get((SERVICE, at, METHOD, index), method.name), 8)
        body += f"        return {awaited}self._transport.{kind}(\n            Method(\n"
        body += f'                "/{PACKAGE}.{it.name}/{method.name}", {asked}, {answered}, {repeat}\n'
        body += f"            ),\n            {argument},\n            timeout,\n        )\n"
    # One object for each method, not for each call of it.
    found = re.findall(r'Method\(\s+"/[\w.]+/(\w+)".*?\n            \)', body, flags=re.S)
    constants = ""
    for method_name in found:
        constant = f"_{snake(it.name).upper()}_{snake(method_name).upper()}"
        pattern = re.compile(rf'Method\(\s+("/[\w.]+/{method_name}".*?)\n            \)', flags=re.S)
        match = pattern.search(body)
        assert match is not None
        constants += f"{constant} = Method({match[1]})\n"
        body = body[: match.start()] + constant + body[match.end() :]
    return constants + "\n\n" + body


def main(descriptors: str, package: str) -> None:
    files = [file for file in FileDescriptorSet.FromString(Path(descriptors).read_bytes()).file if file.package == PACKAGE]
    files.sort(key=lambda file: file.name)
    head = '"""The whole API, one class for each service. Generated from `proto/`; see `generate.sh`."""\n\n'
    head += "from collections.abc import AsyncGenerator, AsyncIterable\n\nfrom cofferdam import v1\n"
    head += "from cofferdam._async.transport import Transport\nfrom cofferdam._method import Method\n\n"
    services = [service(file, at) for file in files for at in range(len(file.service))]
    Path(package, "_async", "rpc.py").write_text(head + "\n\n".join(services))
    names, imports = [], ""
    for file in files:
        module = Path(file.name).stem + "_pb2"
        own = sorted([message.name for message in file.message_type] + [enum.name for enum in file.enum_type])
        if own:
            imports += f"from cofferdam._proto.{module} import {', '.join(own)}\n"
            names += own
    listed = "".join(f'    "{name}",\n' for name in sorted(names))
    text = '"""The messages of the API, `cofferdam.v1`. Generated from `proto/`, which says what each field means."""\n\n'
    Path(package, "v1.py").write_text(f"{text}{imports}\n__all__ = [\n{listed}]\n")


main(*sys.argv[1:])
