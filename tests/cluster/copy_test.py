"""Tests copies to and from jobs: through a running replica, through a temporary pod if no replica is running, and over
connections that drop.

With ADAPTDL_TESTS=full, the tests use the full sizes: 1 GiB, ten dropped connections, and 10,000 files.
"""

import hashlib
import io
import json
import os
import pathlib
import random
import signal
import stat
import subprocess
import tarfile

import cluster_support
from cluster_jobs_support import ClusterJobsTest
from extent import FULL
from local_network import CuttingProxy

LARGE = (1 << 30) if FULL else (64 << 20)
FILES = 10_000 if FULL else 1_000
CUTS = 10 if FULL else 4
SLOW = 600 if FULL else 120
COPY_LABEL = "adaptdl/cli-copy"
SHARE = "/adaptdl/share"


def write_large(path, size=LARGE):
    """Writes random bytes, so that no part of the file could be mistaken for another. Returns their SHA-256."""
    digest = hashlib.sha256()
    with open(path, "wb") as file:
        for _ in range(size >> 20):
            piece = os.urandom(1 << 20)
            digest.update(piece)
            file.write(piece)
    return digest.hexdigest()


def sha256_of(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def make_tree(top, files=20):
    """Creates a tree of files, directories (some of them empty), and hard and symbolic links, with many modes and
    names."""
    chance = random.Random(1)
    top.mkdir()
    for name in ("a b", "new\nline", "-dash", "qu'o\"te", "back\\slash", "größe", "$(x);&*?", "n" * 200, "deep/er/still"):
        (top / "odd" / name).mkdir(parents=True)
        (top / "odd" / name / name.split("/")[0]).write_bytes(name.encode())
    for number in range(files):
        path = top / f"d{number % 10}" / f"f{number}"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(chance.randbytes(chance.randrange(3000)))
        path.chmod(chance.choice((0o600, 0o644, 0o755, 0o444, 0o400)))
        os.utime(path, (1, 1_500_000_000 + number))
        if number % 20 == 3:
            path.with_name(f"hard{number}").hardlink_to(path)
        if number % 20 == 4:
            path.with_name(f"soft{number}").symlink_to(path.name)
    (top / "empty file").touch()
    (top / "empty directory").mkdir()
    (top / "dangling").symlink_to("nowhere/at all")
    (top / "up").symlink_to("../..")
    (top / "to a directory").symlink_to("d0")
    for mode in (0o700, 0o755, 0o555):
        (top / f"mode {mode:o}").mkdir()
        (top / f"mode {mode:o}" / "file").write_bytes(b"x")
        (top / f"mode {mode:o}").chmod(mode)
    for path in sorted(top.rglob("*"), reverse=True):
        if path.is_dir() and not path.is_symlink():
            os.utime(path, (1, 1_400_000_000))


def picture(top):
    """Returns a description of a tree: path -> type, mode, time, contents or target, and the first hard link to the same file."""
    found, first = {}, {}
    for path in sorted(top.rglob("*")):
        status, name = path.lstat(), str(path.relative_to(top))
        if path.is_symlink():
            found[name] = ("link", os.readlink(path))
        elif path.is_dir():
            found[name] = ("directory", oct(stat.S_IMODE(status.st_mode)), int(status.st_mtime))
        else:
            one = first.setdefault(status.st_ino, name)
            found[name] = ("file", oct(stat.S_IMODE(status.st_mode)), int(status.st_mtime), sha256_of(path), one)
    return found


class CopyTest(ClusterJobsTest):
    maxDiff = 4000

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        make = cls("make_jobs")
        make.make_jobs()

    def make_jobs(self):
        """Creates a job whose replicas are running, one that has ended but still has its volume, and one without replicas or volume."""
        self.make_job("running", replicas=2, volume=True)
        self.make_job("ended", replicas=0, volume=True, phase="Succeeded")
        self.make_job("bare", replicas=0, phase="Succeeded")

    def copy(self, *arguments, **more):
        done = self.adaptdl("cp", *arguments, timeout=SLOW, **more)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def refused(self, *arguments, code=1, **more):
        """Checks that a copy fails with a single error line. Returns the line."""
        done = self.adaptdl("cp", *arguments, **more)
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertEqual(done.stdout, "")
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        return done.stderr

    def in_pod(self, command):
        pod = self.pods_of("running")[0]["metadata"]["name"]
        return self.kubectl("exec", pod, "--", "sh", "-c", command)

    def helpers(self):
        return [pod["metadata"]["name"] for pod in self.get("pods", None, "-l", COPY_LABEL)]

    def no_helper_is_left(self):
        self.wait_for("the pods that copied are gone", lambda: not self.helpers())

    def cut(self, every, cuts=CUTS):
        """Returns a kubeconfig whose connections go through a proxy, and the proxy, which drops connections."""
        proxy = CuttingProxy(every, cuts)
        self.addCleanup(proxy.close)
        config = json.loads(cluster_support.kubectl("config", "view", "--raw", "-o", "json", kubeconfig=self.kubeconfig))
        for cluster in config["clusters"]:
            cluster["cluster"]["proxy-url"] = f"http://127.0.0.1:{proxy.port}"
        path = self.directory / f"kubeconfig-{proxy.port}"
        path.write_text(json.dumps(config), encoding="utf-8")
        return path, proxy

    def make_local_tree(self, name, files=20):
        top = self.directory / name
        make_tree(top, files)
        return top

    # The tests below copy files.

    def test_a_file_is_copied_to_a_replica_and_back_with_its_mode_and_time(self):
        here = self.directory / "file"
        here.write_bytes(os.urandom(300_000))
        here.chmod(0o640)
        os.utime(here, (1, 1_600_000_000))
        self.copy(here, f"running:{SHARE}/file")
        self.assertEqual(self.in_pod(f"stat -c '%a %Y' {SHARE}/file; sha256sum <{SHARE}/file").split()[:3],
                         ["640", "1600000000", sha256_of(here)])  # fmt: skip
        self.copy(f"running:{SHARE}/file", "back")
        back = self.directory / "back"
        self.assertEqual((sha256_of(back), oct(back.stat().st_mode), int(back.stat().st_mtime)),
                         (sha256_of(here), oct(here.stat().st_mode), 1_600_000_000))  # fmt: skip

    def test_a_file_copied_into_a_directory_keeps_its_name(self):
        (self.directory / "named").write_text("named")
        self.in_pod(f"mkdir {SHARE}/into")
        self.copy("named", f"running:{SHARE}/into")
        self.assertEqual(self.in_pod(f"cat {SHARE}/into/named"), "named")
        (self.directory / "here").mkdir()
        self.copy(f"running:{SHARE}/into/named", "here")
        self.assertEqual((self.directory / "here/named").read_text(), "named")

    def test_empty_files_and_files_with_unusual_names_are_copied(self):
        for number, name in enumerate(("empty", "-dash", "a b", "new\nline", "qu'o\"te", "$(exit 1);*", "größe")):
            here = self.directory / f"odd{number}" / name
            here.parent.mkdir()
            here.write_bytes(b"" if name == "empty" else name.encode())
            with self.subTest(name):
                self.copy(here, f"running:{SHARE}/{name}")
                self.copy(f"running:{SHARE}/{name}", f"./odd-back{number}")
                self.assertEqual((self.directory / f"odd-back{number}").read_bytes(), here.read_bytes())

    def test_an_existing_file_is_replaced_including_its_mode(self):
        self.in_pod(f"echo 'a longer text than the new one' >{SHARE}/old; chmod 600 {SHARE}/old")
        (self.directory / "new").write_text("new")
        (self.directory / "new").chmod(0o644)
        self.copy("new", f"running:{SHARE}/old")
        self.assertEqual(self.in_pod(f"cat {SHARE}/old; stat -c %a {SHARE}/old; ls -A {SHARE} | grep -c adaptdl-cp || true"),
                         "new644\n0\n")  # fmt: skip

    def test_copying_to_a_symlink_replaces_the_linked_file_and_keeps_the_link(self):
        self.in_pod(f"mkdir {SHARE}/links && cd {SHARE}/links && mkdir there && echo old | tee there/file >there/other"
                    " && ln -s there/file link && ln -s ../there/other there/another")  # fmt: skip
        (self.directory / "link").write_text("new")
        (self.directory / "another").write_text("newer")
        self.copy("link", f"running:{SHARE}/links/link")
        self.copy("another", f"running:{SHARE}/links/there")
        self.assertEqual(self.in_pod(f"cd {SHARE}/links && cat there/file there/other && readlink link && readlink there/another && ls -A there"),
                         "newnewerthere/file\n../there/other\nanother\nfile\nother\n")  # fmt: skip
        self.copy("-", f"running:{SHARE}/links/link", stdin="newest")
        self.assertEqual(self.in_pod(f"cd {SHARE}/links && cat there/file && readlink link"), "newestthere/file\n")

    def test_the_rank_option_selects_the_replica(self):
        pods = self.pods_of("running")
        for rank, pod in enumerate(pods):
            self.kubectl("exec", pod["metadata"]["name"], "--", "sh", "-c", f"echo {rank} >/tmp/rank")
        self.assertEqual([self.copy("--rank", rank, "running:/tmp/rank", "-").stdout for rank in (0, 1)], ["0\n", "1\n"])
        self.assertEqual(self.copy("running:/tmp/rank", "-").stdout, "0\n")
        self.assertIn("rank 7", self.refused("--rank", "7", "running:/tmp/rank", "-"))

    # The tests below copy directories.

    def round_trip(self, job, name, files=20, kubeconfig=None):
        more = {"KUBECONFIG": kubeconfig} if kubeconfig else {}
        here = self.make_local_tree(name, files)
        self.copy(here, f"{job}:{SHARE}/{name}", **more)
        self.copy(f"{job}:{SHARE}/{name}", f"{name}-back", **more)
        self.assertEqual(picture(here), picture(self.directory / f"{name}-back"))

    def test_a_directory_is_copied_both_ways_with_modes_times_and_links(self):
        self.round_trip("running", "tree")
        there = self.in_pod(f"cd {SHARE}/tree && stat -c %a 'mode 555' && readlink dangling && stat -c %h d3/f3")
        self.assertEqual(there.split("\n")[:3], ["555", "nowhere/at all", "2"])

    def test_many_small_files_are_copied_both_ways(self):
        self.round_trip("running", "many", FILES)

    def test_a_directory_is_copied_into_an_existing_one_and_with_a_trailing_dot_only_its_contents(self):
        here = self.directory / "outer"
        here.mkdir()
        (here / "inner").write_text("inner")
        self.in_pod(f"mkdir {SHARE}/goal")
        self.copy("outer", f"running:{SHARE}/goal")
        self.copy("outer/.", f"running:{SHARE}/goal")
        self.assertEqual(self.in_pod(f"cd {SHARE}/goal && find . -type f | sort"), "./inner\n./outer/inner\n")

    # The tests below copy from standard input and to standard output.

    def test_a_stream_is_copied_to_a_file_and_back(self):
        contents = os.urandom(5 << 20)
        self.copy("-", f"running:{SHARE}/stream", text=False, stdin=contents)
        self.assertEqual(self.copy(f"running:{SHARE}/stream", "-", text=False).stdout, contents)
        self.copy("-", f"running:{SHARE}/nothing", stdin="")
        self.assertEqual(self.copy(f"running:{SHARE}/nothing", "-").stdout, "")

    def test_a_directory_is_streamed_as_a_tar_archive_both_ways(self):
        self.in_pod(f"mkdir -p {SHARE}/packed/sub && echo one >{SHARE}/packed/sub/one && ln -s sub/one {SHARE}/packed/link")
        archive = self.copy(f"running:{SHARE}/packed", "-", text=False).stdout
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            self.assertEqual(tar.extractfile("./sub/one").read(), b"one\n")
            self.assertEqual(tar.getmember("./link").linkname, "sub/one")
        self.in_pod(f"mkdir {SHARE}/unpacked")
        self.copy("-", f"running:{SHARE}/unpacked", text=False, stdin=archive)
        self.assertEqual(self.in_pod(f"cat {SHARE}/unpacked/link; ls -A {SHARE}/unpacked"), "one\nlink\nsub\n")

    # In the tests below, no replica is running.

    def test_a_temporary_pod_copies_when_no_replica_is_running_and_is_deleted_afterwards(self):
        self.round_trip("ended", "helped")
        self.no_helper_is_left()
        self.assertIn("No such file", self.refused(f"ended:{SHARE}/absent", "x"))
        self.no_helper_is_left()

    def test_the_temporary_pod_is_deleted_after_an_interrupt(self):
        write_large(self.directory / "long", 8 << 20)
        self.copy("long", f"ended:{SHARE}/long")
        for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
            # The rest of the command's output is not read, so the command cannot end by itself.
            process = subprocess.Popen([cluster_support.ADAPTDL, "cp", f"ended:{SHARE}/long", "-"], stdout=subprocess.PIPE,
                                       stderr=subprocess.PIPE, env=self.environment(), cwd=self.directory)  # fmt: skip
            with process:
                self.addCleanup(process.kill)
                process.stdout.read(1 << 20)
                self.assertTrue(self.helpers())
                process.send_signal(number)
                cluster_support.eventually(lambda: process.poll() is not None)
                self.assertEqual(process.poll(), code)
            self.no_helper_is_left()

    def test_an_interrupt_while_the_temporary_pod_starts_deletes_it(self):
        # The directory of the volume is missing, so the temporary pod does not start before the interrupt.
        job = self.make_job("starting", replicas=0, phase="Succeeded", template=self.make_template("true", volume="missing"))
        self.make_volume("missing", job, create=False)
        running = self.start("cp", f"starting:{SHARE}/anything", "x")
        self.wait_for("the temporary pod exists", self.helpers)
        self.assertEqual(running.stop(), 130, running.text())
        self.no_helper_is_left()

    # The tests below check errors and permissions.

    def test_an_invalid_copy_fails_with_a_single_error_line(self):
        (self.directory / "some").write_text("some")
        (self.directory / "some directory").mkdir()
        for arguments, *words in (
            (("nobody:/x", "x"), "nobody"),
            ((f"running:{SHARE}/absent", "x"), f"{SHARE}/absent", "No such file"),
            (("nothing here", f"running:{SHARE}/x"), "nothing here"),
            (("some", "running:/proc/x"), "/proc/x"),
            (("some", f"running:{SHARE}/no/such/x"), f"{SHARE}/no/such/x"),
            (("running:/etc/passwd", "/proc/x"), "/proc"),
            (("bare:/x", "x"), "bare", "adaptdl-pvc"),
        ):
            with self.subTest(arguments=arguments):
                line = self.refused(*arguments)
                for word in words:
                    self.assertIn(word, line)
        for arguments in (("some", "other"), ("running:/x", "running:/y"), ("some directory", "running:/etc/passwd"),
                          ("running:", "x"), ("some", "running:/no/directory/")):  # fmt: skip
            with self.subTest(arguments=arguments):
                self.refused(*arguments, code=2)

    def as_account(self, name, **permissions):
        """Creates a service account that may read jobs and pods and has these permissions. Returns its kubeconfig and its token."""
        resources = {"adaptdljobs.adaptdl.petuum.com": "get,list", "pods": "get,list", **permissions}
        for number, (resource, verbs) in enumerate(resources.items()):
            role = f"{name}-{number}"
            self.kubectl("create", "role", role, f"--verb={verbs}", f"--resource={resource}")
            self.kubectl("create", "rolebinding", role, f"--role={role}", f"--serviceaccount={self.namespace}:{name}")
        self.kubectl("create", "serviceaccount", name)
        path = f"/api/v1/namespaces/{self.namespace}/serviceaccounts/{name}/token"
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": []}}
        token = json.loads(self.kubectl("create", "--raw", path, "-f", "-", text=json.dumps(request)))["status"]["token"]
        config = json.loads(cluster_support.kubectl("config", "view", "--raw", "-o", "json", kubeconfig=self.kubeconfig))
        for user in config["users"]:
            user["user"] = {"token": token}
        kubeconfig = self.directory / f"kubeconfig-{name}"
        kubeconfig.write_text(json.dumps(config), encoding="utf-8")
        for resource, verbs in resources.items():
            self.wait_for_right(f"system:serviceaccount:{self.namespace}:{name}", verbs.split(",")[0], *resource.split("/"))
        return kubeconfig, token

    def test_copying_works_with_permission_to_either_create_or_get_pods_exec(self):
        here = self.directory / "permitted"
        write_large(here, 2 << 20)
        for verb in ("create", "get"):
            with self.subTest(verb=verb):
                kubeconfig, _ = self.as_account(f"may-{verb}", **{"pods/exec": verb})
                self.copy("permitted", f"running:{SHARE}/{verb}", KUBECONFIG=kubeconfig)
                self.copy(f"running:{SHARE}/{verb}", f"back-{verb}", KUBECONFIG=kubeconfig)
                self.assertEqual(sha256_of(self.directory / f"back-{verb}"), sha256_of(here))

    def test_a_lack_of_permission_to_exec_in_pods_is_reported(self):
        kubeconfig, token = self.as_account("reader")
        line = self.refused("running:/etc/passwd", "x", KUBECONFIG=kubeconfig)
        self.assertIn('cannot create resource "pods/exec"', line)
        self.assertNotIn("cannot get", line)
        self.assertNotIn(token, line)
        self.assertIn("forbidden", self.refused(f"ended:{SHARE}", "x", KUBECONFIG=kubeconfig))

    # In the tests below, connections drop.

    def test_a_large_file_is_copied_both_ways_over_connections_that_drop(self):
        here = self.directory / "large"
        digest = write_large(here)
        every = LARGE // (CUTS + 1)
        kubeconfig, proxy = self.cut(every)
        self.copy("large", f"running:{SHARE}/large", KUBECONFIG=kubeconfig)
        self.assertEqual(proxy.cuts, CUTS)
        self.assertEqual(self.in_pod(f"sha256sum <{SHARE}/large; ls -A {SHARE} | grep -c adaptdl-cp || true").split(),
                         [digest, "-", "0"])  # fmt: skip
        here.unlink()
        kubeconfig, proxy = self.cut(every)
        self.copy(f"running:{SHARE}/large", "large-back", KUBECONFIG=kubeconfig)
        self.assertEqual(proxy.cuts, CUTS)
        self.assertEqual(sha256_of(self.directory / "large-back"), digest)
        (self.directory / "large-back").unlink()

    def test_streams_are_copied_both_ways_over_connections_that_drop(self):
        contents = os.urandom(20 << 20)
        kubeconfig, proxy = self.cut(4 << 20, 3)
        self.copy("-", f"running:{SHARE}/cut", text=False, stdin=contents, KUBECONFIG=kubeconfig)
        self.assertEqual(proxy.cuts, 3)
        kubeconfig, proxy = self.cut(4 << 20, 3)
        self.assertEqual(self.copy(f"running:{SHARE}/cut", "-", text=False, KUBECONFIG=kubeconfig).stdout, contents)
        self.assertEqual(proxy.cuts, 3)

    def test_directories_are_copied_both_ways_over_connections_that_drop(self):
        here = self.make_local_tree("cut tree", FILES)
        for number in range(4):
            write_large(here / f"large{number}", 2 << 20)
        kubeconfig, proxy = self.cut(1 << 20, CUTS)
        self.copy(here, f"ended:{SHARE}/cut tree", KUBECONFIG=kubeconfig)
        self.assertEqual(proxy.cuts, CUTS)
        kubeconfig, proxy = self.cut(1 << 20, CUTS)
        self.copy(f"ended:{SHARE}/cut tree", "cut tree back", KUBECONFIG=kubeconfig)
        self.assertEqual(proxy.cuts, CUTS)
        self.assertEqual(picture(here), picture(self.directory / "cut tree back"))
        self.no_helper_is_left()


if __name__ == "__main__":
    cluster_support.main()
