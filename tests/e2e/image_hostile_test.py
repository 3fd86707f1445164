"""Tests that hostile images and Dockerfiles cannot escape from a build.

They are built as the user who runs the tests, and as users with and without subordinate IDs. Meanwhile, a directory of
the machine is watched: no process may read, write, create or remove anything in it.
"""

import ctypes
import gzip
import hashlib
import http.server
import io
import json
import os
import pathlib
import re
import shutil
import ssl
import struct
import subprocess
import sys
import tarfile
import tempfile
import unittest

from extent import FULL
from registry_support import make_certificate, serve

ADAPTDL = os.environ["ADAPTDL_BIN"]
AS_USER = os.environ["AS_USER"]  # tests/unit/cli/as_user.py
BUSYBOX = shutil.which("busybox", path="/bin:/usr/bin")
SOURCE = pathlib.Path(os.environ["SOURCE_ROOT"]) / "cli/image"
PATIENCE = 120
IN_NAMESPACE = "ADAPTDL_TEST_IN_NAMESPACE"
UP = "/.." * 14

# This must come before the temporary directory is created; otherwise, the directory would be left behind.
if __name__ == "__main__" and BUSYBOX is None:
    print("skipped: busybox is not installed")
    sys.exit(77)
# The tests run in a private mount namespace, so that no other process sees their mounts.
if __name__ == "__main__" and IN_NAMESPACE not in os.environ:
    unshare = ["unshare", "--mount", "--propagation", "private"]
    if subprocess.run([*unshare, "true"], capture_output=True).returncode == 0:
        os.execvpe("unshare", [*unshare, sys.executable, *sys.argv], {**os.environ, IN_NAMESPACE: "1"})

COMMANDS = "sh cat echo ls ln mkdir mknod mount mv rm rmdir touch true unshare umount chroot readlink wc".split()

ATTACK = """#!/bin/sh
PATH=/bin
up={up}
outside={outside}
for place in . / /work /link /proc/self/fd/* /proc/1/fd/* /proc/1/root /proc/1/cwd /proc/self/cwd /proc/self/root /dev/fd/* /dev/pts/..; do
    for way in "$place" "$place$outside" "$place$up$outside"; do
        [ -e "$way/secret" ] || continue
        echo "REACHED $way"; cat "$way/secret"; echo x > "$way/made"; mkdir "$way/new"; rm "$way/empty-file"; rmdir "$way/empty-directory"
    done
done
for setting in /proc/sys/kernel/core_pattern /proc/sys/kernel/modprobe /proc/sysrq-trigger /proc/irq/default_smp_affinity /sys/kernel/uevent_helper /sys/fs/cgroup/release_agent; do
    [ -e $setting ] && ( echo > $setting ) 2> /dev/null && echo "REACHED $setting"
done
mount -t proc proc /mnt 2> /dev/null && echo "REACHED a mount"
unshare -U true 2> /dev/null && echo "REACHED a user namespace"
for device in "b 7 0" "b 259 0" "c 1 1" "c 10 229" "c 5 1"; do
    mknod /tmp/device $device 2> /dev/null && cat < /tmp/device > /dev/null 2>&1 && echo "REACHED device $device"
    rm -f /tmp/device
done
[ -s /proc/kcore ] && echo "REACHED kcore"
true
"""


def layer_of(members):
    """Returns an uncompressed layer. A member is (kind, name, content, link target or device numbers)."""
    data = io.BytesIO()
    kinds = {"link": tarfile.SYMTYPE, "hard": tarfile.LNKTYPE, "dir": tarfile.DIRTYPE, "fifo": tarfile.FIFOTYPE, "char": tarfile.CHRTYPE}
    with tarfile.open(fileobj=data, mode="w") as tar:
        for kind, name, what in members:
            info = tarfile.TarInfo(name)
            info.mode = 0o755
            info.type = kinds.get(kind, tarfile.REGTYPE)
            if kind in ("link", "hard"):
                info.linkname = what
            elif kind == "char":
                info.devmajor, info.devminor = what
            content = what if kind == "file" else b""
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return data.getvalue()


