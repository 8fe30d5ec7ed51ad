"""Tries whatever is not allowed, and prints what came of it: `attempts.py OPEN-PORT HOST-ADDRESS HOST-PORT ALLOWED-ADDRESS`.

Each line is a name and an outcome. An outcome of `DATA` is a way out.
"""

import ctypes
import errno
import os
import platform
import socket
import struct
import sys
import time

port, host_address, host_port, allowed = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4]
libc = ctypes.CDLL(None, use_errno=True)
# Numbers of system calls.
BPF, UNSHARE, SETNS = (280, 97, 268) if platform.machine() == "aarch64" else (321, 272, 308)


def outcome(attempt) -> str:
    """Returns the error of an attempt, or its answer."""
    began = time.monotonic()
    try:
        said = attempt()
    except socket.gaierror:
        said = "NO-NAME"
    except TimeoutError:
        said = "TIMEOUT"
    except (OSError, UnicodeError, ValueError) as error:
        said = errno.errorcode.get(getattr(error, "errno", None), type(error).__name__)
    return said + (" SLOW" if time.monotonic() - began > 5 else "")


def tcp(*to) -> str:
    family = socket.AF_INET6 if ":" in to[0] else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as stream:
        stream.settimeout(8)
        stream.connect(to)
        stream.sendall(b"GET / HTTP/1.0\r\n\r\n")
        return "DATA" if stream.recv(1) else "CLOSED"


def udp(to) -> str:
    family = socket.AF_INET6 if ":" in to[0] else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as packets:
        packets.settimeout(8)
        packets.connect(to)
        packets.send(b"x")
        return "DATA" if packets.recv(64) else "CLOSED"


def made(*arguments) -> str:
    socket.socket(*arguments).close()
    return "DATA"


def call(number: int, *arguments) -> str:
    if libc.syscall(number, *arguments) >= 0:
        return "DATA"
    return errno.errorcode[ctypes.get_errno()]


def netlink(kind: int, body: bytes) -> str:
    """Sends a request about links or routes, and returns the kernel's answer."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as kernel:
        kernel.send(struct.pack("=IHHII", 16 + len(body), kind, 5, 1, 0) + body)
        code = struct.unpack_from("=i", kernel.recv(4096), 16)[0]
        return errno.errorcode[-code] if code else "DATA"


def dns(resolver: str, name: str) -> str:
    """Asks over TCP, and returns the code and the number of answers."""
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    query = struct.pack(">HHHHHH", 7, 0x100, 1, 0, 0, 0) + labels + b"\0" + struct.pack(">HH", 1, 1)
    with socket.create_connection((resolver, 53), timeout=8) as stream:
        stream.sendall(struct.pack(">H", len(query)) + query)
        reader = stream.makefile("rb")
        answer = reader.read(struct.unpack(">H", reader.read(2))[0])
        return f"{answer[3] & 15}/{struct.unpack_from('>H', answer, 6)[0]}"


attempts = {}
LITERALS = [
    "10.1.2.3", "167838211", "0x0a010203", "012.1.2.3", "10.66051", "169.254.169.254", "93.184.216.34", "100.64.0.1",
    "11.200.77.77", "198.51.100.7", "192.0.2.1", "224.0.0.1", "255.255.255.255", "::ffff:10.1.2.3", "2001:db8::1",
    "fd00:ec2::254", "64:ff9b::a01:203",
]
for literal in LITERALS:
    for to in (port, 443, 80):
        attempts[f"tcp {literal} {to}"] = lambda literal=literal, to=to: tcp(literal, to)
attempts["tcp zone"] = lambda: tcp("fe80::1", port, 0, 1)
attempts["tcp host"] = lambda: tcp(host_address, host_port)
attempts["tcp another port of an allowed name"] = lambda: tcp(allowed, 22)
for name in ["other.example.org", "example.org", "files.example.org.evil.example.org", "filesexample.org", "f\u0456les.example.org"]:
    attempts[f"name {name.encode('ascii', 'replace').decode()}"] = lambda name=name: tcp(name, port)
for literal in ["93.184.216.34", "10.1.2.3", "8.8.8.8", "2001:db8::1"]:
    for to in (443, 123, 5353):
        attempts[f"udp {literal} {to}"] = lambda literal=literal, to=to: udp((literal, to))
for name, arguments in {
    "raw icmp": (socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP),
    "raw ip": (socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW),
    "raw icmp6": (socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6),
    "ping": (socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP),
    "packet": (socket.AF_PACKET, socket.SOCK_RAW, 0x0300),
    "sctp": (socket.AF_INET, socket.SOCK_STREAM, 132),
    "mptcp": (socket.AF_INET, socket.SOCK_STREAM, 262),
}.items():
    attempts[f"socket {name}"] = lambda arguments=arguments: made(*arguments)
# Removes the route to everywhere, adds one, takes the interface down, and makes a pair of interfaces.
route = struct.pack("=BBBBBBBBI", socket.AF_INET, 0, 0, 0, 254, 4, 254, 2, 0) + struct.pack("=HHI", 8, 4, 1)
attempts["netlink remove the route"] = lambda: netlink(25, route)
attempts["netlink add a route"] = lambda: netlink(24, route)
attempts["netlink loopback down"] = lambda: netlink(16, struct.pack("=IIII", 0, 1, 0, 1))
# LINK_DETACH, LINK_UPDATE, PROG_LOAD, LINK_GET_FD_BY_ID and PROG_GET_FD_BY_ID.
for command in (34, 29, 5, 30, 13):
    attempts[f"bpf {command}"] = lambda command=command: call(BPF, command, ctypes.create_string_buffer(128), 128)
for name, flags in {"user": 0x10000000, "network": 0x40000000, "both": 0x50000000}.items():
    attempts[f"unshare {name}"] = lambda flags=flags: call(UNSHARE, flags)
attempts["setns"] = lambda: call(SETNS, os.open("/proc/self/ns/net", os.O_RDONLY), 0x40000000)
for resolver in ["8.8.8.8", "10.1.2.3", "192.0.2.53"]:
    attempts[f"dns {resolver}"] = lambda resolver=resolver: dns(resolver, "files.example.org")
    attempts[f"dns {resolver} unknown"] = lambda resolver=resolver: dns(resolver, "secret.evil.example.org")

for name, attempt in attempts.items():
    print(name, "=", outcome(attempt), flush=True)
