"""Tests that every command reports an unusable cluster in one clear line and exits with code 1 within 30 seconds."""

import base64
import concurrent.futures
import json
import os
import pathlib
import shutil
import socket
import subprocess
import threading
import time
import unittest

import cluster_support
from cluster_support import ADAPTDL, ClusterTest, kubectl

LIMIT = 30  # seconds; on an idle machine, commands take less than 10
SECRET = "0123456789abcdef-this-is-a-secret"
NOBODY = 65534
COMMANDS = (
    ("ls", "--cluster"),
    ("logs", "--cluster", "job"),
    ("describe", "--cluster", "job"),
    ("delete", "--cluster", "--yes", "job"),
    ("cp", "job:/adaptdl/share/x", "x"),
    ("tensorboard", "list"),
)
# Runs a command in a network where packets to 10.99.0.1 are dropped without a response.
BLACK_HOLE = """
ip link set lo up
ip addr add 10.99.0.1/24 dev lo
iptables -A INPUT -d 10.99.0.1 -j DROP
exec "$@"
"""


def base64_of(path):
    return base64.b64encode(path.read_bytes()).decode()


class AccessTest(ClusterTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.config = json.loads(kubectl("config", "view", "--raw", "-o", "json", kubeconfig=cls.kubeconfig))
        cls.server = cls.config["clusters"][0]["cluster"]["server"]

    def changed(self, name, cluster=None, user=None):
        """Writes a kubeconfig with changed values to a file with this name. None removes a value. Returns the path of
        the file."""
        config = json.loads(json.dumps(self.config))
        for section, changes in ((config["clusters"][0]["cluster"], cluster), (config["users"][0]["user"], user)):
            section.update(changes or {})
            for key in [key for key, value in section.items() if value is None]:
                del section[key]
        path = self.directory / name
        path.write_text(json.dumps(config), encoding="utf-8")
        path.chmod(0o600)
        return path

    def with_user(self, name, **user):
        nothing = {"client-certificate-data": None, "client-key-data": None, "token": None}
        return self.changed(name, user={**nothing, **{key.replace("_", "-"): value for key, value in user.items()}})

    def refused(self, kubeconfig, *words, commands=COMMANDS, prefix=(), **options):
        """Runs the commands concurrently, and checks that each fails with one line that contains all of the words."""

        def run(command):
            began = time.monotonic()
            done = subprocess.run(
                [*prefix, ADAPTDL, *command], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60,
                env=self.environment(KUBECONFIG=kubeconfig), **{"cwd": self.directory, **options},
            )  # fmt: skip
            return command, done, time.monotonic() - began

        with concurrent.futures.ThreadPoolExecutor(len(commands)) as pool:
            for command, done, seconds in pool.map(run, commands):
                with self.subTest(command=" ".join(command), kubeconfig=str(kubeconfig)):
                    self.assertEqual(done.returncode, 1, done.stderr)
                    self.assertEqual(done.stdout, "")
                    self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
                    self.assertRegex(done.stderr, "^adaptdl: ")
                    for word in words:
                        self.assertIn(word, done.stderr)
                    self.assertNotIn(SECRET, done.stderr)
                    self.assertLess(seconds, LIMIT, done.stderr)

    def test_a_missing_kubeconfig_is_named_in_the_error(self):
        missing = self.directory / "not-there"
        self.refused(missing, str(missing))

    def test_without_a_kubeconfig_the_error_mentions_the_environment_variable(self):
        home = self.directory / "empty-home"
        home.mkdir()
        for command in COMMANDS[:1] + COMMANDS[4:]:
            done = self.adaptdl(*command, KUBECONFIG=None, HOME=home)
            self.assertEqual((done.returncode, done.stdout), (1, ""), done.stderr)
            self.assertRegex(done.stderr, r"^adaptdl: [^\n]*KUBECONFIG[^\n]*\n$")

    def test_an_unreadable_kubeconfig_is_named_in_the_error(self):
        closed = self.changed("closed")
        public = pathlib.Path(self.directory.parent / f"{self.directory.name}-public")
        public.mkdir(mode=0o755)
        self.addCleanup(shutil.rmtree, public)
        command = public / "adaptdl"
        shutil.copy(ADAPTDL, command)
        self.directory.chmod(0o755)
        os.chown(closed, 0, 0)
        done = subprocess.run(
            [command, "ls", "--cluster"], capture_output=True, text=True, timeout=60, user=NOBODY, group=NOBODY, extra_groups=[],
            cwd="/", env=self.environment(KUBECONFIG=closed, HOME=public, XDG_STATE_HOME=public),
        )  # fmt: skip
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertRegex(done.stderr, rf"^adaptdl: [^\n]*{closed}[^\n]*[Pp]ermission denied[^\n]*\n$")
        folder = self.directory / "a-folder"
        folder.mkdir()
        self.refused(folder, str(folder))

    def test_a_malformed_kubeconfig_is_named_with_the_line_of_a_syntax_error(self):
        for name, text, words in (
            ("no-yaml", f"apiVersion: v1\nusers:\n- name: a\n  user: {{token: {SECRET}\n", (":5:",)),
            ("tabs", f"apiVersion: v1\n\tusers: {SECRET}\n", (":2:",)),
            ("a-list", "- a\n- b\n", ()),
            ("binary", f"\x00\x01\x02{SECRET}", ()),
            ("other-types", f"apiVersion: v1\nkind: Config\nusers: {SECRET}\nclusters: 7\ncontexts: x\ncurrent-context: a\n", ()),
        ):
            path = self.directory / name
            path.write_text(text, encoding="utf-8")
            self.refused(path, str(path), *words)

    def test_a_missing_context_cluster_or_user_is_named_in_the_error(self):
        config = json.loads(json.dumps(self.config))
        config["current-context"] = "elsewhere"
        for name, change in (
            ("context", {"current-context": "elsewhere"}),
            ("cluster", {"clusters": []}),
            ("user", {"users": []}),
        ):
            path = self.directory / f"no-{name}"
            path.write_text(json.dumps({**self.config, **change}), encoding="utf-8")
            self.refused(path, "elsewhere" if name == "context" else self.config["contexts"][0]["context"][name])
        self.refused(self.kubeconfig, "nowhere", commands=[(*command, "--context", "nowhere") for command in COMMANDS])

    def test_rejected_credentials_are_reported_but_not_printed(self):
        self.refused(self.with_user("bad-token", token=SECRET), self.config["current-context"])
        self.refused(self.with_user("bad-password", username="me", password=SECRET), self.config["current-context"])

    def test_a_missing_or_failing_credential_plugin_is_named_in_the_error(self):
        plugin = {
            "apiVersion": "client.authentication.k8s.io/v1beta1", "command": "no-such-plugin", "args": None, "env": None,
            "installHint": "Install the plugin of this test.", "provideClusterInfo": False,
        }  # fmt: skip
        self.refused(self.with_user("no-plugin", exec=plugin), "no-such-plugin", "Install the plugin of this test.")
        failing = {**plugin, "command": "sh", "args": ["-c", "echo not logged in >&2; exit 3"]}
        done = self.adaptdl("ls", "--cluster", KUBECONFIG=self.with_user("failing-plugin", exec=failing))
        self.assertEqual((done.returncode, done.stdout), (1, ""), done.stderr)
        *own, line = done.stderr.splitlines()
        self.assertEqual(set(own), {"not logged in"})  # the plugin's own messages come first
        self.assertRegex(line, "^adaptdl: .*plugin 'sh'.* exit code 3")

    def test_expired_credentials_are_reported_as_expired(self):
        if not cluster_support.OWN:
            self.skipTest("only the authority of the tests' own cluster can be asked for an expired certificate")
        key, request, certificate = (self.directory / f"expired.{kind}" for kind in ("key", "csr", "crt"))
        pki = cluster_support.cluster_keeper.STATE / "pki"
        subprocess.run(
            ["openssl", "req", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", request, "-subj", "/O=system:masters/CN=late"],
            check=True, capture_output=True, timeout=60,
        )  # fmt: skip
        authority = self.directory / "authority"
        authority.mkdir()
        (authority / "index").touch()
        settings = authority / "settings"
        settings.write_text(
            f"[ca]\ndefault_ca=a\n[a]\ndatabase={authority}/index\nrand_serial=yes\nnew_certs_dir={authority}\n"
            "default_md=sha256\npolicy=p\n[p]\ncommonName=supplied\norganizationName=supplied\n",
            encoding="utf-8",
        )
        subprocess.run(
            ["openssl", "ca", "-batch", "-config", settings, "-cert", pki / "ca.crt", "-keyfile", pki / "ca.key", "-in", request,
             "-out", certificate, "-startdate", "20200101000000Z", "-enddate", "20200102000000Z", "-notext"],
            check=True, capture_output=True, timeout=60,
        )  # fmt: skip
        data = {"client_certificate_data": base64_of(certificate), "client_key_data": base64_of(key)}
        self.refused(self.with_user("expired", **data), "expired")

    def test_a_forbidden_request_is_reported_with_the_user_name(self):
        self.kubectl("create", "serviceaccount", "nobody")
        path = f"/api/v1/namespaces/{self.namespace}/serviceaccounts/nobody/token"
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": None}}
        token = json.loads(self.kubectl("create", "--raw", path, "-f", "-", text=json.dumps(request)))["status"]["token"]
        user = f"system:serviceaccount:{self.namespace}:nobody"
        self.refused(self.with_user("nobody", token=token), user, "forbidden")

    def test_a_refused_connection_is_reported_with_the_address(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            server = f"https://127.0.0.1:{free.getsockname()[1]}"
            self.refused(self.changed("refused", {"server": server}), server.removeprefix("https://"))

    def test_an_unknown_host_is_named_in_the_error(self):
        self.refused(self.changed("unknown", {"server": "https://cluster.invalid:6443"}), "cluster.invalid")

    @unittest.skipUnless(os.geteuid() == 0, "only root can make a network namespace")
    def test_a_server_that_drops_all_packets_times_out(self):
        path = self.changed("black-hole", {"server": "https://10.99.0.1:6443"})
        prefix = ("unshare", "--net", "sh", "-ec", BLACK_HOLE, "sh")
        self.refused(path, "10.99.0.1", prefix=prefix)

    def test_a_server_that_never_responds_times_out(self):
        with socket.create_server(("127.0.0.1", 0), backlog=64) as silent:
            address = f"127.0.0.1:{silent.getsockname()[1]}"
            self.refused(self.changed("silent", {"server": f"https://{address}"}), address)

    def test_a_server_that_is_not_an_api_server_is_named_in_the_error(self):
        with socket.create_server(("127.0.0.1", 0), backlog=64) as other:
            address = f"127.0.0.1:{other.getsockname()[1]}"

            def answer():
                while True:
                    try:
                        connection = other.accept()[0]
                    except OSError:
                        return
                    with connection:
                        connection.recv(4096)
                        connection.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")

            threading.Thread(target=answer, daemon=True).start()
            self.refused(self.changed("other", {"server": f"https://{address}"}), address)
            other.shutdown(socket.SHUT_RDWR)

    def test_a_certificate_from_an_unknown_authority_is_rejected(self):
        key, certificate = self.directory / "other.key", self.directory / "other.crt"
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", certificate, "-subj", "/CN=other"],
            check=True, capture_output=True, timeout=60,
        )  # fmt: skip
        self.refused(self.changed("wrong-authority", {"certificate-authority-data": base64_of(certificate)}), "certificate")
        path = self.changed("no-authority", {"certificate-authority-data": "bm8gUEVNIGhlcmU="})
        self.refused(path, "certificate")

    def test_ls_without_options_reports_an_unreachable_cluster_in_one_line(self):
        path = self.changed("gone", {"server": "https://127.0.0.1:1"})
        done = self.adaptdl("ls", KUBECONFIG=path)
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertIn("127.0.0.1:1", done.stderr)


if __name__ == "__main__":
    cluster_support.main()
