"""Tests pushes and pulls of images with Debian's docker-registry and skopeo, over broken connections and with full disks."""

import base64
import hashlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import registry_support
from local_network import PATIENCE, Line
from registry_support import PROGRAM, PatientUploads, RegistryServer, TokenServer, make_certificate, run, serve, times

MEGABYTE = 1 << 20


def digest_of(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


class Journey(unittest.TestCase):
    def setUp(self):
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="adaptdl-registry-"))
        self.addCleanup(shutil.rmtree, self.root, ignore_errors=True)

    def registry(self, name="registry", **options):
        server = RegistryServer(self.root / name, **options)
        self.addCleanup(lambda: server.kill())
        return server

    def line(self, server, after):
        line = Line(server.port, after)
        self.addCleanup(line.close)
        return line

    def file(self, size, name="file"):
        path = self.root / name
        with open(path, "wb") as file:  # in pieces, so that a large file does not fill this process's memory
            for at in range(0, size, MEGABYTE):
                file.write(os.urandom(min(MEGABYTE, size - at)))
        return path

    def auth_file(self, content, name="auth.json"):
        path = self.root / name
        path.write_text(json.dumps(content))
        return path

    def succeed(self, *arguments, **options):
        result = run(*arguments, **options)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout.strip()

    def fail_with(self, *arguments, **options):
        result = run(*arguments, **options)
        self.assertEqual(result.returncode, 1, result.stdout + result.stderr)
        self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
        return result.stderr.strip()

    def pull(self, *arguments, directory="pulled"):
        """Pulls an image, checks its blobs against their digests, and returns the manifest."""
        target = self.root / directory
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir()
        manifest = json.loads(self.succeed(*arguments[:-1], "pull", arguments[-1], target))
        for blob in [manifest["config"], *manifest["layers"]]:
            data = (target / blob["digest"].split(":")[1]).read_bytes()
            self.assertEqual(digest_of(data), blob["digest"])
        return manifest

    def skopeo(self, *arguments):
        result = subprocess.run(["skopeo", "--insecure-policy", *map(str, arguments)], capture_output=True, text=True, timeout=120)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout


