"""Tests builds from and into a real registry, OCI directories and archives, which skopeo must be able to read. Also
tests that images, cache and output contain no secrets, and that builds that are killed or run concurrently leave the
cache usable."""

import fcntl
import json
import os
import pathlib
import shutil
import subprocess
import time
import unittest

from image_build_support import ADAPTDL, PATIENCE, Journey
from registry_support import RegistryServer

BUSYBOX = shutil.which("busybox", path="/bin:/usr/bin")


class Registries(Journey):
    def registry(self, name="registry"):
        server = RegistryServer(self.root / name)
        self.addCleanup(server.kill)
        return server

    def skopeo(self, *arguments):
        done = subprocess.run(["skopeo", "--insecure-policy", *map(str, arguments)], capture_output=True, text=True, timeout=PATIENCE)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def base(self, server, name="base:1", dockerfile="FROM scratch\nCOPY busybox /bin/busybox\nRUN [\"/bin/busybox\", \"--install\", \"-s\", \"/bin\"]\n"
             "COPY passwd group /etc/\n"):
        directory = self.root / "base"
        self.write({"Dockerfile": dockerfile, "passwd": "root:x:0:0::/root:/bin/sh\napp:x:1234:567::/home/app:/bin/sh\n", "group": "root:x:0:\napp:x:567:\n"},
                   directory)
        shutil.copy(BUSYBOX, directory / "busybox")
        self.build("-t", f"{server.host}/{name}", "--push", directory=directory, cache=self.root / "base-cache")
        return f"{server.host}/{name}"

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
