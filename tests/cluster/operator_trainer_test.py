"""Tests live rescale in a cluster with a program that uses the trainer: the parameters must equal those after the same
changes with restarts."""

import collections
import os
import re
import secrets
import subprocess
import sys

import cluster_support
from cluster_support import ADAPTDL, SOURCE_ROOT
from operator_jobs_support import IMAGE, ONE_GPU
from operator_support import OperatorTest

sys.path.append(str(SOURCE_ROOT / "tests/e2e"))
from checkpoints import largest_difference, parameters  # noqa: E402

PROGRAM = os.environ["RESCALE_PROGRAM"]
SAMPLES, EPOCHS = 240, 18  # an epoch has 20 steps
# Maps each of these steps to the number of replicas from that step on. The time before an increase is long enough for
# the program to report step times, on which the policy bases its decisions.
CHANGES = {100: 2, 300: 4, 320: 3, 340: 1}
PATIENCE = 240


class TrainerTest(OperatorTest):
    settings = {r"nodeSelector.kubernetes\.io/hostname": "node0"}
    programs = (PROGRAM,)

    def give_gpus(self, count):
        # All GPUs are on one node, because two replicas on one node could be faster than three on two nodes.
        self.set_gpus(count, "node0")
        self.set_gpus(0, "node1")

    def create(self, name, *arguments):
        """Creates a job. Returns the directory of its volume."""
        claim = f"adaptdl-pvc-{secrets.token_hex(8)}"
        volume = self.make_volume(claim) / "adaptdl"
        template = self.make_template("", image=IMAGE, volume=claim, resources=ONE_GPU)
        template["spec"]["terminationGracePeriodSeconds"] = 30
        main = template["spec"]["containers"][0]
        main["command"] = ["/usr/bin/rescale_program", *map(str, arguments)]
        main["env"] += [{"name": "OMP_NUM_THREADS", "value": "1"}, {"name": "ADAPTDL_CHECKPOINT_EVERY", "value": "0s"}]
        self.create_job(name, template, maxReplicas=4)
        return volume

    def asked(self, name):
        """Returns the steps at which the program has requested a different number of replicas."""
        found = set()
        for pod in self.pods_of(name):
            log = self.kubectl("logs", pod["metadata"]["name"], check=False).stdout
            found.update(int(step) for step in re.findall(r"^resize \d+ at (\d+)$", log, re.MULTILINE))
        return found

    def test_live_rescale_yields_the_same_parameters_as_restarts_and_trains_on_each_sample_once(self):
        at = ",".join(f"{step}:{replicas}" for step, replicas in CHANGES.items())
        self.give_gpus(1)
        self.wait_until_gpus_are_known()
        volume = self.create("job", "--epochs", EPOCHS, "--at", at, "--step-time", 400, "--samples", "/adaptdl/share/samples")
        first = set()  # uids of the pod that has trained from the beginning
        for step, replicas in CHANGES.items():
            self.wait_for(f"the program asks for {replicas} replicas", lambda step=step: step in self.asked("job"), PATIENCE)
            first.update(pod["metadata"]["uid"] for pod in self.pods_of("job") if pod["metadata"]["name"].endswith("-0-0"))
            self.give_gpus(replicas)
        self.wait_for_phase("job", "Succeeded", patience=PATIENCE)
        self.assertEqual(self.status("job")["group"], 0)
        self.assertEqual(len(first), 1)
        times = collections.Counter()
        for line in (volume / "share/samples").read_text().splitlines():
            _, epoch, *samples = line.split()
            times.update((epoch, sample) for sample in samples)
        self.assertEqual(len(times), EPOCHS * SAMPLES)
        self.assertEqual(set(times.values()), {1})

        restarted = self.directory / "restarted"
        for replicas in (1, *CHANGES.values()):
            done = subprocess.run(
                [ADAPTDL, "run", "-n", str(replicas), "--checkpoint", restarted, "--", PROGRAM, "--epochs", str(EPOCHS),
                 "--at", at, "--restart"],
                env=self.environment(OMP_NUM_THREADS="1", ADAPTDL_CHECKPOINT_EVERY="0"), capture_output=True, text=True,
                timeout=PATIENCE, cwd=self.directory,
            )  # fmt: skip
            self.assertIn(done.returncode, (0, 143), done.stdout + done.stderr)
        self.assertEqual(done.returncode, 0)
        self.assertLessEqual(largest_difference(parameters(volume / "checkpoint"), parameters(restarted)), 1e-6)


if __name__ == "__main__":
    cluster_support.main()
