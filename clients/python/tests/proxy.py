"""A connection that can be cut: between a client and a daemon, both on Unix sockets."""

import socket
import threading
import time
from contextlib import suppress
from pathlib import Path


class Proxy:
    """Passes bytes on, until it is told to cut."""

    def __init__(self, place: Path, endpoint: str) -> None:
        self._place = place
        self._target = endpoint.removeprefix("unix:")
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(place))
        self._listener.listen()
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._muted: set[socket.socket] = set()
        self._is_closed = False
        self._lock = threading.Lock()
        self.endpoint = f"unix:{place}"
        #: How many connections were made.
        self.connections = 0
        #: Cut each connection after so many bytes from the daemon, so many times.
        self.cut_after = 0
        self.cuts = 0
        #: Cut each connection after so many bytes from the client; 0: none.
        self.cut_after_sent = 0
        #: Seconds for which each new connection says nothing.
        self.silent_for = 0.0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            daemon = socket.socket(socket.AF_UNIX)
            time.sleep(self.silent_for)
            daemon.connect(self._target)
            with self._lock:
                if self._is_closed:
                    self._close(client, daemon)
                    return
                self.connections += 1
                self._pairs.append((client, daemon))
            threading.Thread(target=self._pump, args=(client, daemon, False), daemon=True).start()
            threading.Thread(target=self._pump, args=(daemon, client, True), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, from_daemon: bool) -> None:
        passed = 0
        with suppress(OSError):
            while data := source.recv(16384):
                passed += len(data)
                if from_daemon and self.cuts and self.cut_after and passed > self.cut_after:
                    self.cuts -= 1
                    break
                if source in self._muted:
                    continue
                if not from_daemon and 0 < self.cut_after_sent < passed:
                    break
                sink.sendall(data)
        self._close(source, sink)

    @staticmethod
    def _close(*ends: socket.socket) -> None:
        for end in ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def mute(self) -> None:
        """From now on the connections that there are carry nothing from the daemon."""
        with self._lock:
            self._muted = {daemon for _, daemon in self._pairs}

    def cut(self) -> None:
        """Every connection that there is."""
        with self._lock:
            pairs, self._pairs = self._pairs, []
        for pair in pairs:
            self._close(*pair)

    def close(self) -> None:
        """Every connection, and takes no others. It has no address from the first broken connection on."""
        with self._lock:
            self._is_closed = True
        self._place.unlink(missing_ok=True)
        # Ends the waiting for a connection, which keeps a listener that is only closed.
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()
