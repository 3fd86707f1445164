"""Tests failures of jobs in a cluster: which ones end the job, which ones restart it, and how each one is reported in the job's
status and by `adaptdl ls`. The failures are real."""

import json
import re
import time

import cluster_support
from operator_jobs_support import ONE_GPU
from operator_support import GPUS, INTERVAL, OperatorTest

TIMEOUT = 40  # seconds, for both timeouts; even on a busy machine, a pod takes less time to start
EVICTIONS = 3
FIRST_START = '[ "$ADAPTDL_NUM_RESTARTS" -eq 0 ]'


class FailuresTest(OperatorTest):
    settings = {"startTimeout": f"{TIMEOUT}s", "unschedulableTimeout": f"{TIMEOUT}s"}

    def assert_failed(self, name, reason, why, patience=cluster_support.PATIENCE):
        """Waits until the job has failed for this reason, and checks that `ls` shows it."""
        status = self.wait_for_status("ended", name, lambda status: status.get("phase") in ("Succeeded", "Failed"), patience)
        self.assertEqual((status["phase"], status.get("reason")), ("Failed", reason), status)
        self.assertTrue(status.get("message"), status)
        self.assertTrue(status.get("completionTimestamp"), status)
        self.assertEqual(self.listed(name)["state"], "Failed")
        # While the operator is deleting the other replicas, `ls` may name one of them.
        self.wait_for(f"the reason shown for {name} matches {why}", lambda: re.search(why, self.listed(name)["why"]))
        return status

    def assert_succeeds(self, name):
        status = self.wait_for_status("ended", name, lambda status: status.get("phase") in ("Succeeded", "Failed"))
        self.assertEqual(status["phase"], "Succeeded", status)
        return status

    def start_modelled_job(self, replicas=2, **spec):
        """Creates a job that runs with a fixed number of replicas until finish() is called."""
        self.create_modelled_job("job", samples=1_000_000, until="finish", minReplicas=replicas, maxReplicas=replicas, **spec)
        return self.wait_for_replicas("job", replicas)

    def wait_for_next_group(self, before):
        """Waits until the job is training in a later group, and checks that it has not failed. Returns its status."""
        self.wait_for_status(
            "restarted", "job", lambda status: status.get("group", 0) > before["group"] or status.get("phase") in ("Failed", "Succeeded")
        )
        after = self.wait_for_replicas("job", before["replicas"])
        self.assertGreater(after["group"], before["group"])
        return after

    def finish_and_check(self, crashed):
        self.finish("job")
        self.assert_succeeds("job")
        self.assert_trained_once("job", crashed=crashed)

    # The failures below end the job.

    def test_an_image_that_cannot_be_pulled_fails_the_job_after_the_start_timeout(self):
        self.create_program_job("job", "true", image="127.0.0.1:1/no/such:1")
        # The failure is reported long before the timeout.
        self.wait_for("the image is named", lambda: re.search(r"127\.0\.0\.1:1/no/such:1", self.listed("job")["why"]), TIMEOUT)
        self.assert_failed("job", "ImagePullFailed", r"127\.0\.0\.1:1/no/such:1", TIMEOUT + cluster_support.PATIENCE)

    def test_a_program_that_exits_with_an_error_fails_the_job_and_its_log_is_kept(self):
        self.create_program_job("job", "echo this is why; exit 1", minReplicas=2, maxReplicas=2)
        status = self.assert_failed("job", "PodFailure", r"exited with code 1\b")
        self.assertRegex(status["message"], r"code 1\b")
        self.assertIn("this is why", self.adaptdl("logs", "job").stdout)

    def test_the_replica_that_fails_first_is_reported_when_others_fail_later(self):
        command = "if [ $ADAPTDL_REPLICA_RANK -eq 1 ]; then exit 7; fi; trap 'exit 1' TERM; sleep 1000 & wait; exit 1"
        self.create_program_job("job", command, minReplicas=2, maxReplicas=2)
        status = self.assert_failed("job", "PodFailure", "code 7")
        self.assertRegex(status["message"], r"\b1\b.*code 7\b")

    def test_a_replica_that_runs_out_of_memory_fails_the_job(self):
        self.create_program_job("job", cluster_support.OUT_OF_MEMORY, resources={"limits": {**ONE_GPU["limits"], "memory": "20Mi"}})
        self.assert_failed("job", "OOMKilled", "memory")

    def test_exit_code_143_fails_a_job_that_is_not_preemptible(self):
        self.create_program_job("job", "exit 143", preemptible=False)
        self.assert_failed("job", "PodFailure", r"code 143\b")

    def test_a_job_that_fits_on_no_node_fails_after_the_unschedulable_timeout(self):
        self.create_program_job("job", "true", resources={"limits": {"nvidia.com/gpu": 64}})
        self.wait_for("the reason names what is missing", lambda: re.search("64.*nvidia.com/gpu|nvidia.com/gpu.*64", self.listed("job")["why"]), TIMEOUT)
        self.assert_failed("job", "Unschedulable", r"nvidia\.com/gpu", TIMEOUT + cluster_support.PATIENCE)

    # The events below do not end the job.

    def test_exit_code_143_restarts_a_preemptible_job(self):
        self.create_program_job("job", f"if {FIRST_START}; then exit 143; fi; echo restarted")
        status = self.assert_succeeds("job")
        self.assertGreater(status["group"], 0)
        self.assertIn("restarted", self.adaptdl("logs", "job").stdout)

    def test_deleting_a_pod_restarts_the_job(self):
        before = self.start_modelled_job()
        self.kubectl("delete", "pod", self.pods_of("job")[1]["metadata"]["name"], "--wait=false")
        self.wait_for_next_group(before)
        self.finish_and_check(crashed=False)

    def test_deleting_a_pod_without_a_grace_period_restarts_the_job_from_its_checkpoint(self):
        """The other replica loses its peer and exits with an error, which must not count as a failure."""
        before = self.start_modelled_job()
        self.kubectl("delete", "pod", self.pods_of("job")[1]["metadata"]["name"], "--grace-period=0", "--force", "--wait=false")
        self.wait_for_next_group(before)
        self.finish_and_check(crashed=True)

    def test_evictions_restart_the_job_and_do_not_count_as_failures(self):
        status = self.start_modelled_job()
        for _ in range(EVICTIONS):
            # Pods of earlier groups may still exist.
            pods = [pod for pod in self.pods_of("job") if pod["metadata"]["annotations"]["adaptdl/group"] == str(status["group"])]
            name = pods[0]["metadata"]["name"]
            self.kubectl(
                "create", "--raw", f"/api/v1/namespaces/{self.namespace}/pods/{name}/eviction", "-f", "-",
                text=json.dumps({"apiVersion": "policy/v1beta1", "kind": "Eviction", "metadata": {"name": name, "namespace": self.namespace}}),
            )  # fmt: skip
            status = self.wait_for_next_group(status)
        self.finish_and_check(crashed=False)

    def test_a_job_that_exceeds_a_quota_waits_and_runs_when_the_quota_is_raised(self):
        quota = {
            "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "small"}, "spec": {"hard": {"requests.nvidia.com/gpu": "0"}},
        }  # fmt: skip
        self.apply(quota)
        self.addCleanup(self.kubectl, "delete", "resourcequota", "small", "--ignore-not-found")
        self.wait_for("the quota is in force", lambda: self.get("resourcequota", "small").get("status", {}).get("hard"))
        self.create_program_job("job", "true")
        over = ("Pending", "Starting", "Stopping")  # each retry starts the job until its pods are refused
        # Neither of the two timeouts applies.
        deadline = time.monotonic() + TIMEOUT + 2 * INTERVAL
        while time.monotonic() < deadline:
            status = self.wait_for_status("over quota", "job", lambda status: status.get("reason") == "QuotaExceeded")
            self.assertIn(status["phase"], over)
            self.wait_for("the quota is named", lambda: re.search("quota.*small|small.*quota", self.listed("job")["why"]))
            self.assertFalse(status.get("readyReplicas"))
            time.sleep(1)
        quota["spec"]["hard"]["requests.nvidia.com/gpu"] = "8"
        self.apply(quota)
        status = self.assert_succeeds("job")
        self.assertNotEqual(status.get("reason"), "QuotaExceeded")

    def test_a_job_that_does_not_fit_yet_runs_when_a_node_gets_more_gpus(self):
        self.create_program_job("job", "true", resources={"limits": {"nvidia.com/gpu": GPUS + 2}})
        self.wait_for_status("pending", "job", lambda status: status.get("phase") == "Pending")
        self.set_gpus(GPUS + 2, "node0")
        self.assert_succeeds("job")

    def test_deleting_a_job_deletes_its_pods(self):
        self.start_modelled_job()
        done = self.adaptdl("delete", "job")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.pods_of("job"), [])
        # The operator must not create them again.
        time.sleep(INTERVAL + 2)
        self.assertEqual(self.pods_of("job"), [])

    def test_a_failing_job_does_not_affect_other_jobs(self):
        before = self.start_modelled_job()
        self.create_program_job("failing", "exit 1")
        self.assert_failed("failing", "PodFailure", "code 1")
        after = self.status("job")
        self.assertEqual((after["phase"], after["group"]), ("Running", before["group"]), after)
        self.finish_and_check(crashed=False)


if __name__ == "__main__":
    cluster_support.main()
