"""Tests `adaptdl submit`: what it creates, what it rejects before creating anything, and that it leaves nothing behind after a
failure. Also tests the whole way from a project to its pods, with a real registry in the cluster, from which containerd pulls."""

import contextlib
import json
import os
import pty
import re
import secrets
import shutil
import subprocess
import unittest

import cluster_keeper
import cluster_support
import image_archive
from cluster_support import ADAPTDL, PATIENCE, SOURCE_ROOT, ClusterTest, eventually, kubectl

KINDS = ("adaptdljobs", "persistentvolumeclaims")
HELLO = SOURCE_ROOT / "share/adaptdl/examples/hello_world"


def read_terminal(descriptor):
    """Returns what was written to a terminal that no process has open any more."""
    written = b""
    with contextlib.suppress(OSError), open(descriptor, "rb", buffering=0) as terminal:
        while piece := terminal.read(10000):
            written += piece
    return written.decode()


class Submitting(ClusterTest):
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
        # A claim of an earlier test that is being deleted could still be bound to the volume.
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
        """Returns a kubeconfig of a user who has only these permissions in the namespace."""
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


class SubmitTest(Submitting):
    def test_a_job_with_an_image_gets_a_volume_and_works_with_ls_logs_cp_and_delete(self):
        self.add_storage()
        self.make_file(self.job())
        done = self.submit("--image", cluster_support.IMAGE, "--max-replicas", 3, "--", "one", "--two")
        name = done.stdout.strip()
        self.assertRegex(name, r"\Ahello-[a-z0-9]{5}\Z")
        job = self.get("adaptdljob", name)
        self.assertEqual(job["spec"]["maxReplicas"], 3)
        main = job["spec"]["template"]["spec"]["containers"][0]
        self.assertEqual((main["image"], main["args"]), (cluster_support.IMAGE, ["one", "--two"]))
        (claim,) = self.get("persistentvolumeclaims")
        self.assertEqual(claim["spec"]["storageClassName"], self.storage)
        self.assertEqual(claim["spec"]["accessModes"], ["ReadWriteMany"])
        (owner,) = claim["metadata"]["ownerReferences"]
        self.assertEqual((owner["kind"], owner["uid"]), ("AdaptDLJob", job["metadata"]["uid"]))
        self.make_pods(job, 2)
        self.wait_for_pods(name)
        self.set_status(name, phase="Running", readyReplicas=2)
        self.assertIn(name, self.adaptdl("ls").stdout)
        # Each replica truncates the file first.
        self.wait_for("both replicas have written", lambda: self.adaptdl("logs", name).stdout.count("written") == 2)
        done = self.adaptdl("cp", f"{name}:/adaptdl/share/foo.txt", "foo.txt")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual((self.directory / "foo.txt").read_text(), "done\n")
        self.assertEqual(self.adaptdl("delete", name).returncode, 0)
        self.wait_for("its claim goes with it", lambda: not self.left())

    def test_several_jobs_in_one_file_are_submitted_and_printed_as_json(self):
        self.make_file(self.job(), self.job())
        done = self.submit("--image", cluster_support.IMAGE, "--json", "--name", "mine", "--min-replicas", 1)
        said = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertEqual(len(said), 2)
        for one in said:
            self.assertRegex(one["name"], r"\Amine-[a-z0-9]{5}\Z")
            self.assertEqual(self.get("adaptdljob", one["name"])["metadata"]["uid"], one["uid"])
            self.assertEqual(self.get("persistentvolumeclaim", one["claim"])["metadata"]["labels"], {"adaptdl/job": one["name"]})
            self.assertEqual((one["image"], one["namespace"]), (cluster_support.IMAGE, self.namespace))

    def test_on_a_terminal_submit_suggests_the_logs_command(self):
        self.make_file(self.job())
        ours, theirs = pty.openpty()
        done = subprocess.run([ADAPTDL, "submit", self.project, "--image", cluster_support.IMAGE], stdin=subprocess.DEVNULL, stdout=theirs,
                              stderr=subprocess.PIPE, timeout=PATIENCE, env=self.environment(TERM="xterm"))  # fmt: skip
        os.close(theirs)
        text = read_terminal(ours)
        self.assertEqual(done.returncode, 0, done.stderr)
        name = re.search(r"Submitted job (\S+) to namespace", text).group(1)
        self.assertIn(f"adaptdl logs {name} --follow", text)

    def test_follow_prints_logs_until_the_job_ends_and_its_result_is_the_exit_code(self):
        for phase, code in (("Succeeded", 0), ("Failed", 1)):
            with self.subTest(phase):
                self.add_storage()
                # The program exits with code 0, because the reason for a replica's failure would precede the job's own
                # message.
                command = "echo began; sleep 1; echo $ADAPTDL_CHECKPOINT_PATH; until [ -e /tmp/end ]; do sleep 0.1; done"
                self.make_file(self.job(command))
                running = self.start("submit", self.project, "--image", cluster_support.IMAGE, "--follow")
                name = running.wait_for(r"^hello-\w+$").group(0)
                self.make_pods(self.get("adaptdljob", name), 1)
                running.wait_for(r"^\[0\] began$")
                running.wait_for(r"^\[0\] /adaptdl/checkpoint$")
                self.set_status(name, phase=phase, reason="Because", message="of this")
                # The container may end before kubectl receives the result of its command.
                self.kubectl("exec", self.pods_of(name)[0]["metadata"]["name"], "--", "touch", "/tmp/end", check=False)
                self.assertEqual(running.finish(), code, running.text())
                if code:
                    self.assertRegex(running.err[-1], rf"^adaptdl: error: job {name} failed: .*of this")

    def test_interrupted_and_timed_out_waits_do_not_stop_the_job(self):
        self.make_file(self.job())
        running = self.start("submit", self.project, "--image", cluster_support.IMAGE, "--wait")
        name = running.wait_for(r"^hello-\w+$").group(0)
        self.assertEqual(running.stop(), 130)
        self.assertRegex(running.text(), f"job {name} continues")
        done = self.submit("--image", cluster_support.IMAGE, "--wait", "--timeout", "3s", code=1)
        self.assertRegex(done.stderr, r"timed out waiting for job .*; the job was not stopped")
        self.assertEqual(len(self.get("adaptdljobs")), 2)

    def test_a_dry_run_creates_nothing_and_prints_manifests_that_kubectl_accepts(self):
        self.make_file(self.job())
        for how in ("--dry-run", "--dry-run=server"):
            for form in ("yaml", "json"):
                done = self.submit("--image", cluster_support.IMAGE, how, "-o", form, "--checkpoint-storage-class", self.storage)
                self.assertEqual(self.left(), [])
                made = self.kubectl("create", "--dry-run=client", "-o", "name", "-f", "-", text=done.stdout)
                self.assertRegex(made, r"\Apersistentvolumeclaim/adaptdl-pvc-\S+\nadaptdljob\S*/hello-\w+\n\Z")

    def test_a_dry_run_on_the_client_does_not_contact_the_cluster(self):
        self.make_file(self.job())
        nowhere = self.project / "kubeconfig"
        done = self.submit("--image", "x", "--dry-run=client", KUBECONFIG=self.make_dead(nowhere))
        self.assertIn("kind: AdaptDLJob", done.stdout)

    @staticmethod
    def make_dead(path):
        path.write_text(json.dumps({
            "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}], "users": [{"name": "u", "user": {}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}], "current-context": "x",
        }))  # fmt: skip
        return path

    def test_submit_rejects_invalid_input_before_creating_anything(self):
        image = ("--image", cluster_support.IMAGE)
        self.assertRegex(self.refusal(*image, code=2), "job file .*adaptdljob.yaml not found")
        self.make_file(self.job(spec={"minReplicas": 3, "maxReplicas": 2}))
        self.assertRegex(self.refusal(*image), r"spec.minReplicas \(3\) must not be greater")
        self.make_file(self.job())
        self.assertRegex(self.refusal(code=2), "has no Dockerfile, and none of meson.build, .*--image")
        self.assertRegex(self.refusal(*image, "--checkpoint-storage-class", "gone"), f"storage class 'gone' not found; available: .*{self.storage}")
        self.assertRegex(self.refusal(*image, "--tensorboard", "gone"), "PersistentVolumeClaim 'adaptdl-tensorboard-gone' not found .*tensorboard create gone")
        self.assertRegex(self.refusal(*image, ADAPTDL_SUBMIT_REPO_CREDS="gone"), "Secret 'gone' not found .*ADAPTDL_SUBMIT_REPO_CREDS")
        self.assertRegex(self.refusal(*image, "--namespace", "gone"), "gone")
        self.assertRegex(self.refusal(*image, "--checkpoint-storage-size", "much", code=2), "invalid --checkpoint-storage-size 'much': expected an amount of storage")
        self.make_file(self.job(volumeMounts=[{"name": "none", "mountPath": "/x"}]))
        self.assertRegex(self.refusal(*image), "the pods of job .* would be rejected: .*volumeMounts")
        self.assertEqual(self.left(), [])

    def test_a_name_already_in_use_is_rejected_and_the_existing_job_is_kept(self):
        job = self.job()
        job["metadata"] = {"name": "fixed"}
        self.make_file(job)
        self.submit("--image", cluster_support.IMAGE)
        before = self.left()
        self.assertRegex(self.refusal("--image", cluster_support.IMAGE), "job 'fixed' already exists in namespace")
        self.assertEqual(self.left(), before)

    def test_without_permission_to_create_both_jobs_and_claims_neither_is_created(self):
        self.make_file(self.job())
        most = ["get", "list", "create", "patch", "delete"]
        named = ("--image", cluster_support.IMAGE, "--checkpoint-storage-class", self.storage)
        for jobs, claims in ((most, ["get", "patch", "delete"]), (["get", "delete"], most)):
            self.assertRegex(self.refusal(*named, KUBECONFIG=self.as_user(self.rules(jobs, claims))), "forbidden")
            self.assertEqual(self.left(), [])

    def test_without_permission_to_set_the_owner_of_a_claim_nothing_is_left_behind(self):
        self.make_file(self.job())
        rules = self.rules(["get", "create", "delete"], ["get", "create", "delete"])
        named = ("--image", cluster_support.IMAGE, "--checkpoint-storage-class", self.storage)
        self.assertRegex(self.refusal(*named, KUBECONFIG=self.as_user(rules)), "forbidden.*patch|patch.*forbidden")
        self.assertEqual(self.left(), [])

    def test_submitting_two_jobs_with_quota_for_one_leaves_nothing_behind(self):
        quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}}
        for what in ("count/adaptdljobs.adaptdl.petuum.com", "persistentvolumeclaims"):
            self.apply({**quota, "spec": {"hard": {what: "1"}}})
            self.wait_for("the quota is counted", lambda: self.get("resourcequota", "q").get("status", {}).get("used") == {what: "0"})
            self.make_file(self.job(), self.job())
            self.assertRegex(self.refusal("--image", cluster_support.IMAGE), "exceeded quota: q")
            self.wait_for("nothing is left", lambda: self.left() == [])
            self.kubectl("delete", "resourcequota", "q")


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