class Registry:
    """A registry that serves any object without checking it."""

    def __init__(self):
        self.objects = {}
        registry = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(handler):
                kind, body = registry.objects.get(handler.path.rsplit("/", 1)[1], ("application/json", b"{}"))
                handler.send_response(200)
                handler.send_header("Content-Type", kind)
                handler.send_header("Content-Length", str(len(body)))
                handler.end_headers()
                if handler.command == "GET":
                    handler.wfile.write(body)

            do_HEAD = do_GET

            def log_message(handler, *arguments):
                pass

        self.server = serve(Handler)
        self.host = f"127.0.0.1:{self.server.server_port}"

    def keep(self, body, kind="application/octet-stream"):
        digest = "sha256:" + hashlib.sha256(body).hexdigest()
        self.objects[digest] = (kind, body)
        return {"mediaType": kind, "digest": digest, "size": len(body)}

    def image(self, tag, members, config=None, text=None):
        """Adds an image, and returns its name. `text` replaces the whole configuration, with %DIFF% for the layer's digest."""
        layer = layer_of([*BASE_FILES, *members])
        diff_id = "sha256:" + hashlib.sha256(layer).hexdigest()
        whole = {"architecture": {"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine, os.uname().machine), "os": "linux",
                 "config": {"Env": ["PATH=/bin"], **(config or {})}, "rootfs": {"type": "layers", "diff_ids": [diff_id]}}
        text = json.dumps(whole) if text is None else text.replace("%DIFF%", diff_id)
        manifest = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
                    "config": self.keep(text.encode(), "application/vnd.oci.image.config.v1+json"),
                    "layers": [self.keep(gzip.compress(layer, 1), "application/vnd.oci.image.layer.v1.tar+gzip")]}
        body = json.dumps(manifest).encode()
        self.objects[tag] = self.objects[self.keep(body, manifest["mediaType"])["digest"]]
        return f"{self.host}/image:{tag}"


# The inotify events that change nothing: IN_OPEN, IN_ACCESS and IN_CLOSE_NOWRITE, including those on directories.
LOOKED = 0x40000031


class Watch:
    """Reports what any process does in a directory and its subdirectories, with inotify."""

    def __init__(self, directory):
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.fd = self.libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        for path in [directory, *directory.rglob("*")]:
            assert self.libc.inotify_add_watch(self.fd, os.fsencode(path), 0xFFF) >= 0

    def events(self):
        try:
            data = os.read(self.fd, 65536)
        except BlockingIOError:
            return []
        found = []
        while data:
            _, mask, _, size = struct.unpack("iIII", data[:16])
            found.append((hex(mask), data[16:16 + size].rstrip(b"\0")))
            data = data[16 + size:]
        return found


ROOT = pathlib.Path(tempfile.mkdtemp(prefix="adaptdl-hostile-"))
OUTSIDE = ROOT / "outside"
BASE_FILES = [("dir", "bin", None), ("file", "bin/busybox", pathlib.Path(BUSYBOX).read_bytes()),
              *(("link", f"bin/{command}", "busybox") for command in COMMANDS), ("dir", "tmp", None), ("dir", "mnt", None),
              ("file", "attack", ATTACK.format(up=UP, outside=OUTSIDE).encode())]
RUN = "RUN /attack\n"
PASSWD = b"root:x:0:0:root:/root:/bin/sh\nevil:x:0:0::/proc/self/fd/3:/bin/sh\n"


