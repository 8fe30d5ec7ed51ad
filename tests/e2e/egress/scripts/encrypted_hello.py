"""Sends a ClientHello with another one encrypted in it: `encrypted_hello.py HOST PORT NAME`.

The name is in the clear. The encrypted part is random, as that of a browser without a configuration of the server.
"""

import os
import socket
import ssl
import sys

host, port, name = sys.argv[1], int(sys.argv[2]), sys.argv[3]

context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
context.check_hostname = False
context.verify_mode = ssl.CERT_NONE
sent = ssl.MemoryBIO()
client = context.wrap_bio(ssl.MemoryBIO(), sent, server_hostname=name or None)
try:
    client.do_handshake()
except ssl.SSLWantReadError:
    pass
record = sent.read()


def sized(content, width):
    return len(content).to_bytes(width, "big") + content


# The kind, the suite and the number of the configuration, a key, and the encrypted part.
encrypted = bytes([0, 0, 1, 0, 1, 7]) + sized(os.urandom(32), 2) + sized(os.urandom(176), 2)
extension = b"\xfe\x0d" + sized(encrypted, 2)

body = record[9:]
at = 2 + 32
for width in (1, 2, 1):
    at += width + int.from_bytes(body[at : at + width], "big")
body = body[:at] + sized(extension + body[at + 2 :], 2)
record = record[:3] + sized(record[5:6] + sized(body, 3), 2)

try:
    with socket.create_connection((host, port), timeout=20) as stream:
        stream.sendall(record)
        first = stream.recv(1)
except ConnectionError:
    first = b""
print("handshake" if first == b"\x16" else f"refused {first.hex()}".strip())