class RegistryTest(WithRegistry):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.push_python()

    def setUp(self):
        super().setUp()
        shutil.copytree(HELLO, self.project, dirs_exist_ok=True)

    def test_hello_world_is_built_pushed_pulled_by_both_nodes_and_run(self):
        self.add_storage()
        name = self.submit().stdout.strip()
        self.assertRegex(self.image_of(name), r"\Alocalhost:32000/adaptdl-submit@sha256:[0-9a-f]{64}\Z")
        self.make_pods(self.get("adaptdljob", name), 2)
        pods = self.wait_for_pods(name)
        self.assertEqual({pod["spec"]["nodeName"] for pod in pods}, {"node0", "node1"})
        self.set_status(name, phase="Running", readyReplicas=2)
        # `ls` accepts cached objects from the API server, which may be slightly out of date.
        self.wait_for("it is listed as running", lambda: re.search(rf"(?m)^{name} .* running ", self.adaptdl("ls").stdout))
        self.wait_for("both replicas greet", lambda: self.adaptdl("logs", name).stdout.count("Hello, world!") == 2)

        def copied():
            done = self.adaptdl("cp", f"{name}:/adaptdl/share/foo.txt", "foo.txt")
            return done.returncode == 0 and (self.directory / "foo.txt").read_text() == "Hello, world!"

        # Each replica truncates the file, and writes it a moment after the greeting.
        self.wait_for("its file is copied", copied)

    def test_an_unchanged_project_keeps_its_image_and_a_changed_one_gets_a_new_image(self):
        first, second = (self.image_of(self.submit().stdout.strip()) for _ in range(2))
        self.assertEqual(first, second)
        program = self.project / "hello_world.py"
        program.write_text(program.read_text().replace("Hello", "Bye"), encoding="utf-8")
        self.assertNotEqual(self.image_of(self.submit().stdout.strip()), first)

    def test_a_repository_and_pull_secret_from_the_environment_are_used(self):
        self.kubectl("create", "secret", "docker-registry", "creds", "--docker-server=x", "--docker-username=u", "--docker-password=p")
        job = self.get("adaptdljob", self.submit(ADAPTDL_SUBMIT_REPO="localhost:32000/team/own", ADAPTDL_SUBMIT_REPO_CREDS="creds").stdout.strip())
        pod = job["spec"]["template"]["spec"]
        self.assertRegex(pod["containers"][0]["image"], r"\Alocalhost:32000/team/own@sha256:")
        self.assertEqual(pod["imagePullSecrets"], [{"name": "creds"}])

    def test_unknown_storage_classes_are_rejected_before_the_build_starts(self):
        (self.project / "Dockerfile").write_text("FROM nowhere.invalid/none\n", encoding="utf-8")
        refused = self.refusal("--checkpoint-storage-class", "gone")
        self.assertRegex(refused, "storage class 'gone' not found")

    def test_a_build_that_fails_creates_nothing(self):
        with open(self.project / "Dockerfile", "a", encoding="utf-8") as dockerfile:
            dockerfile.write("COPY missing /\n")
        done = self.submit(code=1)
        self.assertRegex(done.stderr, r"Dockerfile:4: .*missing")
        self.assertEqual(self.left(), [])

    def test_a_project_without_a_dockerfile_is_rejected_unless_one_is_given(self):
        (self.project / "Dockerfile").unlink()
        self.assertRegex(self.refusal(code=2), "has no Dockerfile")
        (self.project / "requirements.txt").write_text("", encoding="utf-8")
        (self.project / ".dockerignore").unlink()
        stand_in = self.project / "pip.Dockerfile"
        stand_in.write_text((SOURCE_ROOT / "share/adaptdl/dockerfiles/python.Dockerfile").read_text().replace("RUN python3 -m pip install", "RUN true"))
        self.assertRegex(self.submit("-d", stand_in).stdout, r"\Ahello-world-\w+\n\Z")


if __name__ == "__main__":
    cluster_support.main()
