"""Tests the operator in a cluster: jobs with modelled step times share the GPUs of two nodes, from creation to completion."""

import datetime
import json
import time

import cluster_support
from operator_support import GPUS, INTERVAL, NODES, OperatorTest

ALL_GPUS = GPUS * len(NODES)
# Seconds within which the second job must get replicas: a scheduling cycle, plus the time to checkpoint and stop replicas of the
# first job on a busy machine.
ONE_CYCLE = INTERVAL + 60
GPU_HOUR = 9  # price; a node costs GPUS times as much


def seconds(text):
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


class SharingTest(OperatorTest):
    settings = {"nodePrices": json.dumps([{"labels": {}, "perHour": GPUS * GPU_HOUR}])}

    def assert_in_row(self, name, *words):
        """Checks that the job's row in the table of `adaptdl ls` has these words."""

        def has_words():
            rows = [line.split() for line in self.adaptdl("ls").stdout.splitlines()]
            return any(row[:1] == [name] and set(words) <= set(row[1:]) for row in rows)

        # `ls` accepts cached objects from the API server, which may be slightly out of date.
        self.wait_for(f"{name} is listed with {words}", has_words)

    def assert_charged(self, name):
        """Checks the recorded usage of a job that has ended."""
        job = self.get("adaptdljob", name)
        usage, life = job["status"]["usage"], seconds(job["status"]["completionTimestamp"]) - seconds(job["metadata"]["creationTimestamp"])
        self.assertEqual(set(usage), {"gpuSeconds", "cost"})
        self.assertAlmostEqual(usage["cost"], usage["gpuSeconds"] / 3600 * GPU_HOUR, places=6)
        # The job had at least one GPU most of the time, and never more than its largest group had.
        self.assertGreater(usage["gpuSeconds"], life / 2)
        self.assertLess(usage["gpuSeconds"], max(self.watch.sizes(name)) * (life + 1))
        described = self.adaptdl("describe", name).stdout
        self.assertIn(f"{usage['gpuSeconds'] / 3600:.2f} GPU-hours, cost {usage['cost']:.2f}", described)
        self.assertIn(f" {usage['cost']:.2f} ", self.adaptdl("ls", "-o", "wide", name).stdout)

    def cost_of(self, user):
        """Returns what the user's jobs have used, or None."""
        done = self.adaptdl("cost", "-n", self.operator_namespace, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        return next((row for row in json.loads(done.stdout) if row["user"] == user), None)

    def assert_metrics_of_whole_cluster(self, metrics, name):
        """Asserts that these metrics show all GPUs as given to that job."""
        job = f'{{job_namespace="{self.namespace}",job_name="{name}"}}'
        self.assertEqual(metrics[f"adaptdl_job_replicas{job}"], ALL_GPUS)
        self.assertEqual(metrics[f"adaptdl_job_nodes{job}"], len(NODES))
        self.assertGreater(metrics[f"adaptdl_job_goodput{job}"], 0)
        self.assertEqual(metrics['adaptdl_allocated{resource="nvidia.com/gpu"}'], ALL_GPUS)
        self.assertEqual(metrics['adaptdl_allocatable{resource="nvidia.com/gpu"}'], ALL_GPUS)
        self.assertEqual(metrics['adaptdl_nodes{state="ready"}'], len(NODES))

    def assert_top_of_whole_cluster(self, name):
        """Asserts that `adaptdl top` shows all GPUs as given to that job."""
        top = self.adaptdl("top", "--json")
        self.assertEqual(top.returncode, 0, top.stderr)
        (job,) = (job for job in json.loads(top.stdout)["jobs"] if job["name"] == f"{self.namespace}/{name}")
        self.assertEqual((job["replicas"], job["nodes"]), (ALL_GPUS, len(NODES)))
        self.assertGreater(job["goodput"], 0)
        for node in json.loads(top.stdout)["nodes"]:
            seen = (node["state"], node["used"]["nvidia.com/gpu"], node["pods"][f"{self.namespace}/{name}"])
            self.assertEqual(seen, ("ready", GPUS, GPUS))

    def test_jobs_share_gpus_take_over_freed_ones_and_train_on_every_sample_once(self):
        restarts = 'adaptdl_job_restarts_total{reason="Reallocated"}'
        operator, restarted = self.containers_of_operator(), self.metrics().get(restarts, 0)
        self.create_modelled_job("first", samples=1_000_000, until="finish")
        self.wait_for_replicas("first", 1)
        # The job gets more replicas as measurements of it become available.
        alone = self.wait_for_replicas("first", ALL_GPUS)
        self.assertEqual(sorted(alone["allocation"]), sorted(NODES * GPUS))
        sizes = self.watch.sizes("first")
        self.assertEqual(sizes, sorted(sizes))
        self.assert_pods_as_agreed("first")
        self.assert_in_row("first", f"{ALL_GPUS}/{ALL_GPUS}", "running")
        self.assertGreater(self.status("first")["train"]["maxProfiledReplicas"], 0)
        metrics = self.metrics()
        self.assert_metrics_of_whole_cluster(metrics, "first")
        # If the API server does not respond for some seconds, another operator takes over, and it counts only from its
        # own start.
        if self.containers_of_operator() == operator:
            self.assertEqual(metrics[restarts] - restarted, len(sizes) - 1)
        self.assert_top_of_whole_cluster("first")

        # The first job gives GPUs to the second one.
        began = time.monotonic()
        self.create_modelled_job("second", samples=1_000_000, until="finish")
        self.wait_for_status("given replicas", "second", lambda status: status.get("phase") in ("Starting", "Running"))
        self.assertLess(time.monotonic() - began, ONE_CYCLE)
        self.wait_for_replicas("second", GPUS, GPUS)
        first = self.wait_for_replicas("first", GPUS, GPUS)
        self.assertGreater(first["group"], alone["group"])
        for name in ("first", "second"):
            self.assert_pods_as_agreed(name)
            self.assertEqual(self.listed(name)["state"], "Running")

        # The second job ends, and the first one takes over its GPUs.
        self.finish("second")
        ended = self.wait_for_status("ended", "second", lambda status: status.get("phase") in ("Succeeded", "Failed"))
        self.assertEqual(ended["phase"], "Succeeded", ended)
        self.assertRegex(ended["completionTimestamp"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+(Z|\+00:00)$")
        again = self.wait_for_replicas("first", ALL_GPUS)
        self.assertGreater(again["group"], first["group"])
        self.finish("first")
        self.wait_for_status("ended", "first", lambda status: status.get("phase") == "Succeeded")
        for name in ("first", "second"):
            self.assert_trained_once(name)
            self.assert_in_row(name, "succeeded")
            self.assertEqual(self.listed(name)["why"], "")
            self.assert_charged(name)
            # No replica is running, so a temporary pod copies the file.
            copied = self.adaptdl("cp", f"{name}:/adaptdl/share/done.json", f"{name}.json")
            self.assertEqual(copied.returncode, 0, copied.stderr)
            self.assertEqual((self.directory / f"{name}.json").read_text(), (self.shares[name] / "done.json").read_text())

    def test_a_job_that_must_wait_reports_the_reason(self):
        """All GPUs are in use by a job that is not preemptible."""
        self.create_program_job("holder", "sleep 100000", minReplicas=ALL_GPUS, maxReplicas=ALL_GPUS, preemptible=False)
        self.wait_for_status("running", "holder", lambda status: status.get("readyReplicas") == ALL_GPUS)
        self.create_program_job("waiting", "true")
        pending = self.wait_for_status("pending", "waiting", lambda status: status.get("phase") == "Pending")
        self.assertFalse(pending.get("allocation"), json.dumps(pending))
        self.wait_for("the reason is shown", lambda: self.listed("waiting")["why"].startswith(("waits", "insufficient")))
        self.assertEqual(self.listed("waiting")["state"], "Pending")
        done = self.adaptdl("delete", "holder", "--now")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.wait_for_phase("waiting", "Starting", "Running", "Succeeded")
        self.wait_for_status("ended", "waiting", lambda status: status.get("phase") == "Succeeded")

    def assert_prints(self, text, *words):
        done = self.adaptdl(*words)
        self.assertEqual((done.returncode, done.stdout), (0, text), done.stderr)

    def assert_still_suspended(self, name, before):
        """Checks that the job has been suspended since it had the status `before`."""
        now = self.status(name)
        self.assertEqual((now["phase"], now["phaseSince"]), ("Suspended", before["phaseSince"]))

    def test_a_suspended_job_has_no_pods_and_continues_from_its_checkpoint(self):
        self.wait_for_validator()
        bounds = {"minReplicas": ALL_GPUS, "maxReplicas": ALL_GPUS}
        self.create_modelled_job("job", samples=1_000_000, until="finish", suspend=True, **bounds)
        created = self.wait_for_phase("job", "Suspended")
        time.sleep(INTERVAL + 2)  # a scheduling cycle
        self.assert_still_suspended("job", created)
        self.assertEqual(self.pods_of("job"), [])
        self.assertNotIn("usage", created)
        self.assert_prints("resuming job\n", "resume", "job")
        before = self.wait_for_replicas("job", ALL_GPUS)

        # While it is suspended, other jobs get its GPUs, and no operator starts it.
        self.assert_prints("suspending job\n", "suspend", "job")
        stopped = self.wait_for_phase("job", "Suspended")
        self.assertEqual((stopped["allocation"], stopped["group"], stopped["readyReplicas"]), ([], before["group"], 0))
        self.assertEqual(set(stopped["usage"]), {"gpuSeconds", "cost"})
        self.kubectl("wait", "--for=condition=Suspended", "adaptdljob/job", "--timeout=10s")
        self.wait_for("its pods are gone", lambda: not self.pods_of("job"))
        listed = self.listed("job")
        self.assertEqual((listed["state"], listed["why"]), ("Suspended", "suspended by spec.suspend"))
        self.assert_in_row("job", "suspended")
        self.assertRegex(self.adaptdl("describe", "job").stdout, r"(?m)^Status: +Suspended$")
        suspended = 'adaptdl_jobs{phase="Suspended"}'
        self.wait_for("the metrics count it", lambda: self.metrics()[suspended] == 1)
        self.assertNotIn('adaptdl_job_restarts_total{reason="Suspended"}', self.metrics())
        change = json.dumps({"spec": {"suspend": False, "maxReplicas": ALL_GPUS + 1}})
        refused = self.kubectl("patch", "adaptdljob", "job", "--type=merge", "-p", change, check=False)
        self.assertIn("spec.maxReplicas cannot be changed after the job has started", refused.stderr)
        self.create_program_job("other", "sleep 100000", preemptible=False, **bounds)
        self.wait_for_status("running", "other", lambda status: status.get("readyReplicas") == ALL_GPUS)
        self.assertTrue(self.kill_operator_process())
        time.sleep(INTERVAL + 2)
        self.assert_still_suspended("job", stopped)

        # The job is queued again. A waiting job can be suspended, too.
        self.set_suspend("job", False)
        self.wait_for_phase("job", "Pending")
        self.set_suspend("job", True)
        self.wait_for_phase("job", "Suspended")
        self.set_suspend("other", True)
        self.wait_for_phase("other", "Suspended")
        deleted = self.adaptdl("delete", "other")
        self.assertEqual(deleted.returncode, 0, deleted.stderr)
        self.set_suspend("job", False)
        after = self.wait_for_replicas("job", ALL_GPUS)
        self.assertGreater(after["group"], before["group"])
        self.finish("job")
        ended = self.wait_for_phase("job", "Succeeded")
        self.assert_trained_once("job")

        # A job that has ended remains unchanged.
        refused = self.adaptdl("suspend", "job")
        self.assertEqual((refused.returncode, refused.stdout), (1, ""))
        self.assertIn("job 'job' has ended", refused.stderr)
        self.set_suspend("job", True)
        time.sleep(2)
        now = self.status("job")
        self.assertEqual((now["phase"], now["completionTimestamp"]), ("Succeeded", ended["completionTimestamp"]))

    def test_the_validator_rejects_invalid_jobs_and_usage_is_charged_to_the_submitter(self):
        self.wait_for_validator()
        refusal = self.apply_refused(self.job_document("wrong", "true", minReplicas=3, maxReplicas=2))
        self.assertIn("spec.minReplicas (3) must not be greater than spec.maxReplicas (2)", refusal)
        self.assertIn("(Forbidden)", refusal)  # kubectl before 1.25 does not print messages of reason Invalid
        self.refused("should be greater than or equal to 0", minReplicas=-1)
        self.refused("spec.template.spec.containers[0]: invalid image name 'Not/An:Image:1'", image="Not/An:Image:1")
        self.refused("spec.template.spec.containers[0].imagePullPolice: unknown field", container={"imagePullPolice": "Never"})
        self.refused("spec.template.spec.containers[0].resources.limits[cpu]: Invalid value", limits={"cpu": "-1"})
        self.refused("unknown field", minReplica=1)
        self.assertEqual(self.get("adaptdljobs"), [])

        # The spec of a running job cannot be changed, but its metadata can.
        job = self.job_document("job", "sleep 100000", maxReplicas=1)  # so that no cycle stops it
        self.kubectl("--as", "dora", "--as-group", "system:masters", "apply", "-f", "-", text=json.dumps(job))
        self.wait_for_phase("job", "Running")
        job["spec"]["maxReplicas"] = 7
        refusal = self.apply_refused(job)
        self.assertIn("spec.maxReplicas cannot be changed after the job has started; submit a new job instead", refusal)
        self.kubectl("label", "adaptdljob", "job", "team=a")
        self.assertEqual(self.status("job")["phase"], "Running")

        # The job is charged to the user who created it, even after it has been deleted.
        self.kubectl("annotate", "--overwrite", "adaptdljob", "job", "adaptdl/submitter=eve")
        self.assertEqual(self.get("adaptdljob", "job")["metadata"]["annotations"]["adaptdl/submitter"], "dora")
        running = self.wait_for("the usage is recorded", lambda: self.cost_of("dora"))
        self.assertEqual(running["jobs"], 1)
        self.kubectl("delete", "adaptdljob", "job")

        def final():
            """Returns the user's usage, or None if a scheduling cycle has just changed it."""
            before = self.cost_of("dora")
            time.sleep(INTERVAL + 5)
            return before if self.cost_of("dora") == before else None

        deleted = self.wait_for("the last usage is recorded", final)
        self.assertEqual(deleted["jobs"], 1)
        self.assertGreaterEqual(deleted["gpuHours"], running["gpuHours"])
        self.assertAlmostEqual(deleted["cost"], deleted["gpuHours"] * GPU_HOUR)
        self.assertIsNone(self.cost_of("eve"))


if __name__ == "__main__":
    cluster_support.main()