class PlainRegistry(Journey):
    def test_skopeo_reads_pushed_images(self):
        server = self.registry()
        layers = [self.file(3 * MEGABYTE, "one"), self.file(10, "two"), self.file(0, "empty")]
        digest = self.succeed("push", f"{server.host}/team/x:1", *layers)
        copy = self.root / "copy"
        self.skopeo("copy", "--src-tls-verify=false", f"docker://{server.host}/team/x:1", f"dir:{copy}")
        manifest = (copy / "manifest.json").read_bytes()
        self.assertEqual(digest_of(manifest), digest)
        for layer, blob in zip(layers, json.loads(manifest)["layers"]):
            self.assertEqual((copy / blob["digest"].split(":")[1]).read_bytes(), layer.read_bytes())
        self.assertEqual(self.pull(f"{server.host}/team/x@{digest}"), json.loads(manifest))

    def test_images_pushed_by_skopeo_are_pulled_for_the_requested_platform(self):
        server = self.registry()
        digests = {}
        for platform in ("linux/amd64", "linux/arm64", "linux/arm/v6", "linux/arm/v7"):
            layer = self.file(1000, platform.replace("/", "-"))
            digests[platform] = self.succeed(f"platform={platform}", "push", f"{server.host}/parts:{layer.name}", layer)
        layout = self.root / "layout"
        for platform in digests:
            self.skopeo("copy", "--src-tls-verify=false", f"docker://{server.host}/parts:{platform.replace('/', '-')}",
                        f"oci:{layout}:{platform.replace('/', '-')}")
        entries = json.loads((layout / "index.json").read_text())["manifests"]
        for entry in entries:
            os_name, architecture, *variant = entry.pop("annotations")["org.opencontainers.image.ref.name"].split("-")
            entry["platform"] = {"os": os_name, "architecture": architecture, **({"variant": variant[0]} if variant else {})}
        text = json.dumps({"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": entries}).encode()
        (layout / "blobs/sha256" / digest_of(text).split(":")[1]).write_bytes(text)
        (layout / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [{
            "mediaType": "application/vnd.oci.image.index.v1+json", "digest": digest_of(text), "size": len(text)}]}))
        self.skopeo("copy", "--all", "--dest-tls-verify=false", f"oci:{layout}", f"docker://{server.host}/many:1")
        # skopeo compresses the layers again, so the digests differ from those of the parts.
        index = json.loads(self.skopeo("inspect", "--raw", "--tls-verify=false", f"docker://{server.host}/many:1"))
        self.assertEqual(len(index["manifests"]), len(digests))
        digests = {"/".join(filter(None, (entry["platform"].get(key) for key in ("os", "architecture", "variant")))): entry["digest"]
                   for entry in index["manifests"]}

        for platform, digest in digests.items():
            manifest = self.succeed(f"platform={platform}", "pull", f"{server.host}/many:1", self.root)
            self.assertEqual(digest_of(manifest.encode()), digest)
        newer = self.succeed("platform=linux/arm/v8", "pull", f"{server.host}/many:1", self.root)
        self.assertEqual(digest_of(newer.encode()), digests["linux/arm/v7"])
        self.assertIn("no image for linux/s390x, only for linux/amd64, linux/arm64, linux/arm/v6, linux/arm/v7",
                      self.fail_with("platform=linux/s390x", "pull", f"{server.host}/many:1", self.root))

        self.skopeo("copy", "--format", "v2s2", "--src-tls-verify=false", "--dest-tls-verify=false",
                    f"docker://{server.host}/parts:linux-amd64", f"docker://{server.host}/docker:1")
        manifest = self.pull(f"{server.host}/docker:1")
        self.assertEqual(manifest["mediaType"], "application/vnd.docker.distribution.manifest.v2+json")

    def test_existing_and_mountable_blobs_are_not_uploaded(self):
        server = self.registry()
        line = self.line(server, lambda up, down: False)
        file = self.file(5 * MEGABYTE)
        self.assertEqual(self.succeed("push-blob", f"{line.host}/a", file).split()[0::2], ["uploaded", str(5 * MEGABYTE)])
        before = line.passed[0]
        self.assertEqual(self.succeed("push-blob", f"{line.host}/a", file), f"was there {digest_of(file.read_bytes())} 0")
        self.assertEqual(self.succeed("push-blob", f"{line.host}/b", file, "none", "a"),
                         f"uploaded {digest_of(file.read_bytes())} {5 * MEGABYTE}")
        sent = line.passed[0]
        self.assertEqual(self.succeed("push-blob", f"{line.host}/c", file, "a"), f"mounted {digest_of(file.read_bytes())} 0")
        self.assertLess(line.passed[0] - sent, 5000)
        self.assertLess(before, 5 * MEGABYTE + 5000)

    def test_a_blob_is_uploaded_in_chunks(self):
        server = self.registry()
        for size in (0, 1, 999_999, 1_000_000, 1_000_001, 3_500_000):
            file = self.file(size)
            result = self.succeed("chunk=1000000", "push-blob", f"{server.host}/x", file)
            self.assertEqual(result, f"uploaded {digest_of(file.read_bytes())} {size}")
            self.assertEqual(server.blob_file(digest_of(file.read_bytes())).read_bytes(), file.read_bytes())

    def test_memory_use_does_not_grow_with_the_size_of_blobs(self):
        server = self.registry()
        peaks = {}
        for size in (1, 300):
            for words in (["push", f"{server.host}/x:{size}", self.file(size * MEGABYTE)], ["pull", f"{server.host}/x:{size}", self.root]):
                result = run(*words)
                self.assertEqual(result.returncode, 0, result.stderr)
                peaks[words[0], size] = int(result.stderr.split()[1])
        for what in ("push", "pull"):
            self.assertLess(peaks[what, 300], peaks[what, 1] + 30_000, peaks)

    def test_missing_images_and_unreachable_registries_are_reported(self):
        server = self.registry()
        self.succeed("push", f"{server.host}/x:1", self.file(10))
        self.assertIn("check the tag or digest", self.fail_with("pull", f"{server.host}/x:2", self.root))
        message = self.fail_with("pull", f"{server.host}/y:2", self.root)
        self.assertTrue(message.startswith(f"error: cannot pull {server.host}/y:2: "), message)
        server.kill()
        message = self.fail_with("tries=2", "pull", f"{server.host}/y:2", self.root)
        self.assertIn(f"request to the registry {server.host} failed: connection refused", message)

    def test_docker_schema_1_manifests_are_rejected(self):
        class Old(registry_support.http.server.BaseHTTPRequestHandler):
            def do_GET(handler):
                text = b'{"schemaVersion": 1, "fsLayers": []}'
                handler.send_response(200)
                handler.send_header("Content-Type", "application/vnd.docker.distribution.manifest.v1+prettyjws")
                handler.send_header("Content-Length", str(len(text)))
                handler.end_headers()
                handler.wfile.write(text)

            def log_message(handler, *arguments):
                pass

        old = serve(Old)
        self.addCleanup(old.shutdown)
        self.assertIn("Docker's schema 1", self.fail_with("show", f"127.0.0.1:{old.server_port}/old:1"))


