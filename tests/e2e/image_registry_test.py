"""Tests pushes and pulls of images with Debian's docker-registry and skopeo, over broken connections and with full disks."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
import unittest

import registry_support
from image_registry_support import MEGABYTE, Journey
from local_network import PATIENCE
from registry_support import PROGRAM, PatientUploads, digest_of, run, serve, times


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
        # skopeo compresses the layers again, so the digests differ from those in the repository `parts`.
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
        self.assertTrue(message.startswith(f"error: cannot pull image '{server.host}/y:2': "), message)
        server.kill()
        message = self.fail_with("tries=2", "pull", f"{server.host}/y:2", self.root)
        self.assertIn(f"request to the registry '{server.host}' failed: connection refused", message)

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
        self.assertIn(f"cannot pull {digest} from image '{server.host}/x:1': the received content does not match its digest", message)
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


if __name__ == "__main__":
    if registry_support.missing_tools():
        print("skipped: these are not installed:", *registry_support.missing_tools())
        sys.exit(77)
    unittest.main(verbosity=2)
