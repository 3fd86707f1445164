"""Builds images into a real registry, OCI directories and archives, and checks them with skopeo."""

import fcntl
import hashlib
import io
import json
import os
import pathlib
import shutil
import subprocess
import tarfile
import tempfile
import threading
import time
import unittest
import http.server

from registry_support import RegistryServer

ADAPTDL = os.environ["ADAPTDL_BIN"]
BUSYBOX = shutil.which("busybox", path="/bin:/usr/bin")
PATIENCE = 240


class Journey(unittest.TestCase):
    def setUp(self):
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="adaptdl-build-"))
        self.addCleanup(shutil.rmtree, self.root, ignore_errors=True)
        self.project = self.root / "project"
        self.project.mkdir()
        self.cache = self.root / "cache"

    def write(self, files, directory=None):
        for name, content in files.items():
            path = (directory or self.project) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content) if isinstance(content, bytes) else path.write_text(content)
            os.utime(path, (1_700_000_000, 1_700_000_000))

    def run_build(self, *arguments, cache=None, directory=None, stdin="", **variables):
        environment = {**os.environ, "ADAPTDL_BUILD_CACHE": str(cache or self.cache), "NO_COLOR": "1", **variables}
        environment.pop("REGISTRY_AUTH_FILE", None)
        return subprocess.run([ADAPTDL, "build", str(directory or self.project), *map(str, arguments)], capture_output=True, text=True,
                              input=stdin, env=environment, timeout=PATIENCE)

    def build(self, *arguments, **options):
        done = self.run_build("--json", *arguments, **options)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def fails(self, *arguments, code=1, **options):
        done = self.run_build("--quiet", *arguments, **options)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        self.assertTrue(done.stderr.splitlines()[-1].startswith("adaptdl: error: "), done.stderr)
        return done.stderr

    def registry(self, name="registry"):
        server = RegistryServer(self.root / name)
        self.addCleanup(server.kill)
        return server

    def skopeo(self, *arguments):
        done = subprocess.run(["skopeo", "--insecure-policy", *map(str, arguments)], capture_output=True, text=True, timeout=PATIENCE)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def layout(self, name="out"):
        """Returns the manifest, the configuration and the layers of an OCI directory. A layer is {name: (member, content)}."""
        blobs = self.root / name / "blobs/sha256"
        index = json.loads((self.root / name / "index.json").read_text())
        manifest = json.loads((blobs / index["manifests"][0]["digest"][7:]).read_text())
        config = json.loads((blobs / manifest["config"]["digest"][7:]).read_text())
        layers = []
        for layer, diff_id in zip(manifest["layers"], config["rootfs"]["diff_ids"]):
            data = (blobs / layer["digest"][7:]).read_bytes()
            self.assertEqual(hashlib.sha256(data).hexdigest(), layer["digest"][7:])
            with tarfile.open(fileobj=io.BytesIO(data)) as tar:
                layers.append({member.name: (member, tar.extractfile(member).read() if member.isfile() else None) for member in tar})
        return manifest, config, layers

    def files(self, name="out"):
        """Returns {name: (member, content)} of all files of an image, which must have no whiteouts."""
        whole = {}
        for layer in self.layout(name)[2]:
            whole.update(layer)
        return whole

    def base(self, server, name="base:1", dockerfile="FROM scratch\nCOPY busybox /bin/busybox\nRUN [\"/bin/busybox\", \"--install\", \"-s\", \"/bin\"]\n"
             "COPY passwd group /etc/\n"):
        directory = self.root / "base"
        self.write({"Dockerfile": dockerfile, "passwd": "root:x:0:0::/root:/bin/sh\napp:x:1234:567::/home/app:/bin/sh\n", "group": "root:x:0:\napp:x:567:\n"},
                   directory)
        shutil.copy(BUSYBOX, directory / "busybox")
        self.build("-t", f"{server.host}/{name}", "--push", directory=directory, cache=self.root / "base-cache")
        return f"{server.host}/{name}"