class BrokenConnections(Journey):
    def test_an_interrupted_download_resumes_at_its_offset(self):
        server = self.registry()
        self.succeed("push", f"{server.host}/x:1", self.file(20 * MEGABYTE))
        line = self.line(server, times(3, lambda up, down: down > 4 * MEGABYTE))
        self.pull(f"{line.host}/x:1")
        self.assertLess(line.passed[1], 21 * MEGABYTE + 3 * MEGABYTE)

    def test_an_interrupted_upload_is_completed(self):
        server = self.registry()
        file = self.file(12 * MEGABYTE)
        for options in ([], ["chunk=3000000"]):
            line = self.line(server, times(2, lambda up, down: up > 5 * MEGABYTE))
            result = self.succeed(*options, "push-blob", f"{line.host}/x{len(options)}", file)
            self.assertEqual(result, f"uploaded {digest_of(file.read_bytes())} {12 * MEGABYTE}")
        self.assertEqual(server.blob_file(digest_of(file.read_bytes())).read_bytes(), file.read_bytes())

    def test_an_interrupted_upload_resumes_at_the_offset_that_the_registry_reports(self):
        file = self.file(3_000_000)
        for options, cuts in ([], [1_000_000, 2_000_000]), (["chunk=1300000"], [500_000, 1_400_000]):
            handler = type("Handler", (PatientUploads,), {"data": bytearray(), "done": [], "posts": [], "starts": [], "cut_after": list(cuts)})
            server = serve(handler)
            self.addCleanup(server.shutdown)
            self.assertIn("uploaded", self.succeed(*options, "push-blob", f"127.0.0.1:{server.server_port}/x", file))
            self.assertEqual(bytes(handler.data), file.read_bytes())
            self.assertEqual(len(handler.posts), 1)
            self.assertEqual([start for _, _, start in handler.starts if start in cuts], cuts)
            self.assertIn(f"digest={digest_of(file.read_bytes())}", handler.done[0])

    def test_an_upload_over_a_connection_that_always_breaks_fails(self):
        server = self.registry()
        line = self.line(server, lambda up, down: up > MEGABYTE)
        message = self.fail_with("tries=3", "push-blob", f"{line.host}/x", self.file(5 * MEGABYTE))
        self.assertIn("request to the registry", message)

    def test_a_stalled_download_continues_on_a_new_connection(self):
        server = self.registry()
        self.succeed("push", f"{server.host}/x:1", self.file(5 * MEGABYTE))
        stall = times(1, lambda up, down: down > MEGABYTE)
        line = self.line(server, lambda up, down: stall(up, down) and time.sleep(PATIENCE))
        start = time.monotonic()
        self.pull("stall=1", f"{line.host}/x:1")
        self.assertLess(time.monotonic() - start, PATIENCE / 2)
        self.assertLess(line.passed[1], 7 * MEGABYTE)

    def test_an_interrupted_push_ends_promptly(self):
        server = self.registry()
        slow = threading.Event()

        def after(up, down):
            if up > MEGABYTE:
                slow.set()
                time.sleep(1)

        line = self.line(server, after)
        files = [self.file(30 * MEGABYTE, f"part{i}") for i in range(3)]
        process = subprocess.Popen([PROGRAM, "push", f"{line.host}/x:1", *map(str, files)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertTrue(slow.wait(PATIENCE))
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130)
        self.assertLess(int(output), 10_000)  # milliseconds; the whole push would take minutes


class BadRegistries(Journey):
    def test_a_corrupted_blob_is_rejected(self):
        server = self.registry()
        self.succeed("push", f"{server.host}/x:1", self.file(MEGABYTE))
        digest = json.loads(self.succeed("show", f"{server.host}/x:1"))["layers"][0]["digest"]
        path = server.blob_file(digest)
        data = bytearray(path.read_bytes())
        data[1000] ^= 1
        path.write_bytes(data)
        message = self.fail_with("pull", f"{server.host}/x:1", self.root)
        self.assertIn(f"cannot pull {digest} from {server.host}/x:1: the received content does not match its digest", message)
        path.write_bytes(data[:-1])
        self.assertIn("cannot pull " + digest, self.fail_with("tries=2", "pull", f"{server.host}/x:1", self.root))

    def test_a_corrupted_manifest_is_rejected(self):
        server = self.registry()
        digest = self.succeed("push", f"{server.host}/x:1", self.file(10))
        path = server.blob_file(digest)
        path.write_bytes(path.read_bytes() + b" ")
        self.assertIn("error: cannot pull", self.fail_with("tries=1", "show", f"{server.host}/x@{digest}"))

    def test_an_upload_completes_after_the_registry_is_killed_and_restarted(self):
        server = self.registry()
        file = self.file(20 * MEGABYTE)
        died = threading.Event()

        def die(up, down):
            if up < 8 * MEGABYTE or died.is_set():
                return False
            died.set()
            server.kill()
            threading.Timer(1, server.start).start()
            return True

        line = self.line(server, die)
        self.assertIn("uploaded", self.succeed("tries=12", "push-blob", f"{line.host}/x", file))
        self.assertTrue(died.is_set())
        self.assertEqual(server.blob_file(digest_of(file.read_bytes())).read_bytes(), file.read_bytes())

    def test_a_blob_with_an_empty_link_in_the_registry_is_pushed_again(self):
        server = self.registry()
        file = self.file(10)
        self.succeed("push", f"{server.host}/x:1", file)
        digest = digest_of(file.read_bytes())
        link = server.storage / "docker/registry/v2/repositories/x/_layers/sha256" / digest.split(":")[1] / "link"
        link.write_bytes(b"")
        self.succeed("tries=1", "push", f"{server.host}/x:1", file)
        self.assertEqual(link.read_text(), digest)
        self.pull(f"{server.host}/x:1")

    def test_a_full_disk_of_the_registry_is_reported(self):
        disk = self.root / "disk"
        disk.mkdir()
        if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "none", disk], capture_output=True).returncode:
            self.skipTest("no small file system can be mounted")
        self.addCleanup(subprocess.run, ["umount", "-l", str(disk)], check=True)
        server = self.registry("disk")
        message = self.fail_with("push-blob", f"{server.host}/x", self.file(10 * MEGABYTE))
        self.assertIn("no space left on device", message)
        self.assertIn("check its log and its free disk space", message)


