"""Support for tests of `adaptdl submit`: projects with a job file, volumes, permissions, and a registry in the
cluster."""

import json
import re
import secrets
import shutil
import subprocess
import unittest

import cluster_keeper
import cluster_support
import image_archive
from cluster_jobs_support import ClusterJobsTest
from cluster_support import ADAPTDL, PATIENCE, SOURCE_ROOT, eventually, kubectl

KINDS = ("adaptdljobs", "persistentvolumeclaims")
HELLO = SOURCE_ROOT / "share/adaptdl/examples/hello_world"


class Submitting(ClusterJobsTest):
    """Base class of tests that submit the project `self.project`."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.storage = f"{cls.namespace}-shared"
        kubectl("apply", "-f", "-", text=json.dumps({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": cls.storage},
            "provisioner": "tests.example.com/nfs",
        }))  # fmt: skip
        cls.addClassCleanup(kubectl, "delete", "storageclass", cls.storage)

    def setUp(self):
        self.project = self.directory / self._testMethodName
        self.project.mkdir()
        self.addCleanup(self.kubectl, "delete", "adaptdljobs,persistentvolumeclaims,resourcequotas", "--all", "--wait=false")

    def make_file(self, *jobs, name="adaptdljob.yaml"):
        path = self.project / name
        path.write_text("\n---\n".join(json.dumps(job) for job in jobs), encoding="utf-8")
        return path

    def job(self, command="echo done > $ADAPTDL_SHARE_PATH/foo.txt; echo written; sleep 100000", spec=None, **container):
        main = {"name": "main", "command": ["sh", "-c", command, "sh"], **container}
        return {
            "apiVersion": "adaptdl.petuum.com/v1", "kind": "AdaptDLJob", "metadata": {"generateName": "hello-"},
            "spec": {"template": {"spec": {"terminationGracePeriodSeconds": 1, "containers": [main]}}, **(spec or {})},
        }  # fmt: skip

    def add_storage(self):
        """Creates a volume for the next claim of the storage class. Returns its directory, which the test can access."""
        # Otherwise, the volume could be bound to a claim that an earlier test has left and that is still being deleted.
        self.wait_for("no claim waits for a volume", lambda: not self.has_waiting_claim())
        name = f"{self.namespace}-{secrets.token_hex(4)}"
        self.volumes.append(name)
        path = self.directory / "volumes" / name
        self.apply({
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
            "spec": {
                "storageClassName": self.storage, "accessModes": ["ReadWriteMany"], "capacity": {"storage": "10Gi"},
                "persistentVolumeReclaimPolicy": "Retain", "hostPath": {"path": str(path), "type": "DirectoryOrCreate"},
            },
        })  # fmt: skip
        return path

    def has_waiting_claim(self):
        return any(claim["status"].get("phase") != "Bound" for claim in self.get("persistentvolumeclaims"))

    def submit(self, *arguments, code=0, **more):
        done = self.adaptdl("submit", self.project, *arguments, **more)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def refusal(self, *arguments, code=1, **more):
        done = self.submit(*arguments, code=code, **more)
        self.assertEqual(done.stdout, "")
        self.assertRegex(done.stderr, r"\Aadaptdl: error: [^\n]+\n\Z")
        return done.stderr

    def left(self):
        return [item["metadata"]["name"] for kind in KINDS for item in self.get(kind)
                if not item["metadata"].get("deletionTimestamp")]

    def as_user(self, rules):
        """Returns a kubeconfig for a user who has only these permissions in the namespace."""
        user = f"user-{secrets.token_hex(4)}"
        subject = {"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}
        self.apply(
            {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": user}, "rules": rules},
            {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": user}, "subjects": [subject],
             "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": user}},
        )  # fmt: skip
        config = json.loads(kubectl("config", "view", "--raw", "--flatten", "-o", "json", kubeconfig=self.kubeconfig))
        for entry in config["users"]:
            entry["user"]["as"] = user
        path = self.project / f"{user}.json"
        path.write_text(json.dumps(config), encoding="utf-8")
        rule = rules[0]
        self.wait_for_right(user, rule["verbs"][0], rule["resources"][0])
        return path

    @staticmethod
    def rules(jobs, claims):
        return [
            {"apiGroups": ["adaptdl.petuum.com"], "resources": ["adaptdljobs"], "verbs": jobs},
            {"apiGroups": [""], "resources": ["persistentvolumeclaims"], "verbs": claims},
        ]


def files_of_python(root):
    """Copies the system's Python with its library and the programs of busybox to a directory, to replace the image python:3.11-slim."""
    version = subprocess.run(["/usr/bin/python3", "-c", "import sys; print('python%d.%d' % sys.version_info[:2])"],
                             capture_output=True, text=True, check=True).stdout.strip()  # fmt: skip
    program = root / "usr/local/bin/python3"
    program.parent.mkdir(parents=True)
    shutil.copy(f"/usr/bin/{version}", program)
    for library in re.findall(r"(/\S+) \(0x", subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout):
        target = root / library.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(library, target)
    unused = shutil.ignore_patterns("__pycache__", "test", "dist-packages", "idlelib", "tkinter", "config-*", "lib2to3", "ensurepip")
    shutil.copytree(f"/usr/lib/{version}", root / "usr/lib" / version, ignore=unused)
    (root / "bin").mkdir()
    shutil.copy(image_archive.BUSYBOX, root / "bin/busybox")
    for applet in ("sh", "head", "tail", "cat", "dd", "stat", "tar", "sleep", "sha256sum", "ls", "mkdir", "rm", "mv", "chmod", "touch"):
        (root / "bin" / applet).symlink_to("busybox")