class Copying(Journey):
    def test_copy_and_add_write_the_expected_files(self):
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w:gz") as tar:
            info = tarfile.TarInfo("inside/file")
            info.size, info.mode, info.uid = 3, 0o640, 7
            tar.addfile(info, io.BytesIO(b"tar"))
        self.write({"a.txt": "a", "b.txt": "b", "dir/x/deep": "deep", "dir/y.md": "y", ".dockerignore": "ignored\n", "ignored": "no", "x.tar.gz": archive.getvalue()})
        os.symlink("a.txt", self.project / "dir/link")
        os.chmod(self.project / "a.txt", 0o750)
        self.write({"Dockerfile": "FROM scratch\nCOPY *.txt /texts/\nCOPY --chown=12:34 --chmod=u=rw,go=r dir /dir\nCOPY --exclude=**/*.md --parents dir/./x dir/y.md /some/\n"
                                  "ADD x.tar.gz /unpacked/\nCOPY x.tar.gz /kept.tar.gz\nCOPY <<one <<two /here/\n1\none\n2\ntwo\nCOPY . /all\n"})
        self.build("--output", f"oci:{self.root / 'out'}")
        files = self.files()
        self.assertEqual({name for name in files if not name.startswith("all/")},
                         {"texts", "texts/a.txt", "texts/b.txt", "dir", "dir/x", "dir/x/deep", "dir/y.md", "dir/link", "some", "some/x", "some/x/deep", "unpacked",
                          "unpacked/inside/file", "kept.tar.gz", "here", "here/one", "here/two", "all"})
        self.assertEqual(files["texts/a.txt"][0].mode, 0o750)
        self.assertEqual(files["texts/a.txt"][0].mtime, 1_700_000_000)
        self.assertEqual((files["dir/y.md"][0].uid, files["dir/y.md"][0].gid, files["dir/y.md"][0].mode), (12, 34, 0o644))
        self.assertEqual(files["dir/link"][0].linkname, "a.txt")
        self.assertEqual((files["unpacked/inside/file"][0].uid, files["unpacked/inside/file"][0].mode), (7, 0o640))
        self.assertEqual(files["here/two"][1], b"2\n")
        self.assertNotIn("all/ignored", files)
        self.assertIn("all/dir/x/deep", files)

    def test_the_history_records_commands_in_their_written_form(self):
        self.write({"Dockerfile": "FROM scratch\nCMD echo \"$A\" && b\nENTRYPOINT [\"e\", \"f\"]\n"})
        self.build("--output", f"oci:{self.root / 'out'}")
        self.assertEqual([each["created_by"] for each in self.layout()[1]["history"]], ["CMD echo \"$A\" && b", "ENTRYPOINT [\"e\",\"f\"]"])

    def test_a_dockerfile_is_read_from_standard_input_or_a_pipe(self):
        self.write({"a": "a"})
        text = "FROM scratch\nCOPY a /a\n"
        first = self.build("-f", "-", "--output", f"oci:{self.root / 'out'}", stdin=text)
        self.assertEqual(sorted(self.files()), ["a"])
        self.assertIn("-:2: ", self.fails("-f", "-", stdin="FROM scratch\nFROB\n"))
        pipe = self.root / "pipe"
        os.mkfifo(pipe)
        writer = threading.Thread(target=pipe.write_text, args=(text,), daemon=True)
        writer.start()
        self.assertEqual(self.build("-f", pipe)["digest"], first["digest"])
        writer.join(PATIENCE)

    def test_builds_of_the_same_tree_are_reproducible(self):
        self.write({"Dockerfile": "FROM scratch\nWORKDIR /app\nCOPY . .\nLABEL a=b\n", "f": os.urandom(3_000_000), "d/g": "g"})
        first = self.build("--output", f"oci:{self.root / 'one'}")
        second = self.build("--output", f"oci:{self.root / 'two'}", cache=self.root / "other")
        self.assertEqual(first["digest"], second["digest"])
        again = self.build("--no-cache")
        self.assertEqual((again["digest"], again["cachedSteps"]), (first["digest"], 0))
        self.assertEqual(subprocess.run(["diff", "-r", self.root / "one", self.root / "two"], capture_output=True).stdout, b"")

    def test_source_date_epoch_overrides_file_times(self):
        self.write({"Dockerfile": "FROM scratch\nWORKDIR /app\nCOPY . .\n", "f": "f"})
        first = self.build(SOURCE_DATE_EPOCH="1600000000")
        os.utime(self.project / "f", (1_750_000_000, 1_750_000_000))
        second = self.build("--output", f"oci:{self.root / 'out'}", SOURCE_DATE_EPOCH="1600000000", cache=self.root / "other")
        self.assertEqual(first["digest"], second["digest"])
        self.assertEqual(self.layout()[1]["created"], "2020-09-13T12:26:40Z")
        self.assertEqual(self.files()["app/f"][0].mtime, 1_600_000_000)

    def test_only_steps_after_a_change_are_rebuilt_even_if_size_and_time_are_equal(self):
        self.write({"Dockerfile": "FROM scratch\nCOPY a /a\nCOPY b /b\nCOPY c /c\n", "a": "a", "b": "b", "c": "c"})
        self.assertEqual(self.build()["cachedSteps"], 0)
        self.assertEqual(self.build()["cachedSteps"], 3)
        self.write({"b": "B"})  # has the same size and modification time as before
        changed = self.build("--output", f"oci:{self.root / 'out'}")
        self.assertEqual(changed["cachedSteps"], 1)
        self.assertEqual(self.files()["b"][1], b"B")
        os.utime(self.project / "a")
        self.assertEqual(self.build()["cachedSteps"], 3)

    def test_copy_errors_name_the_line_of_the_dockerfile(self):
        self.write({"Dockerfile": "FROM scratch\nCOPY missing /\n"})
        self.assertIn("Dockerfile:2: COPY: 'missing' not found in ", self.fails())
        self.write({"Dockerfile": "FROM scratch\nCOPY --chown=nobody a /x\n", "a": "a"})
        self.assertIn("Dockerfile:2: COPY: ", self.fails())
        self.write({"Dockerfile": "FROM scratch\nCOPY a /.wh.x\n"})
        self.assertIn("Dockerfile:2: COPY: ", self.fails())
        self.assertIn("is not a directory", self.fails(directory=self.root / "nowhere"))
        self.fails("--output", "tar:x", code=2)
        self.fails("--push", code=2)

    def test_symbolic_links_do_not_escape_the_context(self):
        (self.root / "outside").write_text("secret")
        self.write({"Dockerfile": "FROM scratch\nCOPY out /x\n"})
        os.symlink("../outside", self.project / "out")
        self.assertIn("'out' not found in", self.fails())
        os.unlink(self.project / "out")
        os.symlink("..", self.project / "up")
        self.write({"Dockerfile": "FROM scratch\nCOPY up/outside /x\n"})
        self.assertIn("'up/outside' not found in", self.fails())

    def test_a_symlinked_dockerfile_does_not_escape_the_context(self):
        (self.root / "outside").write_text("ROOT:*:20228\n")
        self.write({"Dockerfile": "FROM scratch\nCOPY a /a\n", "a": "a"})
        (self.root / "patterns").write_text("a\n")  # this pattern would leave nothing to copy
        os.symlink(self.root / "patterns", self.project / ".dockerignore")
        self.build()
        os.rename(self.project / "Dockerfile", self.project / "real")
        os.symlink("real", self.project / "Dockerfile")
        self.build()
        for target in self.root / "outside", "../outside":
            os.unlink(self.project / "Dockerfile")
            os.symlink(target, self.project / "Dockerfile")
            for options in [], ["-f", str(self.project / "Dockerfile")]:
                said = self.fails(*options)
                self.assertIn("Dockerfile not found", said)
                self.assertNotIn("ROOT", said)

    def test_many_double_star_wildcards_in_nested_directories_are_matched_in_time(self):
        directory = self.project
        for _ in range(60):
            directory = directory / "d"
        directory.mkdir(parents=True)
        (directory / "x").write_text("x")
        self.write({"Dockerfile": "FROM scratch\nCOPY --parents " + 12 * "**/" + "x /\n"})
        self.build()

    def test_add_downloads_a_url_again_only_if_it_changed(self):
        content = {"etag": "1", "body": b"one", "sent": 0}

        class Server(http.server.BaseHTTPRequestHandler):
            def do_GET(handler):
                known = handler.headers.get("If-None-Match") == content["etag"]
                handler.send_response(304 if known else 200)
                handler.send_header("ETag", content["etag"])
                handler.send_header("Content-Length", "0" if known else str(len(content["body"])))
                handler.end_headers()
                if not known:
                    content["sent"] += 1
                    handler.wfile.write(content["body"])

            def log_message(handler, *arguments):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        url = f"http://127.0.0.1:{server.server_port}/file.txt"
        self.write({"Dockerfile": f"FROM scratch\nADD {url} /got/\n"})
        self.build("--output", f"oci:{self.root / 'out'}")
        self.assertEqual((self.files()["got/file.txt"][1], self.files()["got/file.txt"][0].mode), (b"one", 0o600))
        self.assertEqual((self.build()["cachedSteps"], content["sent"]), (1, 1))
        content.update(etag="2", body=b"two")
        self.assertEqual((self.build()["cachedSteps"], content["sent"]), (0, 2))
        self.write({"Dockerfile": f"FROM scratch\nADD --checksum=sha256:{hashlib.sha256(b'one').hexdigest()} {url} /got/\n"})
        self.assertIn("but --checksum expects", self.fails())
        self.write({"Dockerfile": f"FROM scratch\nADD --checksum=sha512:{hashlib.sha512(b'two').hexdigest()} {url} /got/\n"})
        self.build("--output", f"oci:{self.root / 'checked'}")

    @unittest.skipIf(os.geteuid() != 0, "mounting a small disk requires root")
    def test_a_full_disk_is_reported_on_one_line_and_leaves_the_cache_usable(self):
        disk = self.root / "disk"
        disk.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", disk], check=True)
        self.addCleanup(subprocess.run, ["umount", disk], check=True)
        self.write({"Dockerfile": "FROM scratch\nCOPY f /f\n", "f": os.urandom(20_000_000)})
        message = self.fails(cache=disk / "cache")
        self.assertEqual(message.count("\n"), 1, message)
        self.assertIn("No space left on device", message)
        for output in ("oci:", "docker-archive:"):
            self.assertIn("No space left on device", self.fails("--output", f"{output}{disk / 'out'}"))
        shutil.rmtree(disk / "out", ignore_errors=True)
        self.write({"f": "small"})
        self.build(cache=disk / "cache")

    def test_prune_and_the_cache_limit_shrink_the_cache(self):
        self.write({"Dockerfile": "FROM scratch\nCOPY f /f\n", "f": os.urandom(2_000_000)})
        self.build()

        def prune(*arguments):
            done = subprocess.run([ADAPTDL, "build", "prune", "--json", *arguments], capture_output=True, text=True, timeout=60,
                                  env={**os.environ, "ADAPTDL_BUILD_CACHE": str(self.cache)})
            self.assertEqual(done.returncode, 0, done.stderr)
            return json.loads(done.stdout)

        self.assertEqual(prune()["after"], prune()["before"])
        self.assertLess(prune("--keep-storage", "1m")["after"], 1 << 20)
        self.assertEqual(self.build()["cachedSteps"], 0)
        self.assertEqual(prune("--all")["after"], 0)
        self.write({"g": os.urandom(2_000_000), "Dockerfile": "FROM scratch\nCOPY f /f\nCOPY g /g\n"})
        self.build("--cache-limit", "1m")
        self.assertLess(prune()["before"], 1 << 20)