class Trust(Journey):
    def test_a_private_certificate_authority_is_trusted_only_if_configured(self):
        authority = make_certificate(self.root, "authority")
        server = self.registry(tls=make_certificate(self.root, "server", authority))
        file = self.file(100)
        message = self.fail_with("tries=2", "push", f"{server.host}/x:1", file)
        self.assertIn(f"the registry {server.host} is not trusted", message)
        self.assertIn(f"/etc/docker/certs.d/{server.host}/ca.crt", message)
        self.succeed(f"ca={authority[0]}", "push", f"{server.host}/x:1", file)
        certificates = self.root / "certs.d" / server.host
        certificates.mkdir(parents=True)
        shutil.copy(authority[0], certificates / "ca.crt")
        self.pull(f"certs={self.root / 'certs.d'}", f"{server.host}/x:1")
        copy = self.root / "copy"
        self.skopeo("copy", "--src-cert-dir", certificates, f"docker://{server.host}/x:1", f"dir:{copy}")

    def test_pulls_fall_back_between_mirror_and_registry(self):
        server, mirror = self.registry(), self.registry("mirror")
        layer = self.file(MEGABYTE)
        digest = self.succeed("push", f"{server.host}/x:1", layer)
        self.assertEqual(self.succeed("push", f"{mirror.host}/cache/x:1", layer), digest)
        wanted = [f"mirror={server.host}=http://{mirror.host}/cache", "tries=2"]
        digests = {blob["digest"] for blob in self.pull(*wanted, f"{server.host}/x:1")["layers"]}
        mirror.kill()
        self.pull(*wanted, f"{server.host}/x:1")
        mirror.start()
        server.kill()
        self.assertEqual({blob["digest"] for blob in self.pull(*wanted, f"{server.host}/x:1")["layers"]}, digests)

    def test_a_download_interrupted_at_a_mirror_is_completed_from_the_registry(self):
        server, mirror = self.registry(), self.registry("mirror")
        layer = self.file(8 * MEGABYTE)
        self.succeed("push", f"{server.host}/x:1", layer)
        self.succeed("push", f"{mirror.host}/x:1", layer)
        bad = self.line(mirror, lambda up, down: down > 3 * MEGABYTE)
        own = self.line(server, lambda up, down: False)
        self.pull(f"mirror={own.host}=http://{bad.host}", "tries=1", f"{own.host}/x:1")
        self.assertLess(own.passed[1], 6 * MEGABYTE)


