"""Tests builds with faulty registries: crashes, corrupt data, stalls, rejected requests and credentials."""

import base64
import gzip
import json
import signal
import socket
import subprocess
import sys
import threading
import time
import unittest

from image_faults_support import MEGABYTE, PATIENCE, Journey, missing_tools
from local_network import Line
from registry_support import TokenServer, digest_of, make_certificate


class WrongLine(Line):
    """Corrupts what a client receives while `wrong` is set: if `wrong` is an offset, the byte at this offset of each
    connection; if it is a byte string, every occurrence of the string."""
    wrong = None

    def _pass(self, source, sink, way, counts):
        super()._pass(self.Changing(source, self) if way == 1 else source, sink, way, counts)

    class Changing:
        def __init__(self, end, line):
            self._end, self._line, self._passed = end, line, 0

        def recv(self, size):
            piece = bytearray(self._end.recv(size))
            wrong = self._line.wrong
            if isinstance(wrong, bytes):
                piece = piece.replace(wrong, wrong.swapcase())
            elif wrong is not None and 0 <= wrong - self._passed < len(piece):
                piece[wrong - self._passed] ^= 1
            self._passed += len(piece)
            return piece

        def shutdown(self, how):
            self._end.shutdown(how)


class WaitingLine(Line):
    """Makes new connections wait while `away` is locked. A build tries only a few times, but a registry may take a long time
    to restart on a busy machine."""

    def __init__(self, port, after, away):
        self._away = away
        super().__init__(port, after)

    def _target_of(self, client):
        with self._away:
            return super()._target_of(client)


