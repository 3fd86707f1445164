"""An HTTP proxy between a command and the API server, whose connections break after so many bytes, as on a bad line."""

import socket
import threading


class CuttingProxy:
    """Takes CONNECT on `port` of loopback. Of all that goes through, either way, the connection that carries each next
    `every` bytes is closed on both sides, `cuts` times; the others are left alone."""

    def __init__(self, every, cuts):
        self.cuts = 0
        self.connections = 0
        self._every, self._most = every, cuts
        self._passed = 0
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        self._listener.close()

    def _accept(self):
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client):
        request = b""
        while b"\r\n\r\n" not in request:
            piece = client.recv(4096)
            if not piece:
                return client.close()
            request += piece
        method, target, _ = request.split(b"\r\n")[0].decode().split()
        if method != "CONNECT":
            client.sendall(b"HTTP/1.1 405 Method Not Allowed\r\nContent-Length: 0\r\n\r\n")
            return client.close()
        host, _, port = target.rpartition(":")
        server = socket.create_connection((host.strip("[]"), int(port)), timeout=30)
        server.settimeout(None)
        client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        with self._lock:
            self.connections += 1
        pair = (client, server)
        threads = [threading.Thread(target=self._pass, args=(*ends, pair), daemon=True) for ends in (pair, pair[::-1])]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for end in pair:
            end.close()

    def _pass(self, source, sink, pair):
        try:
            while piece := source.recv(65536):
                if self._is_cut(len(piece)):
                    sink.sendall(piece[: len(piece) // 2])
                    break
                sink.sendall(piece)
            else:
                sink.shutdown(socket.SHUT_WR)
                return
        except OSError:
            pass
        for end in pair:
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def _is_cut(self, size):
        with self._lock:
            self._passed += size
            if self.cuts >= self._most or self._passed < self._every * (self.cuts + 1):
                return False
            self.cuts += 1
            return True