class Credentials(Journey):
    SECRET = "s3cret-of-the-test"

    def basic(self, user="ada", password=SECRET):
        return {"auth": base64.b64encode(f"{user}:{password}".encode()).decode()}

    def protected(self):
        passwords = self.root / "htpasswd"
        subprocess.run(["htpasswd", "-Bbc", passwords, "ada", self.SECRET], check=True, capture_output=True)
        return self.registry(auth={"htpasswd": {"realm": "test", "path": str(passwords)}})

    def test_basic_authentication_requires_the_correct_password(self):
        server = self.protected()
        file = self.file(MEGABYTE)
        nobody = self.auth_file({})
        message = self.fail_with(f"auth={nobody}", "push", f"{server.host}/x:1", file)
        self.assertIn(f"log in with `docker login {server.host}` or `podman login {server.host}`", message)
        wrong = self.auth_file({"auths": {server.host: self.basic(password="wrong-" + self.SECRET)}}, "wrong.json")
        message = self.fail_with(f"auth={wrong}", "push", f"{server.host}/x:1", file)
        self.assertIn(f"the credentials from {wrong} were rejected; log in again", message)
        self.assertNotIn(self.SECRET, message)
        right = self.auth_file({"auths": {server.host: self.basic()}}, "right.json")
        digest = self.succeed(f"auth={right}", "push", f"{server.host}/x:1", file)
        self.skopeo("copy", "--authfile", right, "--src-tls-verify=false", f"docker://{server.host}/x@{digest}", f"dir:{self.root / 'copy'}")
        self.pull(f"auth={right}", f"{server.host}/x:1")

    def test_the_environment_locates_credentials_and_a_helper_takes_precedence(self):
        server = self.protected()
        file = self.file(1000)
        wrong = self.basic(password="old")
        programs = self.root / "bin"
        programs.mkdir()
        helper = programs / "docker-credential-test"
        helper.write_text(f"""#!/bin/sh
[ "$1" = get ] && [ "$(cat)" = {server.host} ] || {{ echo "credentials not found in native keychain"; exit 1; }}
echo '{{"ServerURL": "x", "Username": "ada", "Secret": "{self.SECRET}"}}'
""")
        helper.chmod(0o755)
        path = f"{programs}:{os.environ['PATH']}"
        (self.root / "config.json").write_text(json.dumps(
            {"credHelpers": {server.host: "test"}, "credsStore": "missing", "auths": {server.host: wrong}}))
        self.succeed("push", f"{server.host}/x:1", file, environment={"DOCKER_CONFIG": str(self.root), "PATH": path})
        (self.root / "containers").mkdir()
        self.auth_file({"auths": {f"{server.host}/x": self.basic(), server.host: wrong}}, "containers/auth.json")
        self.succeed("show", f"{server.host}/x:1", environment={"XDG_RUNTIME_DIR": str(self.root)})
        first = self.auth_file({"auths": {"https://" + server.host + "/v1/": self.basic()}}, "first.json")
        self.succeed("show", f"{server.host}/x:1", environment={"REGISTRY_AUTH_FILE": str(first), "DOCKER_CONFIG": str(self.root)})

    def token_registry(self, **options):
        certificate, key = make_certificate(self.root, "issuer")
        tokens = TokenServer(certificate, key, **options)
        self.addCleanup(tokens.server.shutdown)
        server = self.registry(auth={"token": {"realm": tokens.realm, "service": "registry", "issuer": "test", "rootcertbundle": str(certificate)}})
        return server, tokens

    def test_tokens_are_requested_with_the_password(self):
        server, tokens = self.token_registry()
        file = self.file(MEGABYTE)
        auth = self.auth_file({"auths": {server.host: self.basic(password="secret")}})
        self.succeed(f"auth={auth}", "push", f"{server.host}/public:1", file)
        self.assertLessEqual({("GET", "ada:secret", ("repository:public:pull,push",))},
                             {(method, who, tuple(scopes)) for method, who, scopes in tokens.asked})
        self.assertLessEqual(len(tokens.asked), 2 + 4 * 2)
        self.assertIn("mounted", self.succeed(f"auth={auth}", "push-blob", f"{server.host}/other", file, "public"))
        nobody = self.auth_file({}, "nobody.json")
        self.pull(f"auth={nobody}", f"{server.host}/public:1")
        self.assertIn("log in with", self.fail_with(f"auth={nobody}", "push", f"{server.host}/public:2", file))
        self.assertIn("log in with", self.fail_with(f"auth={nobody}", "show", f"{server.host}/other:2"))

    def test_a_refresh_token_is_posted(self):
        server, tokens = self.token_registry()
        auth = self.auth_file({"auths": {server.host: {"identitytoken": "refresh"}}})
        self.succeed(f"auth={auth}", "push", f"{server.host}/x:1", self.file(1000))
        self.assertEqual({(method, who) for method, who, _ in tokens.asked}, {("POST", "refresh")})

    def test_an_expired_token_is_renewed(self):
        server, tokens = self.token_registry(stale=True)
        auth = self.auth_file({"auths": {server.host: self.basic(password="secret")}})
        self.assertIn("uploaded", self.succeed(f"auth={auth}", "push-blob", f"{server.host}/x", self.file(5 * MEGABYTE)))
        asked = [tuple(scopes) for _, _, scopes in tokens.asked]
        self.assertEqual([asked.count(scopes) for scopes in sorted(set(asked))], [2, 2], asked)

    def test_a_token_server_that_rejects_credentials_is_named_in_the_error(self):
        server, tokens = self.token_registry()
        auth = self.auth_file({"auths": {server.host: self.basic(password="not-the-secret")}})
        message = self.fail_with(f"auth={auth}", "push-blob", f"{server.host}/x", self.file(10))
        self.assertIn(f"the token server {tokens.realm} for {server.host} refused the request", message)
        self.assertIn("incorrect username or password", message)
        self.assertNotIn("not-the-secret", message)


if __name__ == "__main__":
    if registry_support.missing_tools():
        print("skipped: these are not installed:", *registry_support.missing_tools())
        sys.exit(77)
    unittest.main(verbosity=2)
