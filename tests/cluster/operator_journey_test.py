"""Tests a whole session of a user: the operator is installed, and two jobs are submitted, which share the GPUs, grow and shrink, and
are inspected with all commands until they end.

If $ADAPTDL_JOURNEY is set to a file, the session is written to it in the form of the page docs/journey.md.
"""

import os
import pathlib
import re
import subprocess
import textwrap
import time
import urllib.request

import cluster_keeper
import cluster_support
import image_archive
from cluster_support import ADAPTDL, SOURCE_ROOT
from operator_jobs_support import ONE_GPU
from operator_support import OperatorTest, library_path, shared_libraries, write_image
from submit_support import Submitting

DIGITS = pathlib.Path(os.environ["DIGITS_PROGRAM"])
DATASET = SOURCE_ROOT / "share/adaptdl/datasets/digits"
OPERATOR_IMAGE = "registry.example.com/adaptdl-operator:0.1.0"
DIGITS_IMAGE = "registry.example.com/digits:0.1.0"
TENSORBOARD_IMAGE = "registry.example.com/tensorboard:1"
NAMESPACE = "adaptdl"  # of the operator
GPUS = 4
PATIENCE = 600
EPOCHS = 800
PAGE = """# A cluster in use

This page shows a session in a cluster, from the installation of the operator to the end of two
jobs. The session was recorded in a real cluster with two nodes, using the command
`{command}`. The cluster's
four GPUs are virtual: they share two processor cores. `[N s]` is the number of seconds since the
beginning of the session.
"""


