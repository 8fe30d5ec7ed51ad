"""Speaks over a WebSocket: `websocket.py HOST PORT [CA]`."""

import base64
import hashlib
import os
import socket
import ssl
import sys

host, port = sys.argv[1], int(sys.argv[2])
sock = socket.create_connection((host, port), timeout=30)
if len(sys.argv) > 3:
    sock = ssl.create_default_context(cafile=sys.argv[3]).wrap_socket(sock, server_hostname=host)
key = base64.b64encode(os.urandom(16)).decode()
sock.sendall(
    f"GET /echo HTTP/1.1\r\nHost: {host}:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
)
stream = sock.makefile("rb")
assert stream.readline().startswith(b"HTTP/1.1 101 ")
head = dict(line.split(b": ", 1) for line in iter(stream.readline, b"\r\n"))
head = {name.lower(): value.strip().decode() for name, value in head.items()}
guid = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
accept = base64.b64encode(hashlib.sha1((key + guid).encode()).digest()).decode()
assert head[b"sec-websocket-accept"] == accept, head


def send(kind: int, text: bytes) -> bytes:
    """Sends a frame, and returns the content of the next one."""
    mask = os.urandom(4)
    masked = bytes(byte ^ mask[i % 4] for i, byte in enumerate(text))
    sock.sendall(bytes([0x80 | kind, 0x80 | len(text)]) + mask + masked)
    got, length = stream.read(2)
    assert got == 0x80 | kind
    return stream.read(length)


for word in [b"hello", b"", bytes(range(100)), b"over"]:
    assert send(2, word) == word
assert send(8, b"") == b""
print("echoed")