class BusyLine(Line):
    """Answers the first `count` requests with status 429. Each of them must use a separate connection."""

    def __init__(self, port, count, pause):
        self.left, self.pause = count, pause
        self._lock = threading.Lock()
        super().__init__(port, lambda up, down: False)

    def _serve(self, client, server):
        # The client first checks whether the registry speaks TLS; the registry itself answers that it does not.
        if client.recv(1, socket.MSG_PEEK) == b"\x16":
            return super()._serve(client, server)
        with self._lock:
            busy, self.left = self.left > 0, max(self.left - 1, 0)
        if not busy:
            return super()._serve(client, server)
        request = b""
        while not request.endswith(b"\r\n\r\n") and (piece := client.recv(65536)):
            request += piece
        body = b'{"errors":[{"code":"TOOMANYREQUESTS","message":"slow down"}]}'
        client.sendall(b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: %d\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s" % (self.pause, len(body), body))
        client.close()
        server.close()


class BadRegistries(Journey):
    def test_a_push_completes_although_the_registry_is_killed_and_restarted(self):
        server = self.registry()
        self.write(f"FROM {server.host}/{self.base(server)}\nCOPY f /f\nCOPY g /g\n", f=12 * MEGABYTE, g=9 * MEGABYTE)
        undisturbed = self.build(cache=self.root / "other")
        deaths, alone = [], threading.Lock()

        def die(up, down):
            if up < 5 * MEGABYTE:
                return False
            with alone:  # other uploads wait here until the registry has restarted
                if len(deaths) == 2:
                    return False
                deaths.append(up)
                server.kill()
                time.sleep(0.5)
                server.start()
            return True

        line = self.line(WaitingLine(server.port, die, alone))
        self.assertEqual(self.build("-t", f"{line.host}/x:1", "--push"), undisturbed)
        self.assertGreaterEqual(len(deaths), 1)
        self.check_image(server, "x:1", undisturbed)

    def test_an_unavailable_registry_is_reported_and_the_next_build_only_pushes(self):
        server = self.registry()
        self.write("FROM scratch\nCOPY f /f\n", f=6 * MEGABYTE)
        line = self.line(Line(server.port, lambda up, down: up > 2 * MEGABYTE and (server.kill() or True)))
        message = self.fails("-t", f"{line.host}/x:1", "--push")
        self.assertIn(f"{line.host}", message)
        self.assertIn("request to the registry", message)
        server.start()
        done = self.run_build("--json", "-t", f"{server.host}/x:1", "--push")
        result = json.loads(done.stdout)
        self.assertEqual(result["cachedSteps"], result["steps"])
        self.check_image(server, "x:1", result["digest"])

    def test_corrupted_downloads_are_rejected_and_not_cached(self):
        server = self.registry()
        base = self.base(server)
        line = self.line(WrongLine(server.port, lambda up, down: False))
        line.wrong = 2 * MEGABYTE
        self.write(f"FROM {line.host}/{base}\nRUN cat /ballast > /copy\n")
        message = self.fails()
        self.assertIn("the received content does not match its digest", message)
        self.assertIn("Dockerfile:2: RUN", message)
        for blob in (self.cache / "blobs/sha256").iterdir():
            self.assertEqual(digest_of(blob.read_bytes()), "sha256:" + blob.name)
        line.wrong = None
        digest = self.build()
        self.assertEqual(self.build(cache=self.root / "other"), digest)
        # A corrupted manifest or configuration is rejected, too.
        for line.wrong in b'"layers"', b'"rootfs"':
            message = self.fails(cache=self.root / "third")
            self.assertIn("the received content does not match", message)
            self.assertIn("Dockerfile:1: ", message)

    def test_an_interrupted_build_ends_promptly_while_a_registry_stalls(self):
        server = self.registry()
        base = self.base(server)
        stalled = threading.Event()

        def stall(up, down):
            if down > MEGABYTE:
                stalled.set()
                time.sleep(PATIENCE)

        line = self.line(Line(server.port, stall))
        self.write(f"FROM {line.host}/{base}\nRUN true\n")
        process = subprocess.Popen(**self.command(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.assertTrue(stalled.wait(PATIENCE))
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE)
        self.assertLess(time.monotonic() - began, 30)  # before the build would give up on the registry
        self.assertEqual(process.returncode, 130)

    def test_a_push_is_retried_and_completes_after_the_registry_stalls(self):
        server = self.registry()
        self.write("FROM scratch\nCOPY f /f\n", f=12 * MEGABYTE)
        undisturbed = self.build()
        stalled = threading.Event()

        def stall(up, down):
            if up > 5 * MEGABYTE and not stalled.is_set():
                stalled.set()
                time.sleep(PATIENCE)  # nothing is read or answered, and the connection stays open

        line = self.line(Line(server.port, stall))
        began = time.monotonic()
        self.assertEqual(self.build("-t", f"{line.host}/x:1", "--push", ADAPTDL_REGISTRY_STALL="2s"), undisturbed)
        self.assertTrue(stalled.is_set())
        self.assertLess(time.monotonic() - began, PATIENCE / 4)
        self.check_image(server, "x:1", undisturbed)

    def test_a_push_to_a_registry_that_always_stalls_times_out(self):
        server = self.registry()
        self.write("FROM scratch\nCOPY f /f\n", f=6 * MEGABYTE)
        line = self.line(Line(server.port, lambda up, down: up > 2 * MEGABYTE and time.sleep(PATIENCE)))
        began = time.monotonic()
        message = self.fails("-t", f"{line.host}/x:1", "--push", ADAPTDL_REGISTRY_STALL="1s")
        self.assertLess(time.monotonic() - began, PATIENCE / 4)
        self.assertGreater(line.connections, 3)
        self.assertIn("cannot push sha256:", message)
        self.assertIn(f"{line.host}", message)
        self.assertIn("timed out waiting for an answer", message)
        self.fails("-t", f"{line.host}/y:1", "--push", code=2, ADAPTDL_REGISTRY_STALL="soon")
        # The image is in the cache, so the next build only pushes it.
        done = self.run_build("--json", "-t", f"{server.host}/x:1", "--push")
        result = json.loads(done.stdout)
        self.assertEqual(result["cachedSteps"], result["steps"])
        self.check_image(server, "x:1", result["digest"])

    def test_retry_after_of_a_429_response_is_honored_up_to_a_limit(self):
        server = self.registry()
        base = self.base(server)
        line = self.line(BusyLine(server.port, 2, 1))
        self.write(f"FROM {line.host}/{base}\nCOPY f /f\n", f=100)
        began = time.monotonic()
        digest = self.build("-t", f"{line.host}/x:1", "--push")
        self.assertEqual(line.left, 0)
        self.assertGreater(time.monotonic() - began, 1)
        self.check_image(server, "x:1", digest)
        line = self.line(BusyLine(server.port, 1000, 3600))
        self.write(f"FROM {line.host}/{base}\nCOPY f /f\n")
        began = time.monotonic()
        message = self.fails(cache=self.root / "other")
        self.assertLess(time.monotonic() - began, 30)
        self.assertIn("Dockerfile:1: ", message)
        self.assertIn("slow down", message)


class Refusals(Journey):
    SECRET = "s3cret-of-a-registry"

    def auth_file(self, server, password, name="auth.json"):
        path = self.root / name
        path.write_text(json.dumps({"auths": {server.host: {"auth": base64.b64encode(f"ada:{password}".encode()).decode()}}}))
        return str(path)

    def protected(self):
        passwords = self.root / "htpasswd"
        subprocess.run(["htpasswd", "-Bbc", passwords, "ada", self.SECRET], check=True, capture_output=True)
        return self.registry(auth={"htpasswd": {"realm": "test", "path": str(passwords)}})

    def test_rejected_credentials_are_reported_for_pull_and_push(self):
        server = self.protected()
        wrong = self.auth_file(server, "wrong-" + self.SECRET)
        self.write(f"# a comment\nFROM {server.host}/base:1\nCOPY f /f\n", f=100)
        message = self.fails(REGISTRY_AUTH_FILE=wrong)
        self.assertIn(f"Dockerfile:2: cannot pull image '{server.host}/base:1': ", message)
        self.assertIn(f"the credentials from '{wrong}' were rejected; log in again", message)
        self.assertNotIn(self.SECRET, message)
        self.write("FROM scratch\nCOPY f /f\n")
        message = self.fails("-t", f"{server.host}/x:1", "--push", REGISTRY_AUTH_FILE=wrong)
        self.assertIn(f"the credentials from '{wrong}' were rejected; log in again", message)
        self.assertNotIn(self.SECRET, message)
        self.assertIn(f"log in with `docker login {server.host}`", self.fails("-t", f"{server.host}/x:1", "--push"))

    def test_a_push_with_tokens_that_are_always_expired_fails(self):
        certificate, key = make_certificate(self.root, "issuer")
        tokens = TokenServer(certificate, key, stale="always")
        self.addCleanup(tokens.server.shutdown)
        server = self.registry(auth={"token": {"realm": tokens.realm, "service": "registry", "issuer": "test", "rootcertbundle": str(certificate)}})
        self.write("FROM scratch\nCOPY f /f\n", f=100)
        auth = self.auth_file(server, "secret")
        message = self.fails("-t", f"{server.host}/x:1", "--push", REGISTRY_AUTH_FILE=auth)
        self.assertIn(f"the credentials from '{auth}' were rejected", message)
        self.assertLess(len(tokens.asked), 20)

    def test_secrets_are_not_in_the_cache_the_outputs_the_registry_or_messages(self):
        server = self.protected()
        auth = self.auth_file(server, self.SECRET)
        base = self.base(server, MEGABYTE, REGISTRY_AUTH_FILE=auth)
        key = self.root / "key"
        key.write_text("s3cret-of-a-file")
        self.write(f"FROM {server.host}/{base}\nRUN --mount=type=secret,id=key --mount=type=secret,id=word,env=WORD "
                   "cat /run/secrets/key | md5sum > /sum; echo ${#WORD} > /length\n")
        arguments = ["--secret", f"id=key,src={key}", "--secret", "id=word,env=THE_WORD", "-t", f"{server.host}/x:1", "--push",
                     "--output", f"oci:{self.root / 'out'}", "--output", f"docker-archive:{self.root / 'archive.tar'}"]
        variables = {"REGISTRY_AUTH_FILE": auth, "THE_WORD": "s3cret-of-a-variable"}
        done = self.run_build(*arguments, **variables)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.check_image(server, "x:1", done.stdout.split("@")[1].strip(), "--src-authfile", auth)
        printed = done.stdout + done.stderr
        self.write((self.project / "Dockerfile").read_text() + "RUN --mount=type=secret,id=key false\n")
        printed += self.fails(*arguments, **variables)
        encoded = base64.b64encode(f"ada:{self.SECRET}".encode())
        for secret in (b"s3cret-of-a-file", b"s3cret-of-a-variable", self.SECRET.encode(), encoded):
            self.assertNotIn(secret.decode(), printed)
        looked = 0
        for place in (self.cache, self.root / "base-cache", server.root, self.root / "out", self.root / "archive.tar", self.root / "copy"):
            for path in [place, *place.rglob("*")]:
                if not path.is_file() or path.is_symlink():
                    continue
                data = path.read_bytes()
                data = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
                looked += len(data)
                for secret in (b"s3cret-of-a-file", b"s3cret-of-a-variable", self.SECRET.encode(), encoded):
                    self.assertNotIn(secret, data, path)
        self.assertGreater(looked, 4 * MEGABYTE)


if __name__ == "__main__":
    if missing := missing_tools():
        print("skipped: these are not installed:", *missing)
        sys.exit(77)
    unittest.main(verbosity=2)