class Journey:
    """Runs shell commands and records their output."""

    def __init__(self, directory, environment):
        self.directory, self.environment = directory, environment
        self.began = time.monotonic()
        self.page = [PAGE.format(command="ADAPTDL_JOURNEY=docs/journey.md meson test -C build --benchmark operator-journey")]

    def say(self, text):
        self.page.append(textwrap.dedent(text).strip() + "\n")

    def show(self, command, output):
        stamp = f"[{time.monotonic() - self.began:.0f} s] $ {command}"
        self.page.append("```text\n" + "\n".join(line.rstrip() for line in [stamp, *output.splitlines()]) + "\n```\n")

    def run(self, command, shown=lambda output: output):
        """Runs the command and records it with its output, which `shown` may shorten. Returns the whole output."""
        done = subprocess.run(
            ["bash", "-c", "set -o pipefail; " + command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, cwd=self.directory, env=self.environment, timeout=PATIENCE,
        )  # fmt: skip
        if done.returncode:
            raise AssertionError(f"{command} exited with code {done.returncode}:\n{done.stdout}")
        self.show(command, shown(done.stdout))
        return done.stdout


def first_and_last(count):
    """Returns a function that keeps only the first and the last `count` lines of a text."""

    def shorten(output):
        lines = output.splitlines()
        return output if len(lines) <= 2 * count else "\n".join([*lines[:count], "...", *lines[-count:]])

    return shorten


class JourneyTest(Submitting, OperatorTest):
    image = None
    operator_namespace = NAMESPACE

    def setUp(self):
        OperatorTest.setUp(self)
        Submitting.setUp(self)
        self.set_gpus(GPUS, "node0")
        self.set_gpus(0, "node1")
        archive = self.directory / "image.tar"
        write_image(archive, name=OPERATOR_IMAGE)
        cluster_keeper.load(archive)
        libcurl = library_path("libcurl.so.4")
        files = {path: path for path in [libcurl, *shared_libraries(DIGITS, libcurl)]}
        files.update({f"/usr/local/share/digits/{file.name}": file for file in DATASET.iterdir()})
        image_archive.write(archive, DIGITS_IMAGE, {"/usr/bin/digits": DIGITS, **files})
        cluster_keeper.load(archive)
        image_archive.write(archive, TENSORBOARD_IMAGE, {"usr/bin/tensorboard": os.environ["TENSORBOARD_SERVER"]})
        cluster_keeper.load(archive)
        archive.unlink()
        programs = self.directory / "bin"
        programs.mkdir()
        (programs / "adaptdl").symlink_to(ADAPTDL)
        self.journey = Journey(self.project, self.environment(PATH=f"{programs}:{os.environ['PATH']}"))

    def make_project(self):
        job = self.job(spec={"maxReplicas": GPUS}, resources=ONE_GPU)
        job["metadata"] = {"generateName": "digits-"}
        template = job["spec"]["template"]["spec"]
        template["terminationGracePeriodSeconds"] = 60
        template["containers"][0].update(
            command=["digits", "--data", "/usr/local/share/digits", "--autoscale-bsz", "--log-json", "/adaptdl/share/epochs.json"],
            env=[{"name": "OMP_NUM_THREADS", "value": "1"}],
        )
        self.make_file(job)

    def install(self):
        self.addCleanup(self.kubectl_in, "default", "delete", "namespace", NAMESPACE, "--wait=false", "--ignore-not-found")
        manifests = self.adaptdl("operator", "manifests", "--image", OPERATOR_IMAGE).stdout
        parsed = self.kubectl_in(NAMESPACE, "create", "--dry-run=client", "-o", "json", "-f", "-", text=manifests)
        type(self).installed = [item for item in self._objects(parsed) if item["kind"] not in ("CustomResourceDefinition", "Namespace")]
        self.addCleanup(self.uninstall)
        self.journey.run(
            f"adaptdl operator manifests --image {OPERATOR_IMAGE} --set interval=10s --set restartCost=1s | kubectl apply -f -", first_and_last(3)
        )
        self.journey.run(f"kubectl -n {NAMESPACE} rollout status deployment/adaptdl-operator", lambda output: output.splitlines()[-1])

    def submit_digits(self, name, epochs):
        self.add_storage()
        command = f"adaptdl submit . --image {DIGITS_IMAGE} --name {name} --tensorboard mine -- --epochs {epochs}"
        return self.journey.run(command).split()[-1]

    def wait_for_size(self, name, min_replicas):
        """Waits until at least `min_replicas` replicas are running. Returns their number."""

        def size():
            status = self.status(name)
            self.assertNotIn(status.get("phase"), ("Failed", "Succeeded"), status)
            ready = status.get("readyReplicas") or 0
            return ready if ready == status.get("replicas") and ready >= min_replicas else None

        return self.wait_for(f"{name} has at least {min_replicas} replicas", size, PATIENCE)

    def test_a_user_installs_the_operator_and_runs_two_jobs_that_share_the_gpus(self):
        journey = self.journey
        journey.say("## Install the operator")
        self.install()
        self.make_project()
        journey.say("## Submit a job")
        storage = self.make_shared_class("adaptdl-tensorboard-mine")
        self.addCleanup(self.kubectl, "delete", "deployments,services,persistentvolumeclaims", "-l", "adaptdl/tensorboard=mine")
        journey.run(f"adaptdl tensorboard create mine --image {TENSORBOARD_IMAGE} --storageclass {storage}")
        first = self.submit_digits("first", EPOCHS)
        self.wait_for_size(first, 1)
        journey.run("adaptdl ls")
        follow = self.start("logs", first, "--follow")
        journey.say("The job's throughput has been measured, so the scheduler now runs it on more replicas:")
        self.wait_for_size(first, 2)
        journey.run("adaptdl top")
        journey.say("## Share the GPUs")
        second = self.submit_digits("second", EPOCHS // 10)
        self.wait_for_size(second, 1)
        shared = self.wait_for_size(first, 1)
        journey.run("adaptdl top")
        journey.run("adaptdl ls")
        journey.say("## View results")
        self.wait_for("epochs are logged", lambda: sum("epoch" in line for line in follow.out) > 10, PATIENCE)
        journey.run(f"adaptdl cp {first}:/adaptdl/share/epochs.json . && tail -n 1 epochs.json")
        proxy = self.start("tensorboard", "proxy", "mine")
        line = proxy.wait_for(r"^Serving TensorBoard instance mine at http://\S+$")[0]
        journey.show("adaptdl tensorboard proxy mine", line)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(line.split()[-1], timeout=30) as page:
            self.assertIn(b"<!doctype html>", page.read())
        self.assertEqual(proxy.stop(), 0)
        journey.say("## Wait for the jobs to finish")
        self.wait_for_phase(second, "Succeeded", patience=PATIENCE)
        journey.say(f"Job {second} has ended and its GPUs are free, so {first} runs on more replicas again:")
        self.wait_for_size(first, min(shared + 1, GPUS))
        journey.run("adaptdl top")
        self.wait_for_phase(first, "Succeeded", patience=PATIENCE)
        self.assertEqual(follow.finish(), 0, follow.text())
        epochs = [line for line in follow.out if re.search(r"\bepoch \d+ ", line)]
        replicas = [match[1] for line in epochs if (match := re.search(r"replicas (\d+)", line))]
        self.assertEqual(len(epochs), EPOCHS)
        changes = [line for index, line in enumerate(epochs) if index == 0 or replicas[index] != replicas[index - 1]]
        self.assertGreaterEqual(len(changes), 3, changes)
        journey.show(f"adaptdl logs {first} --follow    # only the first epoch with each new set of replicas, and the last epoch", "\n".join([*changes, epochs[-1]]))
        journey.run("adaptdl ls")
        if path := os.environ.get("ADAPTDL_JOURNEY"):
            (SOURCE_ROOT / path).write_text("\n".join(journey.page), encoding="utf-8")
        else:
            print("\n".join(journey.page))


if __name__ == "__main__":
    cluster_support.main()
