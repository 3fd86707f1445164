"""Tests that jobs recover from what other clients of the API server write: into the status of a job, into the annotations of its
pods, and into the place of one of its pods. Other jobs are not affected."""

import json
import time

import cluster_support
from operator_support import INTERVAL, NODES, ONE_GPU, OperatorTest

FAR = "2126-11-21T12:00:00Z"
WRITTEN = {
    "more replicas than the job may have": {"allocation": [NODES[0]] * 4000, "replicas": 4000},
    "endless replicas": {"replicas": 1_999_999_999},
    "an early pause": {"phase": "Pending", "allocation": []},
    "a stop that begins in a century": {"phase": "Stopping", "phaseSince": FAR},
    "a start with members": {"phase": "Starting", "phaseSince": FAR, "membership": {"generation": 1}},
    "nodes that do not exist": {"allocation": ["nowhere", "nowhere"], "phase": "Pending", "reason": "Reallocated"},
    "members that do not exist": {"membership": {"generation": -1, "replicas": [{"number": 9, "role": "x"}]}},
    "nothing": None,
}


# The schema of AdaptDLJobs does not allow them.
REFUSED = [{"phase": "Sleeping"}, {"group": -7}, {"replicas": "two"}, {"allocation": "node0"}]


class ForeignTest(OperatorTest):
    def write_status(self, name, fields):
        """Changes these fields of the status, or removes all of them. Returns the error if the API server refuses that."""

        def answer():
            job = self.get("adaptdljob", name)
            job["status"] = {} if fields is None else {**job["status"], **fields}
            path = f"/apis/adaptdl.petuum.com/v1/namespaces/{self.namespace}/adaptdljobs/{name}/status"
            done = self.kubectl("replace", "--raw", path, "-f", "-", text=json.dumps(job), check=False)
            conflict = "Conflict" in done.stderr or "modified" in done.stderr  # the operator was faster
            return None if conflict else (done.returncode, done.stderr)

        code, error = self.wait_for("the API server answers", answer)
        return error if code else None

    def test_a_job_whose_status_another_client_writes_continues_from_its_checkpoint(self):
        self.create_modelled_job("beside", samples=1_000_000, until="finish", minReplicas=2, maxReplicas=2)
        self.create_modelled_job("job", samples=1_000_000, until="finish", minReplicas=2, maxReplicas=2)
        beside = self.wait_for_replicas("beside", 2)
        self.wait_for_replicas("job", 2)
        for what, fields in WRITTEN.items():
            print(what, flush=True)
            self.assertIsNone(self.write_status("job", fields))

            def repaired(fields=fields or {}):
                status = self.status("job")
                running = [pod for pod in self.pods_of("job") if pod["status"].get("phase") == "Running"]
                kept = [field for field, value in fields.items() if status.get(field) == value]
                return status.get("phase") == "Running" and status.get("replicas") == len(running) == 2 and not kept

            self.wait_for(f"the job trains again after {what}", repaired)
        for fields in REFUSED:
            self.assertIn("invalid", self.write_status("job", fields) or "written")
        after = self.status("beside")
        self.assertEqual((after["phase"], after["group"]), ("Running", beside["group"]), after)
        for name in ("job", "beside"):
            self.finish(name)
            self.wait_for_phase(name, "Succeeded")
            self.assert_trained_once(name)

    def test_annotations_of_another_client_do_not_affect_a_job(self):
        self.create_modelled_job("job", samples=1_000_000, until="finish", minReplicas=2, maxReplicas=2)
        before = self.wait_for_replicas("job", 2)
        for annotations in (["adaptdl/rank=0", "adaptdl/replica=0"], ["adaptdl/group=77"], ["adaptdl/group-", "adaptdl/rank-"]):
            self.kubectl("annotate", "--overwrite", "pod", self.pods_of("job")[1]["metadata"]["name"], *annotations)
        time.sleep(2 * INTERVAL)
        after = self.status("job")
        self.assertEqual((after["phase"], after["group"]), ("Running", before["group"]), after)
        self.finish("job")
        self.wait_for_phase("job", "Succeeded")
        self.assert_trained_once("job")

    def test_a_job_waits_until_a_pod_with_the_name_of_its_own_is_deleted_and_reports_it(self):
        self.addCleanup(self.kubectl, "label", "node", NODES[0], "foreign-test-")
        template = self.make_template("true", resources=ONE_GPU)
        template["spec"]["nodeSelector"] = {"foreign-test": "yes"}
        self.create_job("job", template)
        self.wait_for_phase("job", "Pending")
        name = f"job-{self.get('adaptdljob', 'job')['metadata']['uid']}-0-0"
        self.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": self.make_template("sleep 600")["spec"]})
        self.kubectl("label", "node", NODES[0], "foreign-test=yes")

        def reported():
            events = self.get("events", None, "--field-selector", "involvedObject.name=job,reason=FailedCreate")
            return [event["message"] for event in events]

        self.assertIn(f"pod '{name}' exists, but does not belong to the job; delete it", self.wait_for("the event", reported))
        self.kubectl("delete", "pod", name, "--wait=false")
        self.wait_for_phase("job", "Succeeded")


if __name__ == "__main__":
    cluster_support.main()
