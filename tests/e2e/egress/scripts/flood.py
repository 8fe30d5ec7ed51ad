"""Floods the way out: `flood.py names|connections SECONDS HOST PORT`. Prints how many there were."""

import random
import socket
import struct
import sys
import threading
import time

kind, end = sys.argv[1], time.monotonic() + float(sys.argv[2])
host, port = sys.argv[3], int(sys.argv[4])
counts = []


def names() -> int:
    count, packets = 0, socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    packets.connect(("8.8.8.8", 53))
    packets.setblocking(False)
    while time.monotonic() < end:
        label = b"%012x" % random.getrandbits(48)
        query = struct.pack(">HHHHHH", 7, 0x100, 1, 0, 0, 0) + bytes([len(label)]) + label
        query += b"\7example\3org\0" + struct.pack(">HH", 1, 1)
        for act in (lambda: packets.send(query), lambda: packets.recv(512)):
            try:
                act()
            except BlockingIOError:
                pass
        count += 1
    return count


def connections() -> int:
    count, address = 0, None
    # Names have no answer while a flood of names is still worked off.
    while address is None and time.monotonic() < end:
        try:
            address = socket.gethostbyname(host)
        except socket.gaierror:
            time.sleep(0.05)
    while time.monotonic() < end:
        try:
            socket.create_connection((address, port), timeout=5).close()
        except OSError:
            pass
        count += 1
    return count


work = {"names": names, "connections": connections}[kind]
threads = [threading.Thread(target=lambda: counts.append(work())) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(sum(counts))