def cases():
    """Yields (name, members, configuration, Dockerfile after FROM). A build must either reject a case or do no harm."""
    to_outside = str(OUTSIDE)
    for number in range(3, 9):
        yield f"workdir-fd-{number}", [], {"WorkingDir": f"/proc/self/fd/{number}"}, RUN
        yield f"workdir-link-{number}", [("link", "work", f"/proc/self/fd/{number}{UP}{to_outside}")], {"WorkingDir": "/work/new/a"}, RUN
    for place in "/proc/self/cwd", "/proc/1/root", "/proc/self/root", "/dev/fd/4", "/proc/thread-self/fd/5", "../../.." + to_outside:
        yield "workdir" + place.replace("/", "-"), [], {"WorkingDir": place}, RUN
    for name in "proc", "sys", "dev", "etc":
        for target in "/dev/p", "/proc/self/fd/4", to_outside, "..", name:
            yield f"{name}-to{target.replace('/', '-')[:20]}", [("link", name, target)], {}, RUN
        yield f"{name}-is-a-file", [("file", name, b"x")], {}, RUN
        yield f"{name}-is-a-pipe", [("fifo", name, None)], {}, RUN
    for name in "proc/sys", "proc/kcore", "proc/self", "sys/firmware", "dev/null", "dev/shm", "dev/pts":
        yield f"in-the-way-{name.replace('/', '-')}", [("link", name, to_outside)], {}, RUN
    for name in "etc/passwd", "etc/group", "etc/hosts", "etc/resolv.conf":
        for target in f"/proc/self/fd/4{UP}{to_outside}/secret", f"../../../..{to_outside}/secret", "/proc/self/environ", "/dev/zero", "/proc/kmsg":
            yield f"{name.replace('/', '-')}-to-{target[-12:].replace('/', '-')}", [("link", name, target)], {"User": "evil"}, RUN
    yield "passwd-is-a-pipe", [("fifo", "etc/passwd", None)], {"User": "evil"}, RUN
    yield "home-of-the-user", [("file", "etc/passwd", PASSWD)], {"User": "evil"}, RUN + "RUN cd ~ && /attack\n"
    for user in "4294967295", "-1", "0:4294967295", "evil:\x1b]0;", "../..", "root\n":
        yield f"user-{user!r}", [("file", "etc/passwd", PASSWD)], {"User": user}, RUN
    yield "shell-is-the-builder", [], {"Shell": ["/proc/self/exe"]}, "RUN x\nRUN [\"/attack\"]\n"
    yield "command-is-the-builder", [], {}, 'RUN ["/proc/self/exe", "/attack"]\n'
    yield "interpreter-is-the-builder", [("file", "bin/tool", b"#!/proc/self/exe /attack\n")], {}, 'RUN ["tool"]\n'
    yield "volumes", [], {"Volumes": {"/proc/1/fd/4": {}, to_outside: {}, "/../../..": {}}}, RUN
    yield "onbuild", [], {"OnBuild": ["WORKDIR /proc/self/fd/4", "RUN /attack", "COPY attack /proc/self/fd/4/x"]}, RUN
    yield "stop-signal-and-labels", [], {"StopSignal": "KILL\x1b[2J", "Labels": {"\x1b[2J": "\u202e"}}, RUN
    yield "path", [], {"Env": ["PATH=/proc/self/fd/4:/proc/self/cwd:.:/bin", "LD_PRELOAD=/proc/self/fd/4"]}, RUN
    yield "devices-in-a-layer", [("char", "device", (1, 5))], {}, "RUN ! cat < /device\n" + RUN
    for target in "/a/empty-directory", "/work/empty-directory":
        yield f"moved-target-{target[1]}", [], {}, (
            f"RUN --mount=type=tmpfs,target={target} p={target}; d=${{p%/*}}; mv $d /moved; ln -s /proc/1/fd/4{UP}{to_outside} $d; /attack\n")
    yield "moved-secret", [], {}, f"RUN --mount=type=cache,target=/a/empty-file mv /a /b; ln -s {to_outside} /a; /attack\n"
    yield "mount-over-proc", [], {}, "RUN --mount=type=tmpfs,target=/proc /attack\n"
    yield "mount-by-a-link", [("link", "link", f"/proc/self/fd/4{UP}{to_outside}")], {}, "RUN --mount=type=cache,target=/link/new /attack\n"
    yield "mount-over-the-root", [], {}, "RUN --mount=type=tmpfs,target=/mnt/.. /attack\n"
    yield "bind-from-outside", [("link", "link", to_outside)], {}, "RUN --mount=type=bind,from=0,source=/link,target=/link /attack\n"
    yield "copy-to-a-link", [("link", "link", to_outside)], {}, "COPY attack /link/made\nRUN rm -rf /link/*\n"
    yield "workdir-of-the-dockerfile", [], {}, "WORKDIR /proc/self/fd/4/new\n" + RUN
    yield "removes-everything", [], {}, 'RUN ["/bin/busybox", "rm", "-rf", "/proc", "/dev", "/sys", "/etc", "/mnt", "/tmp"]\n'


