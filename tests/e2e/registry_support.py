"""Servers for the end-to-end tests of the registry client: Debian's docker-registry, a token server, and servers that misbehave."""

import base64
import hashlib
import http.server
import json
import os
import pathlib
import shutil
import socket
import subprocess
import threading
import time
import urllib.parse

from local_network import PATIENCE, free_port

PROGRAM = os.environ["REGISTRY_PROGRAM"]


def openssl(*arguments, **options):
    return subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True, **options).stdout


def make_certificate(root, name, issuer=None):
    """Creates a certificate for this machine that `issuer` signs or, without an issuer, the certificate of an authority.
    Returns (certificate, key)."""
    certificate, key = root / f"{name}.crt", root / f"{name}.key"
    if issuer is None:
        openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}", "-keyout", key, "-out", certificate)
        return certificate, key
    request, extensions = root / f"{name}.csr", root / f"{name}.ext"
    extensions.write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
    openssl("req", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}", "-keyout", key, "-out", request)
    openssl("x509", "-req", "-in", request, "-CA", issuer[0], "-CAkey", issuer[1], "-CAcreateserial", "-days", "2",
            "-extfile", extensions, "-out", certificate)
    return certificate, key


class RegistryServer:
    """Runs docker-registry on a loopback port, with its own storage directory."""

    def __init__(self, root, tls=None, auth=None):
        self.root = pathlib.Path(root)
        self.root.mkdir(parents=True, exist_ok=True)
        self.storage = self.root / "storage"
        self.config, self.log = self.root / "config.yml", self.root / "log"
        config = {
            "version": "0.1", "log": {"accesslog": {"disabled": True}},
            "storage": {"filesystem": {"rootdirectory": str(self.storage)}},
            "http": {"secret": "of the test"},
        }
        if tls:
            config["http"]["tls"] = {"certificate": str(tls[0]), "key": str(tls[1])}
        if auth:
            config["auth"] = auth
        self.process = None
        while True:
            self.port = free_port()
            self.host = config["http"]["addr"] = f"127.0.0.1:{self.port}"
            self.config.write_text(json.dumps(config))  # JSON is valid YAML
            if self._try_to_start():
                return

    def start(self):
        """Starts the registry again, on the same port."""
        deadline = time.monotonic() + PATIENCE
        while not self._try_to_start():
            assert time.monotonic() < deadline, self.log.read_text()

    def _try_to_start(self):
        """Returns false if another process has taken the port in the meantime: the tests that run in parallel choose their ports in
        the same way."""
        with open(self.log, "ab") as log:
            before = log.tell()
            self.process = subprocess.Popen(["docker-registry", "serve", self.config], stdout=log, stderr=log)
        deadline = time.monotonic() + PATIENCE
        while True:
            ended = self.process.poll() is not None
            printed = self.log.read_bytes()[before:]
            if b"listening on " in printed:
                return True
            if ended and b"address already in use" in printed:
                return False
            assert not ended and time.monotonic() < deadline, printed
            time.sleep(0.02)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def blob_file(self, digest):
        hex_digits = digest.split(":")[1]
        return self.storage / "docker/registry/v2/blobs/sha256" / hex_digits[:2] / hex_digits / "data"


