"""Tests the complete path of `adaptdl submit` from a project to its pods: it builds an image and pushes it to a real
registry in the cluster, from which containerd pulls."""

import re
import shutil

import cluster_support
from cluster_support import SOURCE_ROOT
from submit_support import HELLO, WithRegistry


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
        self.wait_for("both replicas have logged the greeting", lambda: self.adaptdl("logs", name).stdout.count("Hello, world!") == 2)

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