class Hostile(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.registry = Registry()
        cls.context = ROOT / "context"
        cls.context.mkdir()
        (cls.context / "attack").write_text("from the context")
        (OUTSIDE / "empty-directory").mkdir(parents=True)
        (OUTSIDE / "secret").write_text("of the machine")
        (OUTSIDE / "empty-file").write_text("")
        for path in [ROOT, OUTSIDE, *OUTSIDE.iterdir()]:
            path.chmod(0o777 if path.is_dir() else 0o666)
        cls.watch = Watch(OUTSIDE)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(ROOT)

    def build(self, dockerfile, kind, *arguments):
        place = ROOT / kind
        place.mkdir(exist_ok=True)
        place.chmod(0o777)
        (self.context / "Dockerfile").write_text(dockerfile)
        command = [ADAPTDL, "build", "--output", f"oci:{place / 'output'}", str(self.context), *arguments]
        if kind != "own":
            command = [sys.executable, AS_USER, kind, *command]
        return subprocess.run(command, env={**os.environ, "ADAPTDL_BUILD_CACHE": str(place / "cache"), "NO_COLOR": "1"},
                              capture_output=True, timeout=PATIENCE)

    def harmless(self, dockerfile, kind, *arguments):
        done = self.build(dockerfile, kind, *arguments)
        events = self.watch.events()
        if events and all(int(mask, 16) & ~LOOKED == 0 for mask, _ in events):
            # Another program that searches the whole disk may have caused these events. The build is therefore
            # repeated: if it opened the directories itself, it opens them again.
            done = self.build(dockerfile, kind, *arguments, "--no-cache")
            events = self.watch.events()
        printed = done.stdout + done.stderr
        if done.returncode == 77 and kind != "own":
            self.skipTest("requires root, newuidmap and /etc/subuid")
        self.assertIn(done.returncode, (0, 1, 2), printed)
        self.assertNotIn(b"REACHED", printed.replace(b'echo "REACHED', b""))
        self.assertNotIn(b"of the machine", printed)
        self.assertEqual(events, [], printed)
        if done.returncode != 0:
            self.assertEqual(done.stderr.count(b"adaptdl: error: "), 1, printed)
        # No text from an image may control a terminal.
        self.assertIsNone(re.search(rb"[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]|\xe2\x80[\xaa-\xae]", printed), printed)
        return done

    def each_case(self, kind):
        self.assertGreater(len(list(cases())), 80)
        built = 0
        for number, (name, members, config, rest) in enumerate(cases()):
            # Builds by other users run the same code, so some of the cases are enough to test it without privileges.
            if kind != "own" and number % 4 and not FULL:
                continue
            with self.subTest(name):
                image = self.registry.image(f"case-{number}", members, config)
                built += self.harmless(f"FROM {image}\n{rest}", kind).returncode == 0
        # Rejected cases attack nothing, so some of the cases must be built.
        self.assertGreater(built, 4 if kind != "own" else 20)

    def test_hostile_builds_stay_in_the_sandbox(self):
        self.each_case("own")

    def test_hostile_builds_stay_in_the_sandbox_of_a_user_with_subordinate_ids(self):
        self.each_case("with-ids")

    def test_hostile_builds_stay_in_the_sandbox_of_a_user_without_subordinate_ids(self):
        self.each_case("without-ids")

    def test_image_paths_never_reach_plain_system_calls(self):
        """Code that works on an image's files opens paths only with open_rooted(). Other calls are allowed for our own paths."""
        files = "sandbox_command sandbox_init sandbox_monitor sandbox_root copy_tree entry file_tree mount_points overlay_changes rooted_tree user_names".split()
        plain = ("open creat stat lstat statfs mkdir rmdir chdir chroot unlink readlink access mount umount umount2 rename symlink link mknod chown lchown chmod "
                 "truncate getxattr lgetxattr setxattr lsetxattr listxattr llistxattr").split()
        calls = rf"(?<!\w)::(?:{'|'.join(plain)})\(|AT_FDCWD|\b[io]fstream\b|\bfs::(?!path\b)\w+\("
        own = ('"/"', '"/dev/null"', '"/proc/sys/net/ipv4/', "root.c_str()", "path.c_str(), O_RDONLY | O_DIRECTORY", "files_", "write_file(AT_FDCWD, path",
               'umount2(".", MNT_DETACH)', "kControlGroups", "upper.c_str()", "xattr(file.c_str()")
        found = []
        for name in files:
            [source] = SOURCE.rglob(f"{name}.cc")
            for number, line in enumerate(source.read_text().splitlines(), 1):
                if re.search(calls, line.split("//")[0]) and not any(word in line for word in own):
                    found.append(f"{name}.cc:{number}: {line.strip()}")
        self.assertEqual(found, [])

    def test_too_deeply_nested_image_configurations_are_rejected(self):
        deep = "[" * 300_000 + "]" * 300_000
        for text in ('{"rootfs": {"diff_ids": ["%DIFF%"]}, "config": {}, "nobody": ' + deep + "}", deep, '{"config": ' + '{"a":' * 300_000):
            done = self.harmless(f"FROM {self.registry.image('deep', [], text=text)}\n{RUN}", "own")
            self.assertEqual(done.returncode, 1)
            self.assertIn(b"the image configuration is not a JSON object", done.stderr)

    @unittest.skipIf(IN_NAMESPACE not in os.environ, "a certificate authority for the test requires a mount namespace")
    def test_redirects_from_https_to_http_require_a_checksum(self):
        content = b"on its way"

        class Plain(http.server.BaseHTTPRequestHandler):
            def do_GET(handler):
                handler.send_response(302 if handler.path == "/away" else 200)
                if handler.path == "/away":
                    handler.send_header("Location", f"http://127.0.0.1:{plain.server_port}/file")
                    handler.send_header("Content-Length", "0")
                else:
                    handler.send_header("Content-Length", str(len(content)))
                handler.end_headers()
                if handler.path != "/away":
                    handler.wfile.write(content)

            def log_message(handler, *arguments):
                pass

        plain, secure = serve(Plain), serve(Plain)
        authority = make_certificate(ROOT, "authority")
        certificate, key = make_certificate(ROOT, "server", authority)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        secure.socket = context.wrap_socket(secure.socket, server_side=True)
        subprocess.run(["mount", "--bind", authority[0], os.path.realpath("/etc/ssl/certs/ca-certificates.crt")], check=True)
        url = f"https://127.0.0.1:{secure.server_port}/away"
        done = self.harmless(f"FROM scratch\nADD {url} /file\n", "own")
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"redirected from https to 'http://127.0.0.1:", done.stderr)
        self.assertIn(b"--checksum", done.stderr)
        checked = f"--checksum=sha256:{hashlib.sha256(content).hexdigest()}"
        done = self.harmless(f"FROM scratch\nADD {checked} {url} /file\n", "own")
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_writing_an_output_does_not_follow_a_planted_symbolic_link(self):
        victim, output = ROOT / "victim", ROOT / "output.tar"
        victim.write_text("another's")
        (self.context / "Dockerfile").write_text("FROM scratch\nCOPY attack /\n")
        done = subprocess.run([ADAPTDL, "build", "--output", f"docker-archive:{output}", str(self.context)],
                              env={**os.environ, "ADAPTDL_BUILD_CACHE": str(ROOT / "own/cache")}, capture_output=True, timeout=PATIENCE,
                              preexec_fn=lambda: os.symlink(victim, f"{output}.draft-{os.getpid()}"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(victim.read_text(), "another's")
        self.assertFalse(output.is_symlink())


if __name__ == "__main__":
    unittest.main(verbosity=2)
