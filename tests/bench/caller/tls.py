"""Opens connections with TLS, in a run or beside it, and prints the time of each: nanoseconds, a line each."""

import selectors
import socket
import ssl
import sys
import time

NAME = "files.example.org"
# Its file of authorities is named by SSL_CERT_FILE.
CONTEXT = ssl.create_default_context()


def ask(address, path):
    stream = CONTEXT.wrap_socket(socket.create_connection(address), server_hostname=NAME)
    stream.sendall(f"GET /{path} HTTP/1.1\r\nHost: {NAME}:{address[1]}\r\n\r\n".encode())
    return stream


def connect(address, count):
    """Waits for the first byte of a response."""
    for _ in range(int(count)):
        began = time.perf_counter_ns()
        stream = ask(address, "byte")
        first = stream.recv(1)
        took = time.perf_counter_ns() - began
        assert first == b"H", "the connection was closed"
        stream.close()
        print(took)
        time.sleep(0.003)


def download(address, mebibytes):
    """Downloads so many MiB, from the connection to the last byte."""
    buffer, received = bytearray(1 << 20), 0
    began = time.perf_counter_ns()
    stream = ask(address, mebibytes)
    head = b""
    while b"\r\n\r\n" not in head:
        head += stream.recv(1)
    while received < int(mebibytes) << 20:
        read = stream.recv_into(buffer)
        assert read > 0, "the connection was closed"
        received += read
    print(time.perf_counter_ns() - began)


def streams(address, count):
    """Holds streams of events, each of which has sent one, until a signal ends the program."""
    selector = selectors.DefaultSelector()
    for _ in range(int(count)):
        stream = ask(address, "events")
        received = b""
        while b"data:" not in received:
            piece = stream.recv(512)
            assert piece, "the connection was closed"
            received += piece
        selector.register(stream, selectors.EVENT_READ)
    print(count, "held", flush=True)
    while True:
        for key, _ in selector.select():
            assert key.fileobj.recv(4096), "a stream has ended"


if __name__ == "__main__":
    verb, host, port, number = sys.argv[1:]
    {"connect": connect, "download": download, "streams": streams}[verb]((socket.gethostbyname(host), int(port)), number)