def digest_of(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


def times(count, condition):
    """Returns a condition that holds whenever `condition` does, but at most `count` times."""
    left = [count]
    lock = threading.Lock()

    def ask(up, down):
        with lock:
            if left[0] == 0 or not condition(up, down):
                return False
            left[0] -= 1
            return True

    return ask


def serve(handler):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def urlsafe(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class TokenServer:
    """Issues tokens that the registry accepts. The user ada, with the password `secret` or the refresh token `refresh`, is
    granted every request; anonymous clients may only pull from `public`. If `stale` is true, the first token for each scope
    has already expired; if it is "always", every token has."""

    def __init__(self, certificate, key, stale=False):
        self.asked = []
        self._stale, self._given = stale, set()
        self._certificate = "".join(certificate.read_text().split("-----")[2].split())
        self._key = key
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                query = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query)
                user = base64.b64decode((self.headers.get("Authorization") or "Basic ").split(" ")[1]).decode()
                self.answer("GET", user, query.get("scope", []), user in ("", "ada:secret"), user != "")

            def do_POST(self):
                form = urllib.parse.parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
                token = form.get("refresh_token", [""])[0]
                self.answer("POST", token, form.get("scope", [""])[0].split(), token == "refresh", True)

            def answer(self, method, who, scopes, known, named):
                outer.asked.append((method, who, scopes))
                body = {"details": "incorrect username or password"}
                if known:
                    body = {"access_token" if method == "POST" else "token": outer.token(scopes, named), "expires_in": 300}
                text = json.dumps(body).encode()
                self.send_response(200 if known else 401)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *arguments):
                pass

        self.server = serve(Handler)
        self.realm = f"http://127.0.0.1:{self.server.server_port}/token"

    def token(self, scopes, named):
        now = int(time.time())
        end = now + 300
        if self._stale == "always" or (self._stale and tuple(scopes) not in self._given):
            self._given.add(tuple(scopes))
            end = now - 3600
        access = []
        for scope in scopes:
            kind, name, actions = scope.split(":")
            granted = [action for action in actions.split(",") if named or (action == "pull" and name == "public")]
            access.append({"type": kind, "name": name, "actions": granted})
        header = {"typ": "JWT", "alg": "RS256", "x5c": [self._certificate]}
        claims = {"iss": "test", "aud": "registry", "sub": "", "iat": now - 7200, "nbf": now - 7200, "exp": end, "jti": str(now),
                  "access": access}
        text = urlsafe(json.dumps(header).encode()) + "." + urlsafe(json.dumps(claims).encode())
        return text + "." + urlsafe(openssl("dgst", "-sha256", "-sign", self._key, input=text.encode()))


class PatientUploads(http.server.BaseHTTPRequestHandler):
    """A registry that supports only uploads and keeps whatever it has received of an interrupted request, as the
    specification permits. A test derives a class with `cut_after`, the upload sizes at which the server closes the
    connection, once each."""
    protocol_version = "HTTP/1.1"

    def reply(self, status, **headers):
        self.send_response(status)
        for name, value in {"Content-Length": "0", **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()

    def place(self):
        return {"Location": f"/v2/x/blobs/uploads/1?state={len(self.data)}", "Range": f"0-{max(len(self.data) - 1, 0)}"}

    def do_HEAD(self):
        self.reply(200 if self.done else 404)

    def do_POST(self):
        self.posts.append(self.path)
        self.reply(202, **self.place())

    def do_GET(self):
        self.reply(204, **self.place())

    def take(self):
        length = int(self.headers["Content-Length"])
        self.starts.append((self.command, self.headers.get("Content-Range"), len(self.data)))
        while length:
            room = length if not self.cut_after else min(length, self.cut_after[0] - len(self.data))
            piece = self.rfile.read(min(room, 65536))
            self.data.extend(piece)
            length -= len(piece)
            if self.cut_after and len(self.data) >= self.cut_after[0]:
                self.cut_after.pop(0)
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)
                return False
        return True

    def do_PATCH(self):
        if self.take():
            self.reply(202, **self.place())

    def do_PUT(self):
        if self.take():
            self.done.append(self.path)
            self.reply(201, Location="/v2/x/blobs/1")

    def log_message(self, *arguments):
        pass


def run(*arguments, **options):
    environment = {name: value for name, value in os.environ.items() if "proxy" not in name.lower()}
    environment.pop("REGISTRY_AUTH_FILE", None)
    environment.update(DOCKER_CONFIG="/nonexistent", XDG_RUNTIME_DIR="/nonexistent")
    environment.update(options.pop("environment", {}))
    return subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, env=environment, timeout=options.pop("timeout", 120))


def missing_tools():
    return [tool for tool in ("docker-registry", "skopeo", "htpasswd", "openssl") if not shutil.which(tool)]