class Registries(Journey):
    def test_skopeo_reads_pushed_images_and_written_archives(self):
        server = self.registry()
        self.write({"Dockerfile": "FROM scratch\nWORKDIR /app\nCOPY . .\nENV A=1 B=\"2 3\"\nEXPOSE 80/tcp\nVOLUME /data\nUSER 5:6\nSTOPSIGNAL SIGINT\n"
                                  "LABEL k=v\nENTRYPOINT [\"/app/f\"]\nCMD [\"x\"]\n", "f": "f"})
        result = self.build("-t", f"{server.host}/team/x:1", "-t", f"{server.host}/team/y:2", "--push", "--output", f"oci:{self.root / 'out'}",
                            "--output", f"docker-archive:{self.root / 'x.tar'}")
        self.assertEqual(result["images"], [f"{server.host}/team/{name}@{result['digest']}" for name in "xy"])
        inspected = json.loads(self.skopeo("inspect", "--tls-verify=false", f"docker://{server.host}/team/y:2"))
        self.assertEqual(inspected["Digest"], result["digest"])
        self.skopeo("copy", "--src-tls-verify=false", f"docker://{server.host}/team/x:1", f"dir:{self.root / 'copy'}")
        self.assertEqual((self.root / "copy/manifest.json").read_bytes(), (self.root / "out/blobs/sha256" / result["digest"][7:]).read_bytes())
        self.skopeo("copy", f"oci:{self.root / 'out'}:1", f"dir:{self.root / 'copy2'}")
        self.skopeo("copy", f"docker-archive:{self.root / 'x.tar'}", f"dir:{self.root / 'copy3'}")
        config = json.loads(self.skopeo("inspect", "--config", "--raw", f"docker-archive:{self.root / 'x.tar'}"))
        self.assertEqual(config["config"], {
            "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "A=1", "B=2 3"], "ExposedPorts": {"80/tcp": {}}, "Volumes": {"/data": {}},
            "User": "5:6", "StopSignal": "SIGINT", "Labels": {"k": "v"}, "Entrypoint": ["/app/f"], "Cmd": ["x"], "WorkingDir": "/app"})
        again = self.build("-t", f"{server.host}/team/x:1", "--push")
        self.assertEqual((again["digest"], again["cachedSteps"]), (result["digest"], again["steps"]))

    def test_copying_onto_a_base_does_not_download_its_layers(self):
        server = self.registry()
        base = self.base(server)
        for layer in self.layers_of(server, "base"):
            server.blob_file(layer["digest"]).rename(self.root / layer["digest"][7:])
        self.write({"Dockerfile": f"FROM {base}\nWORKDIR /app\nCOPY . .\nCOPY f /usr/local/bin/tool\n", "f": "f"})
        result = self.build()
        self.assertEqual(result["layers"], 6)
        for layer in self.layers_of(server, "base"):
            (self.root / layer["digest"][7:]).rename(server.blob_file(layer["digest"]))
        # A push to the same registry does not send the base's layers, but a push to another one does.
        self.build("-t", f"{server.host}/new:1", "--push")
        self.assertFalse(any((self.cache / "blobs/sha256" / layer["digest"][7:]).exists() for layer in self.layers_of(server, "base")))
        other = self.registry("other")
        pushed = self.build("-t", f"{other.host}/new:1", "--push")
        self.assertEqual(pushed["digest"], result["digest"])
        self.skopeo("copy", "--src-tls-verify=false", f"docker://{other.host}/new:1", f"dir:{self.root / 'copy'}")

    def layers_of(self, server, name):
        return json.loads(self.skopeo("inspect", "--raw", "--tls-verify=false", f"docker://{server.host}/{name}:1"))["layers"]

    def test_run_and_copy_from_use_the_files_and_users_of_the_base(self):
        server = self.registry()
        base = self.base(server)
        self.write({"Dockerfile": f"FROM {base} AS made\nRUN mkdir /made && echo x > /made/x && ln /made/x /made/y && rm /etc/group\nFROM {base}\n"
                                  "COPY --from=made --chown=app:app /made /copied\nUSER app\nWORKDIR /home/app\nRUN --mount=type=bind,target=/src cp /src/f copy\nONBUILD RUN touch /triggered\n",
                    "f": "f"})
        self.build("--output", f"oci:{self.root / 'out'}", "-t", f"{server.host}/made:1", "--push")
        files = self.files()
        self.assertEqual([(files[name][0].uid, files[name][0].gid) for name in ("copied", "copied/x", "home/app", "home/app/copy")], [(1234, 567)] * 4)
        self.assertEqual(files["copied/y"][0].linkname, "copied/x")
        self.write({"Dockerfile": f"FROM {server.host}/made:1\nUSER root\n"})
        self.fails()  # the ONBUILD trigger runs as app, which cannot write to /
        self.write({"Dockerfile": f"FROM {base}\nRUN echo said; exit 3\n"})
        message = self.fails()
        self.assertIn("| said", message)
        self.assertIn("Dockerfile:2: RUN", message)
        self.assertIn("exit code 3", message)

    def test_a_secret_is_not_in_the_image_the_cache_or_the_output(self):
        server = self.registry()
        base = self.base(server)
        self.write({"Dockerfile": f"FROM {base}\nRUN --mount=type=secret,id=token wc -c < /run/secrets/token > /length\n"})
        arguments = ["--secret", "id=token,env=TOKEN", "-t", f"{server.host}/x:1", "--push", "--output", f"oci:{self.root / 'out'}"]
        done = self.run_build(*arguments, TOKEN="very-hidden-words")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.files()["length"][1].strip(), b"17")
        found = subprocess.run(["grep", "-rl", "very-hidden-words", self.cache, self.root / "out"], capture_output=True).stdout
        for layer in self.layout()[2]:
            for _, content in layer.values():
                self.assertNotIn(b"very-hidden-words", content or b"")
        self.assertEqual((found, "very-hidden-words" in done.stderr + done.stdout), (b"", False))

    def test_an_unreachable_registry_is_named_in_the_error(self):
        self.write({"Dockerfile": "FROM 127.0.0.1:1/nothing:1\n"})
        begin = time.monotonic()
        message = self.fails()
        self.assertIn("Dockerfile:1: ", message)
        self.assertIn("127.0.0.1:1", message)
        self.assertLess(time.monotonic() - begin, 60)

    def test_killed_builds_leave_the_cache_usable(self):
        server = self.registry()
        base = self.base(server)
        self.write({"Dockerfile": f"FROM {base}\nCOPY f /f\nRUN sleep 0.4; echo done > /done\nRUN cat /done\n", "f": os.urandom(5_000_000)})
        for pause in (0.02, 0.1, 0.2, 0.4, 0.7):
            process = subprocess.Popen([ADAPTDL, "build", self.project], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                       env={**os.environ, "ADAPTDL_BUILD_CACHE": str(self.cache)})
            time.sleep(pause)
            process.kill()
            process.wait()
        # The processes that the killed builds had started end after them, and lock the cache until then.
        self.cache.mkdir(exist_ok=True)
        with open(self.cache / "lock", "a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
        self.build("--output", f"oci:{self.root / 'out'}")
        self.assertEqual(self.files()["done"][1], b"done\n")
        self.assertEqual(list((self.cache / "work").iterdir()), [])
        self.assertNotIn(str(self.cache), pathlib.Path("/proc/self/mounts").read_text())

    def test_concurrent_builds_share_a_cache(self):
        self.write({"Dockerfile": "FROM scratch\nARG N\nCOPY f /f\nCOPY g /g$N\n", "f": os.urandom(3_000_000), "g": "g"})
        processes = [subprocess.Popen([ADAPTDL, "build", self.project, "--build-arg", f"N={n % 2}", "--cache-limit", "1m"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                      text=True, env={**os.environ, "ADAPTDL_BUILD_CACHE": str(self.cache)}) for n in range(6)]
        ends = [process.communicate(timeout=PATIENCE) for process in processes]
        self.assertEqual([process.returncode for process in processes], [0] * 6, ends)
        self.assertEqual(len({out for out, _ in ends}), 2)


if __name__ == "__main__":
    missing = [name for name in ("docker-registry", "skopeo") if shutil.which(name) is None]
    if missing or BUSYBOX is None:
        print(f"skipped: {', '.join(missing) or 'busybox'} is missing")
        raise SystemExit(77)
    unittest.main(verbosity=2)