class WithRegistry(Submitting):
    """Base class of tests with Debian's registry in the cluster, which is configured like the one in share/deploy."""

    @classmethod
    def setUpClass(cls):
        if not cluster_support.OWN:
            raise unittest.SkipTest("only the tests' own cluster can be given a registry")
        if not shutil.which("docker-registry"):
            raise unittest.SkipTest("docker-registry is missing; ./bootstrap test installs it")
        super().setUpClass()
        cls.registry = "localhost/adaptdl-test-registry:1"
        config = cls.directory / "registry.json"  # JSON is YAML
        config.write_text(json.dumps({
            "version": "0.1", "log": {"accesslog": {"disabled": True}}, "http": {"addr": ":5000", "secret": "of the test"},
            "storage": {"filesystem": {"rootdirectory": "/tmp/registry"}},
        }))  # fmt: skip
        program = shutil.which("docker-registry")
        libraries = re.findall(r"(/\S+) \(0x", subprocess.run(["ldd", program], capture_output=True, text=True, check=False).stdout)
        archive = cls.directory / "registry.tar"
        image_archive.write(archive, cls.registry, {"usr/bin/docker-registry": program, "config.yml": config, **{path: path for path in libraries}})
        cluster_keeper.load(archive)
        labels = {"app": "docker-registry", "release": cls.namespace}
        container = {"name": "registry", "image": cls.registry, "command": ["/usr/bin/docker-registry", "serve", "/config.yml"],
                     "ports": [{"containerPort": 5000}], "readinessProbe": {"httpGet": {"path": "/v2/", "port": 5000}, "periodSeconds": 1}}  # fmt: skip
        for one in (
            {"kind": "Pod", "metadata": {"name": "registry", "labels": labels}, "spec": {"containers": [container]}},
            {"kind": "Service", "metadata": {"name": "adaptdl-registry", "labels": labels},
             "spec": {"type": "NodePort", "selector": labels,
                      "ports": [{"name": "registry", "port": 5000, "targetPort": 5000, "nodePort": 32000}]}},
        ):  # fmt: skip
            cls.kubectl_in(cls.namespace, "apply", "-f", "-", text=json.dumps({"apiVersion": "v1", **one}))
        cls.addClassCleanup(cls.kubectl_in, cls.namespace, "delete", "service", "adaptdl-registry")
        cls.kubectl_in(cls.namespace, "wait", "--for=condition=Ready", "pod/registry", f"--timeout={PATIENCE}s")
        cls.cache = {"ADAPTDL_BUILD_CACHE": cls.directory / "cache"}
        cls.mirror = ("--mirror", "docker.io=http://localhost:32000")

    @classmethod
    def push_python(cls):
        """Pushes an image with the system's Python under the official name of hello_world's base image."""
        root = cls.directory / "python"
        files_of_python(root / "files")
        (root / "Dockerfile").write_text("FROM scratch\nCOPY files /\nENV PATH=/usr/local/bin:/bin\n", encoding="utf-8")
        cls.push(root, "python:3.11-slim")

    @classmethod
    def push(cls, project, name):
        """Builds an image without RUN and pushes it to the registry under an official name."""

        def push():
            return subprocess.run(
                [ADAPTDL, "build", project, "-t", f"localhost:32000/library/{name}", "--push"], capture_output=True, text=True,
                timeout=PATIENCE, env=cluster_support.clean_environment(**cls.cache), check=False)  # fmt: skip

        done = eventually(lambda: (pushed := push()).returncode == 0 and pushed, 60) or push()
        if done.returncode:
            raise AssertionError(done.stderr)

    def submit(self, *arguments, **more):
        return super().submit(*self.mirror, *arguments, **{**self.cache, **more})

    def image_of(self, name):
        return self.get("adaptdljob", name)["spec"]["template"]["spec"]["containers"][0]["image"]
