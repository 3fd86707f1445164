"""Tests which files `adaptdl build` writes to images, that builds are reproducible, and what they leave in the cache.
These builds need no registry."""

import hashlib
import http.server
import io
import json
import os
import shutil
import subprocess
import tarfile
import threading
import unittest

from image_build_support import ADAPTDL, PATIENCE, Journey


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

    def test_copy_writes_into_directories_that_an_added_archive_creates_without_entries_for_them(self):
        for count in 1, 10_001:
            archive = io.BytesIO()
            with tarfile.open(fileobj=archive, mode="w") as tar:
                for number in range(count):
                    tar.addfile(tarfile.TarInfo(f"app/x/{number}"))
            self.write({"x.tar": archive.getvalue(), "x": "a file", "Dockerfile": "FROM scratch\nADD x.tar /\nCOPY x /app/x\n"})
            self.build("--output", f"oci:{self.root / 'out'}")
            self.assertEqual(self.files()["app/x/x"][1], b"a file")

    def test_the_history_records_commands_as_written_in_the_dockerfile(self):
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

    def test_source_date_epoch_limits_the_file_times_in_the_image(self):
        self.write({"Dockerfile": "FROM scratch\nWORKDIR /app\nCOPY . .\n", "f": "f"})
        first = self.build(SOURCE_DATE_EPOCH="1600000000")
        os.utime(self.project / "f", (1_750_000_000, 1_750_000_000))
        second = self.build("--output", f"oci:{self.root / 'out'}", SOURCE_DATE_EPOCH="1600000000", cache=self.root / "other")
        self.assertEqual(first["digest"], second["digest"])
        self.assertEqual(self.layout()[1]["created"], "2020-09-13T12:26:40Z")
        self.assertEqual(self.files()["app/f"][0].mtime, 1_600_000_000)

    def test_only_steps_from_a_changed_file_on_are_rebuilt_even_if_its_size_and_time_are_unchanged(self):
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
        self.write({"d/f": "f"})
        for step, name in ("COPY a /d/f/x/y", "/d/f"), ("COPY a /d/f/", "/d/f"), ("WORKDIR /d/f/x", "/d/f"), ("WORKDIR /d/f", "/d/f"):
            self.write({"Dockerfile": f"FROM scratch\nCOPY d /d\n{step}\n"})
            self.assertRegex(self.fails(), f"Dockerfile:3: {step.split()[0]}: (cannot create the directory )?'{name}'(:| exists)")
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
                printed = self.fails(*options)
                self.assertIn("Dockerfile' not found", printed)
                self.assertNotIn("ROOT", printed)

    def test_many_double_star_wildcards_in_deeply_nested_directories_are_matched_quickly(self):
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


if __name__ == "__main__":
    unittest.main(verbosity=2)
