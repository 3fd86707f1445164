"""Provides tests with a private loopback interface, free ports, and proxies that can break connections to a server."""

import ctypes
import fcntl
import random
import socket
import struct
import threading

PATIENCE = 60
CLONE_NEWNET = 0x40000000
SIOCSIFFLAGS, IFF_UP = 0x8914, 0x1


def leave_network():
    """Gives this thread, and the processes and threads that it starts afterwards, a loopback interface that other processes do
    not use. Otherwise, another test could take the port that a launcher has chosen before the launcher's replicas listen
    there. Does nothing if that is not permitted."""
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET) != 0:
        return
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh22x", b"lo", IFF_UP))


def free_port():
    """Returns a free port below the ephemeral ports, so that no connection takes it before the test does."""
    while True:
        port = random.randint(20000, 29999)
        with socket.socket() as probe:
            try:
                probe.bind(("", port))
                return port
            except OSError:
                pass


class Line:
    """Forwards connections to a server on loopback. After each piece of data, `after(up, down)` receives the number of bytes
    that the connection has sent to and received from the server, and returns whether to break the connection. It may also
    do other things before it returns."""

    def __init__(self, port, after):
        self._target, self._after = ("127.0.0.1", port), after
        self.connections = 0
        self.passed = [0, 0]
        self._counting = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self._listener.getsockname()[1]
        self.host = f"127.0.0.1:{self.port}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        self._listener.close()

    def _accept(self):
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._begin, args=(client,), daemon=True).start()

    def _begin(self, client):
        self.connections += 1
        try:
            server = socket.create_connection(self._target_of(client), timeout=PATIENCE)
        except OSError:
            return client.close()
        server.settimeout(None)
        self._serve(client, server)

    def _target_of(self, client):
        return self._target

    def _serve(self, client, server):
        counts = [0, 0]
        threads = [threading.Thread(target=self._pass, args=(*ends, way, counts), daemon=True)
                   for way, ends in enumerate([(client, server), (server, client)])]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        client.close()
        server.close()

    def _pass(self, source, sink, way, counts):
        try:
            while piece := source.recv(65536):
                # The bytes are counted before they are sent, since the test may check the sum as soon as they arrive.
                counts[way] += len(piece)
                with self._counting:
                    self.passed[way] += len(piece)
                sink.sendall(piece)
                if self._after(*counts):
                    break
        except OSError:
            pass
        for end in (source, sink):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


class CuttingProxy(Line):
    """An HTTP proxy that accepts only CONNECT. Each time its connections have carried another `every` bytes in total, it breaks
    the connection that carried the last of them, up to `cuts` times."""

    def __init__(self, every, cuts):
        self.cuts = 0
        lock = threading.Lock()

        def is_cut(up, down):
            with lock:
                if self.cuts >= cuts or sum(self.passed) < every * (self.cuts + 1):
                    return False
                self.cuts += 1
                return True

        super().__init__(None, is_cut)

    def _target_of(self, client):
        request = b""
        while not request.endswith(b"\r\n\r\n"):
            request += client.recv(1) or b"\r\n\r\n"
        words = request.decode().split()
        if words[:1] != ["CONNECT"]:
            client.sendall(b"HTTP/1.1 405 Method Not Allowed\r\nContent-Length: 0\r\n\r\n")
            raise ConnectionError("not a CONNECT request")
        host, _, port = words[1].rpartition(":")
        return host.strip("[]"), int(port)

    def _serve(self, client, server):
        client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        super()._serve(client, server)
