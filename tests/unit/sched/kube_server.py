"""Runs an HTTPS server that misbehaves depending on the requested path, and a CONNECT proxy to it, both on loopback.

Writes certificates to the directory given as argument, then prints the two ports as a line of JSON.
"""

import http.server
import json
import pathlib
import select
import socket
import ssl
import subprocess
import sys
import threading
import time

FOLDER = pathlib.Path(sys.argv[1])
NAME = "cluster.test"  # the only name in the server's certificate


def openssl(*words):
    subprocess.run(["openssl", *words], cwd=FOLDER, check=True, capture_output=True, timeout=60)


def certificates():
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    for authority in ("ca", "stranger"):
        openssl("req", "-x509", *key, "-keyout", f"{authority}.key", "-out", f"{authority}.pem",
                "-days", "2", "-subj", f"/CN={authority}", "-addext", "basicConstraints=critical,CA:TRUE")
    for name in ("server", "client"):
        (FOLDER / f"{name}.ext").write_text(f"subjectAltName=DNS:{NAME}\n")
        openssl("req", *key, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN=the-{name}")
        openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial",
                "-out", f"{name}.pem", "-days", "2", "-extfile", f"{name}.ext")


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    seen = {}
    connections = 0
    proxied = set()  # ports from which the proxy connects

    def setup(self):
        Handler.connections += 1
        super().setup()

    def answer(self, status, body, **headers):
        data = json.dumps(body).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def handle_any(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        path = self.path.split("?")[0]
        count = Handler.seen[path] = Handler.seen.get(path, 0) + 1
        if path == "/count-of":
            self.answer(200, {"count": Handler.seen.get(self.path.partition("?")[2], 0)})
        elif path.startswith("/busy") and count == 1:
            self.answer(429, {"kind": "Status", "message": "too many"}, Retry_After="1")
        elif path.startswith("/down") and count < 3:
            self.answer(503, {"kind": "Status", "message": "not now"})
        elif path.startswith("/cut"):
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b'{"half":')
            self.close_connection = True
        elif path == "/slow":
            time.sleep(20)
            self.close_connection = True
        elif path == "/page":
            token = "continue=" in self.path
            if token and count == 2:
                self.answer(410, {"kind": "Status", "reason": "Expired", "metadata": {"continue": "later"}})
            elif token:
                self.answer(200, {"metadata": {"resourceVersion": "9"}, "items": [{"n": 2, "path": self.path}]})
            else:
                self.answer(200, {"metadata": {"resourceVersion": "7", "continue": "a&b"}, "items": [{"n": 1}]})
        elif path == "/forbidden":
            self.answer(403, {"kind": "Status", "reason": "Forbidden", "message": "no right"})
        elif path.startswith("/apis/"):
            details = {"name": "x"} if path.endswith("/x") else {}
            self.answer(404, {"kind": "Status", "reason": "NotFound", "message": "not here", "details": details})
        elif path == "/html":
            self.answer(200, "not an object")
        elif path == "/stream":
            self.send_response(200)
            self.end_headers()
            for number in range(200):
                self.wfile.write(b"tick\n")
                time.sleep(0.1)
        else:
            certificate = self.connection.getpeercert() or {}
            subject = [value for ((key, value),) in certificate.get("subject", ()) if key == "commonName"]
            self.answer(200, {"method": self.command, "path": self.path, "body": body, "count": count,
                              "host": self.headers["Host"], "type": self.headers["Content-Type"], "subject": subject,
                              "authorization": self.headers["Authorization"], "connections": Handler.connections,
                              "proxied": self.client_address[1] in Handler.proxied})

    do_GET = do_PUT = do_POST = do_PATCH = do_DELETE = handle_any

    def log_message(self, *arguments):
        pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, address):
        pass  # tests disconnect on purpose


def proxy(listener):
    while True:
        client, _ = listener.accept()
        threading.Thread(target=tunnel, args=(client,), daemon=True).start()


def tunnel(client):
    head = b""
    while b"\r\n\r\n" not in head:
        head += client.recv(4096)
    host, port = head.split()[1].decode().rsplit(":", 1)
    server = socket.create_connection((host, int(port)))
    Handler.proxied.add(server.getsockname()[1])
    client.sendall(b"HTTP/1.1 200 Connected\r\n\r\n")
    while True:
        for end in select.select([client, server], [], [])[0]:
            data = end.recv(65536)
            if not data:
                return
            (server if end is client else client).sendall(data)


certificates()
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(FOLDER / "server.pem", FOLDER / "server.key")
context.load_verify_locations(FOLDER / "ca.pem")
context.verify_mode = ssl.CERT_OPTIONAL
server = Server(("127.0.0.1", 0), Handler)
server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
listener = socket.create_server(("127.0.0.1", 0))
threading.Thread(target=proxy, args=(listener,), daemon=True).start()
print(json.dumps([server.server_port, listener.getsockname()[1]]), flush=True)
server.serve_forever()
