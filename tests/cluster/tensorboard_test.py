"""Tests TensorBoard instances in a cluster: they are created, proxied, used in a real browser, and deleted without a trace."""

import concurrent.futures
import html
import json
import os
import re
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
import unittest
import urllib.request

import cluster_keeper
import cluster_support
import image_archive
from cluster_jobs_support import ClusterJobsTest
from cluster_support import clean_environment
from local_network import free_port

IMAGE = "localhost/adaptdl-tensorboard:1"
OBJECT = "adaptdl-tensorboard-{}"
KINDS = ("deployments", "services", "persistentvolumeclaims", "pods", "replicasets")


def browser():
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def fetch(url, timeout=30):
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, timeout=timeout) as answer:
        return answer.read()


class TensorBoardTest(ClusterJobsTest):
    @classmethod
    def setUpClass(cls):
        if not cluster_support.OWN:
            raise unittest.SkipTest("only the tests' own cluster can be given the image that stands in for TensorBoard")
        super().setUpClass()
        archive = cls.directory / "image.tar"
        image_archive.write(archive, IMAGE, {"usr/bin/tensorboard": os.environ["TENSORBOARD_SERVER"]})
        cluster_keeper.load(archive)

    def create(self, name, *options):
        """Creates an instance with a volume, which is deleted at the end of the test if it still exists. Returns the volume's directory."""
        storage = self.make_shared_class(OBJECT.format(name))
        # Objects that a failed test left behind would make other tests fail, so the deletion waits for all of them.
        self.addCleanup(
            self.kubectl, "delete", "deployments,services,persistentvolumeclaims", "-l", f"adaptdl/tensorboard={name}", "--cascade=foreground"
        )
        done = self.adaptdl("tensorboard", "create", name, "--storageclass", storage, "--image", IMAGE, *options)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout, f"Successfully created TensorBoard instance {name}\n")
        return self.directory / "volumes" / OBJECT.format(name)

    def proxy(self, name, *options):
        """Starts a proxy for the instance. Returns the running command and the URL that it prints."""
        running = self.start("tensorboard", "proxy", name, *options)
        url = running.wait_for(rf"^Serving TensorBoard instance {name} at (http://\S+)$").group(1)
        return running, url

    def refusal(self, *words, code=1):
        done = self.adaptdl("tensorboard", *words)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        self.assertRegex(done.stderr, r"\Aadaptdl: error: [^\n]+\n\Z")
        return done.stderr

    def left(self):
        selector = "adaptdl/tensorboard"
        return [item["metadata"]["name"] for kind in KINDS for item in self.get(kind, None, "-l", selector)]

    def see(self, url):
        """Opens the page in a browser. Returns the lines that the page shows."""
        program = browser()
        self.assertTrue(program, "chromium not found; ./bootstrap test installs it")
        with tempfile.TemporaryDirectory(prefix="adaptdl-browser-", ignore_cleanup_errors=True) as home:
            done = subprocess.run(
                [program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                 f"--user-data-dir={home}/profile", "--dump-dom", url],
                capture_output=True, text=True, timeout=120, env=clean_environment(HOME=home),
            )  # fmt: skip
        shown = re.search(r'<pre id="output">(.*?)</pre>', done.stdout, re.DOTALL)
        self.assertTrue(shown, done.stdout + done.stderr)
        return html.unescape(shown.group(1)).splitlines()

    def test_an_instance_is_created_proxied_used_in_a_browser_listed_and_deleted(self):
        volume = self.create("mine", "--size", "2Gi", "--nodeport")
        _, url = self.proxy("mine", "-p", free_port())
        self.assertRegex(url, r"^http://localhost:\d+$")
        (volume / "events").write_text("written by a job", encoding="utf-8")
        self.assertEqual(
            self.see(url),
            ["at /board/", "runs events=written by a job", "big 3145728 true", "counted 3145728", "moved true /data/runs true",
             "echo hello", "echo of much true", "done"],
        )  # fmt: skip
        table = self.adaptdl("tensorboard", "list").stdout.splitlines()
        self.assertRegex(table[1], r"^mine +3\d{4} +2Gi +1/1 *$")
        (board,) = json.loads(self.adaptdl("tensorboard", "list", "-o", "json").stdout)
        self.assertEqual((board["name"], board["size"], board["ready"]), ("mine", "2Gi", 1))
        node = next(
            address["address"] for address in self.get("nodes")[0]["status"]["addresses"] if address["type"] == "InternalIP"
        )
        self.wait_for("the instance is reachable at the node's port", lambda: self.reaches(f"http://{node}:{board['nodePort']}/data/runs"))
        done = self.adaptdl("tensorboard", "delete", "mine")
        self.assertEqual((done.returncode, done.stdout), (0, "Successfully deleted TensorBoard instance mine\n"), done.stderr)
        self.assertEqual(self.left(), [])
        self.assertRegex(self.refusal("delete", "mine"), "TensorBoard instance 'mine' not found in namespace")

    def reaches(self, url):
        try:
            fetch(url, 5)
            return True
        except OSError:
            return False

    def is_put_on_no_node(self):
        """Returns whether the scheduler finds no node for a pod."""
        name = f"probe-{secrets.token_hex(3)}"
        self.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, **self.make_template("true")})

        def seen():
            pod = self.get("pod", name)
            return pod if any(condition["type"] == "PodScheduled" for condition in pod["status"].get("conditions", [])) else None

        pod = self.wait_for("the scheduler has considered a pod", seen)
        self.kubectl("delete", "pod", name, "--grace-period=0", "--force")
        return "nodeName" not in pod["spec"]

    def test_a_proxy_waits_until_the_instance_is_ready_and_stops_on_ctrl_c(self):
        for node in ("node0", "node1"):
            self.kubectl("cordon", node)
            self.addCleanup(self.kubectl, "uncordon", node)
        # The scheduler notices the cordoned nodes only a moment later.
        self.wait_for("the scheduler puts pods on no node", self.is_put_on_no_node)
        self.create("late")
        running = self.start("tensorboard", "proxy", "late")
        running.wait_for("waiting for TensorBoard instance 'late' to be ready")
        running.wait_for("no node fits")
        began = time.monotonic()
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            self.assertIn(f"port {port} on 127.0.0.1 is in use", self.refusal("proxy", "late", "-p", port, code=2))
        self.assertIn("cannot listen on 192.0.2.1", self.refusal("proxy", "late", "--address", "192.0.2.1", code=2))
        self.assertLess(time.monotonic() - began, 60)  # the rejected commands do not wait for the instance
        self.assertRegex(self.adaptdl("tensorboard", "list").stdout.splitlines()[1], r"^late +<none> +1Gi +0/1 +no node fits")
        for node in ("node0", "node1"):
            self.kubectl("uncordon", node)
        url = running.wait_for(r"^Serving TensorBoard instance late at (http://\S+)$").group(1)
        self.assertEqual(fetch(url + "/data/count"), b"0")
        self.assertEqual(running.stop(), 0)
        with self.assertRaises(OSError):
            fetch(url, 5)
        self.assertEqual(self.adaptdl("tensorboard", "delete", "late").returncode, 0)

    def test_a_proxy_listens_only_on_the_given_address(self):
        self.create("there")
        for address, shown in (("127.0.0.2", "127.0.0.2"), ("::1", "[::1]")):
            running, url = self.proxy("there", "--address", address)
            self.assertRegex(url, rf"^http://{re.escape(shown)}:\d+$")
            self.assertEqual(fetch(url + "/data/count"), b"0")
            with self.assertRaises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", int(url.rsplit(":", 1)[1])), timeout=5)
            self.assertEqual(running.stop(), 0)
        self.assertEqual(self.adaptdl("tensorboard", "delete", "there").returncode, 0)

    def test_a_proxy_continues_with_the_next_pod(self):
        self.create("mended")
        _, url = self.proxy("mended")
        self.assertEqual(fetch(url + "/data/count"), b"0")
        before = {pod["metadata"]["name"] for pod in self.get("pods")}
        self.kubectl("delete", "pods", "-l", "adaptdl/tensorboard=mended", "--grace-period=1")
        self.wait_for("it is served again", lambda: self.reaches(url + "/data/count"))
        self.assertFalse(before & {pod["metadata"]["name"] for pod in self.get("pods")})
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            sizes = list(pool.map(lambda _: len(fetch(url + "/data/big")), range(16)))
        self.assertEqual(sizes, [3 << 20] * 16)
        self.assertEqual(self.adaptdl("tensorboard", "delete", "mended").returncode, 0)
        self.assertEqual(self.left(), [])

    def test_invalid_commands_are_rejected_and_create_nothing(self):
        storage = self.make_shared_class("unused")
        self.assertRegex(self.refusal("create", "other", "--storageclass", "nothing"), f"storage class 'nothing' not found; available: .*{storage}")
        self.assertRegex(self.refusal("create", "other", "--storageclass", storage, "--size", "much", code=2), "invalid --size 'much'")
        self.assertRegex(self.refusal("create", "No_Name", code=2), "invalid name 'No_Name'")
        self.assertRegex(self.refusal("proxy", "other"), "TensorBoard instance 'other' not found in namespace")
        self.assertEqual(self.left(), [])
        self.create("taken")
        self.assertRegex(self.refusal("create", "taken", "--storageclass", storage), "already exists in namespace .* choose another name")
        _, url = self.proxy("taken")
        port = url.rsplit(":", 1)[1]
        self.assertRegex(self.refusal("proxy", "taken", "-p", port, code=2), f"port {port} on 127.0.0.1 is in use")
        self.assertEqual(self.adaptdl("tensorboard", "delete", "taken").returncode, 0)


if __name__ == "__main__":
    cluster_support.main()
