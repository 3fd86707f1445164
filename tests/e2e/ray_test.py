"""Tests jobs on a real Ray cluster: they adapt to nodes that join, drain and die, and obey commands from other machines."""

import collections
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest
import zipfile

import python_peer  # in this directory
import ray_support
from local_network import leave_network
from run_support import ADAPTDL, eventually

PROGRAM = os.environ["RESCALE_PROGRAM"]
SAMPLES, BATCH = 240, 12
PATIENCE = 120
STANDARD_LIBRARY_PROGRAM = pathlib.Path(__file__).with_name("elastic_program.py")
PYTHON_PROGRAM = pathlib.Path(__file__).with_name("python_elastic_program.py")
PYTHON_SAMPLES = 8 * 256  # across all epochs


def tree(directory):
    """Returns the kind, mode and contents of each file, by its path below the directory."""
    def value(path):
        return os.readlink(path) if path.is_symlink() else (path.stat().st_mode, path.is_file() and path.read_bytes())
    return {str(path.relative_to(directory)): value(path) for path in directory.rglob("*")}


@unittest.skipIf(os.geteuid() != 0, "requires root, to mount a session directory for each node")
class RayTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.python = ray_support.python()
        leave_network()

    def setUp(self):
        # The path must be short, because Ray creates its sockets below it.
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="ar-", dir="/tmp" if len(tempfile.gettempdir()) > 28 else None))
        self.addCleanup(shutil.rmtree, self.directory, ignore_errors=True)
        self.cluster = ray_support.RayCluster(
            self.python, self.directory, HOME=str(self.directory), XDG_STATE_HOME=str(self.directory / "state"), XDG_RUNTIME_DIR=str(self.directory),
            OMP_NUM_THREADS="1")
        self.addCleanup(self.cluster.end)
        self.samples, self.until = self.directory / "samples", self.directory / "until"
        self.samples.touch()
        self.project = self.directory / "project"
        self.project.mkdir()
        shutil.copy(PROGRAM, self.project / "program")
        (self.project / ".dockerignore").write_text("data\n")
        (self.project / "data").write_text("not for the cluster")

    def adaptdl(self, command, *arguments, code=0, error=None):
        """Runs a command as on a machine without Python, and returns its standard output. If `error` is given, standard error must
        be a single line that matches this pattern."""
        done = subprocess.run([ADAPTDL, command, "--ray", self.cluster.url, *map(str, arguments)], capture_output=True, text=True,
                              timeout=PATIENCE, env={"PATH": "", "HOME": str(self.directory)})
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        if error:
            self.assertRegex(done.stderr, rf"\Aadaptdl: error: [^\n]*{error}[^\n]*\n\Z")
        return done.stdout

    def submit(self, *options):
        program = ["--", "./program", "--epochs", "1000000", "--samples", self.samples, "--until", self.until, "--step-time", "200"]
        self.job = self.adaptdl("submit", "--gpus", 0, *options, self.project, *program).strip()

    def state(self):
        [job] = json.loads(self.adaptdl("ls", "--json", self.job))
        return job["state"]

    def text(self):
        return self.adaptdl("logs", self.job)

    def training(self):
        """Returns the processes that trained on the last few batches."""
        return {line.split()[0] for line in self.samples.read_text().splitlines()[-12:]}

    def wait_for(self, replicas):
        """Waits until exactly that many replicas are training."""
        self.samples_before = len(self.samples.read_text().splitlines())
        enough = lambda: len(self.samples.read_text().splitlines()) > self.samples_before + 12 and len(self.training()) == replicas
        self.assertTrue(eventually(enough, PATIENCE), self.text())

    def wait_for_output(self, text):
        self.assertTrue(eventually(lambda: text in self.text(), PATIENCE), self.text())

    def wait_for_state(self, state):
        self.assertTrue(eventually(lambda: self.state() == state, PATIENCE), self.text())

    def test_a_job_grows_with_the_cluster_leaves_a_draining_node_and_survives_a_dead_one(self):
        self.submit("--name", "job", "--max-cluster-size", 3, "--no-checkpoint")
        self.assertRegex(self.job, r"\Ajob-\w{5}\Z")
        self.wait_for_output("adaptdl: no node of the cluster has a free device")
        nodes = [self.cluster.add_node()]
        self.wait_for(1)
        nodes += [self.cluster.add_node(), self.cluster.add_node()]
        self.wait_for(3)
        self.cluster.drain(nodes[0], 60)
        self.wait_for(2)
        self.cluster.kill(nodes[1])
        self.wait_for(1)
        nodes.append(self.cluster.add_node())
        self.wait_for(2)
        self.until.touch()
        self.wait_for_state("Succeeded")
        times = collections.Counter()
        for line in self.samples.read_text().splitlines():
            _, epoch, *samples = line.split()
            times.update((epoch, sample) for sample in samples)
        # The step in progress when the node died was repeated, and the replica there may not have reported its last samples.
        epochs = 1 + max(int(epoch) for epoch, _ in times)
        self.assertGreaterEqual(len(times), epochs * SAMPLES - BATCH)
        self.assertLessEqual(sum(times.values()), epochs * SAMPLES + BATCH)

    def test_without_a_shared_directory_checkpoints_are_kept_on_the_head_node(self):
        checkpoints = self.directory / "t" / "checkpoints"  # each node has a directory `t` of its own
        options = ["--max-replicas", 1, "--checkpoint-path", checkpoints, "--copy-checkpoints"]
        node = self.cluster.add_node()
        self.submit(*options)
        self.wait_for(1)
        self.adaptdl("delete", self.job)
        verify = subprocess.run([ADAPTDL, "checkpoint", "verify", checkpoints], capture_output=True, text=True)
        self.assertEqual(verify.returncode, 0, verify.stdout + verify.stderr)
        self.cluster.kill(node)
        self.cluster.add_node()
        self.submit(*options)
        self.wait_for(1)
        self.until.touch()
        self.wait_for_state("Succeeded")
        self.assertIn(f"continuing from '{checkpoints}/checkpoint-0'", self.text())
        times = collections.Counter(tuple(entry) for line in self.samples.read_text().splitlines()
                                    for _, epoch, *samples in [line.split()] for entry in ((epoch, sample) for sample in samples))
        epochs = 1 + max(int(epoch) for epoch, _ in times)
        self.assertEqual((len(times), set(times.values())), (epochs * SAMPLES, {1}))

    def test_a_program_that_uses_the_python_package_is_rescaled_through_a_checkpoint(self):
        python = python_peer.adaptdl_torch()
        self.cluster.add_node()
        shutil.copy(PYTHON_PROGRAM, self.project / "main.py")
        self.job = self.adaptdl("submit", "--max-replicas", 2, "--gpus", 0, "--checkpoint-path", self.directory / "t" / "checkpoints", "--copy-checkpoints",
                                self.project, "--", python, "main.py", f"--wait=10:{self.until}").strip()
        self.wait_for_output("waits after step 10")
        self.cluster.add_node()
        self.wait_for_output("from 1 to 2 replicas: waiting")
        self.until.touch()
        self.wait_for_state("Succeeded")
        output = self.text()
        self.assertIn("restarting with 2 replicas from checkpoint-0", output)
        self.assertIn("rank 1 of 2 begins after step 11", output)
        trained = [f"{epoch} {sample}" for epoch, samples in re.findall(r"(?m)^\[\d\] epoch (\d+): ([\d ]+)$", output) for sample in samples.split()]
        self.assertEqual(len(trained), PYTHON_SAMPLES)
        self.assertEqual(len(set(trained)), PYTHON_SAMPLES)

    def test_jobs_share_the_cluster_and_a_job_gets_the_nodes_that_another_releases(self):
        for _ in range(4):
            self.cluster.add_node()
        first, second = ((self.directory / f"samples{i}", self.directory / f"until{i}") for i in range(2))
        for files in first, second:
            self.samples, self.until = files
            self.samples.touch()
            self.submit("--max-replicas", 4, "--no-checkpoint")
            self.wait_for(4 if files == first else 2)
        self.samples, self.until = first
        self.wait_for(2)
        self.assertEqual(self.cluster.requested(), 8)
        second[1].touch()
        self.wait_for_state("Succeeded")
        self.wait_for(4)
        self.assertEqual(self.cluster.requested(), 4)
        first[1].touch()
        self.assertTrue(eventually(lambda: self.cluster.requested() == 0, PATIENCE))

    def test_nodes_that_do_not_make_a_job_faster_train_another_job(self):
        for _ in range(4):
            self.cluster.add_node()
        shutil.copy(STANDARD_LIBRARY_PROGRAM, self.project / "main.py")
        slow = self.job = self.adaptdl("submit", "--max-replicas", 4, "--gpus", 0, "--checkpoint-path", self.directory / "checkpoints", self.project, "--",
                                       self.python, "main.py", "--scales-badly", "--pause", 0.1, "--steps", 1_000_000, "--until", self.until).strip()
        sizes = lambda: re.findall(r"rank 0 of (\d) at step", self.adaptdl("logs", slow))
        self.assertTrue(eventually(lambda: len(sizes()) > 1 and sizes()[-1] == "1", PATIENCE), self.text())
        self.submit("--max-replicas", 4, "--no-checkpoint")
        self.wait_for(3)
        self.assertEqual(sizes()[-1], "1")
        self.until.touch()
        for self.job in slow, self.job:
            self.wait_for_state("Succeeded")

    def test_files_are_copied_from_and_to_the_head_node_even_after_the_end_of_a_job(self):
        self.cluster.add_node()
        checkpoints = self.directory / "checkpoints"
        self.submit("--max-replicas", 1, "--checkpoint-path", checkpoints)
        self.wait_for(1)
        data = self.directory / "data"
        data.mkdir()
        (data / "large").write_bytes(os.urandom(20_000_000))
        (data / "empty").touch(mode=0o640)
        (data / "link").symlink_to("large")
        self.adaptdl("cp", data, f"{self.job}:{checkpoints}/copy")
        self.assertEqual(tree(checkpoints / "copy"), tree(data))
        self.until.touch()
        self.wait_for_state("Succeeded")
        self.adaptdl("cp", f"{self.job}:copy", self.directory / "back")
        self.assertEqual(tree(self.directory / "back"), tree(data))
        self.adaptdl("cp", f"{self.job}:copy/nothing", self.directory, code=1, error="copy/nothing' in the head node: [Nn]o such file")
        self.assertEqual(self.cluster.query("len([j for j in __import__('ray.job_submission').job_submission.JobSubmissionClient("
                                            f"'{self.cluster.url}').list_jobs() if j.submission_id])"), "1")

    def test_the_cluster_configuration_in_the_documentation_is_valid(self):
        [text] = re.findall(r"```yaml\n(# cluster.yaml\n.*?)```", (pathlib.Path(os.environ["SOURCE_ROOT"]) / "docs/ray.md").read_text(), re.DOTALL)
        code = "import sys, yaml; from ray.autoscaler._private import util; util.validate_config(util.prepare_config(yaml.safe_load(sys.stdin)))"
        done = subprocess.run([self.python, "-c", code], input=text, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_commands_show_resize_and_delete_a_job(self):
        self.cluster.add_node()
        self.cluster.add_node()
        self.submit("--min-replicas", 1, "--max-replicas", 2, "--checkpoint-path", self.directory / "checkpoints")
        self.wait_for(2)
        self.assertRegex(self.adaptdl("ls"), rf"(?m)^{self.job} +ray +running +1:2 .*\d+:\d\d$")
        self.assertRegex(self.adaptdl("describe", self.job), r"(?m)^Replicas: ")
        self.assertEqual(self.adaptdl("resize", self.job, "1"), f"resizing {self.job} to 1 replica\n")
        self.wait_for(1)
        self.adaptdl("resize", self.job, "2:1", code=2, error="MIN must not be greater than MAX")
        follow = subprocess.Popen([ADAPTDL, "logs", "--ray", self.cluster.url, self.job, "--follow"], stdout=subprocess.PIPE, text=True)
        self.assertEqual(self.adaptdl("delete", self.job), f"deleted {self.job}\n")
        output = follow.communicate(timeout=PATIENCE)[0]
        self.assertIn("[0] epoch 0 replicas 2", output)
        self.assertIn("stopped with checkpoint", output)
        self.assertTrue((self.directory / "checkpoints" / "checkpoint-0").is_dir())
        self.assertEqual(self.adaptdl("ls"), "no jobs\n")
        self.adaptdl("logs", self.job, code=1, error=f"job '{self.job}' not found")

    def test_a_program_finds_the_packages_and_variables_of_its_runtime_environment(self):
        self.cluster.add_node()
        wheel = self.directory / "greeting-1.0-py3-none-any.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr("greeting.py", "TEXT = 'hello'\n")
            archive.writestr("greeting-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: greeting\nVersion: 1.0\n")
            archive.writestr("greeting-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            archive.writestr("greeting-1.0.dist-info/RECORD", "")
        environment = self.directory / "environment.yaml"
        environment.write_text(f"pip: [{wheel}]\nenv_vars: {{GREETED: world}}\n")
        self.job = self.adaptdl("submit", "--max-replicas", 1, "--no-checkpoint", "--gpus", 0, "--runtime-env", environment, self.project, "--",
                                "python", "-c", "import greeting, os; print(greeting.TEXT, os.environ['GREETED'])").strip()
        self.wait_for_state("Succeeded")
        self.assertIn("[0] hello world\n", self.text())
        environment.write_text("working_dir: .\n")
        self.adaptdl("submit", "--max-replicas", 1, "--no-checkpoint", "--runtime-env", environment, self.project, "--", "true", code=2,
                     error="environment.yaml: working_dir cannot be set")

    def test_a_job_whose_head_failed_continues_from_its_checkpoint_when_it_is_submitted_again(self):
        options = ["--max-replicas", 1, "--checkpoint-path", self.directory / "checkpoints"]
        self.cluster.add_node()
        self.submit(*options)
        self.wait_for(1)
        self.adaptdl("delete", self.job)
        self.submit(*options)
        self.wait_for(1)
        follow = subprocess.Popen([ADAPTDL, "logs", "--ray", self.cluster.url, self.job, "--follow"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.assertTrue(follow.stdout.readline())
        self.cluster.kill_all("head")
        self.adaptdl("ls", code=1, error=f"cannot reach the Ray job server '{self.cluster.url}': connection refused")
        self.cluster.start_head()
        self.assertEqual(self.adaptdl("ls"), "no jobs\n")
        self.adaptdl("logs", self.job, code=1, error=f"job '{self.job}' not found")
        self.assertRegex(follow.communicate(timeout=PATIENCE)[1], r"\Aadaptdl: error: job '[^\n]*' does not exist in the Ray cluster [^\n]*\n\Z")
        # The replicas end when their node notices that its head is gone.
        self.assertTrue(eventually(lambda: not self.cluster.processes_of(r"\./program "), PATIENCE))
        self.cluster.add_node()
        self.submit(*options)
        self.wait_for(1)
        self.until.touch()
        self.wait_for_state("Succeeded")
        self.assertIn(f"continuing from '{self.directory}/checkpoints/checkpoint-0'", self.text())

    def test_a_package_that_exceeds_the_limit_of_the_cluster_is_reported_in_one_line(self):
        self.cluster.end()
        self.cluster = ray_support.RayCluster(self.python, self.directory, RAY_max_grpc_message_size="20000000")
        self.addCleanup(self.cluster.end)
        (self.project / "weights").write_bytes(os.urandom(20_000_000))
        self.adaptdl("submit", "--max-replicas", 1, "--no-checkpoint", self.project, "--", "./program", code=1,
                     error=r"the package \(\d+\.\d\d MiB\) is too large for the Ray cluster '\S+', which allows 19\.07 MiB; list large files in \.dockerignore")
        self.assertEqual(self.adaptdl("ls"), "no jobs\n")

    def test_a_failed_job_and_invalid_submissions_are_reported_in_one_line(self):
        self.cluster.add_node()
        self.assertIn("cannot run './nothing': no such file", self.adaptdl("submit", "--max-replicas", 1, "--no-checkpoint", "--gpus", 0, "--follow", self.project, "--", "./nothing", code=1))
        [failed] = json.loads(self.adaptdl("ls", "--json"))
        self.assertEqual((failed["state"], failed["program"]), ("Failed", "./nothing"))
        self.assertRegex(self.adaptdl("ls"), r"cannot run './nothing': no such file\n\Z")
        waiting = ["--max-replicas", 1, "--no-checkpoint", "--gpus", 0, "--timeout", "20s", self.project, "--"]
        self.assertIn("in Ray: 1", self.adaptdl("submit", "--follow", *waiting, "sh", "-c", "echo in Ray: $ADAPTDL_RAY"))
        self.adaptdl("submit", "--wait", *waiting, "true")
        self.adaptdl("submit", "--follow", *waiting, "sleep", "60", code=1, error="timed out waiting for job")
        self.adaptdl("submit", self.project, code=2, error="requires a program")
        self.adaptdl("submit", "--no-checkpoint", self.project, "--", "./program", code=2, error="requires --max-replicas")
        self.adaptdl("submit", "--max-replicas", 1, "--name", "a_b", "--no-checkpoint", self.project, "--", "./program", code=2, error="invalid --name 'a_b'")
        self.adaptdl("submit", self.project, "--", "./program", code=2, error="--checkpoint-path DIR")
        self.adaptdl("submit", "--image", "x", self.project, "--", "./program", code=2, error="--image cannot be used with --ray")
        self.adaptdl("submit", "--max-replicas", 1, "--no-checkpoint", "--cpus", "0", "--gpus", "0", self.project, "--", "./program", code=2, error="cannot both be 0")
        self.cluster.url = "http://127.0.0.1:1"
        self.adaptdl("submit", "--max-replicas", 1, "--no-checkpoint", self.project, "--", "./program", code=1, error="127.0.0.1:1': connection refused")


if __name__ == "__main__":
    python_peer.main()
