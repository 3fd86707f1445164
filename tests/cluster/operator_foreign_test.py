"""Tests that jobs recover from what other clients of the API server write: into the status of a job, into the annotations of its
pods, and into the place of one of its pods. Other jobs are not affected."""

import json

import cluster_support
from operator_support import NODES, ONE_GPU, OperatorTest

FOREVER = "2126-11-21T12:00:00Z"
WRITTEN = {
    "more replicas than the job may have": {"allocation": [NODES[0]] * 4000, "replicas": 4000},
    "endless replicas": {"replicas": 1_999_999_999},
    "a negative group": {"group": -7, "phase": "Starting"},
    "a pause without end": {"phase": "Pending", "allocation": [], "retryAfter": FOREVER, "retries": 1_000_000},
    "an unknown phase that began in the future": {"phase": "Sleeping", "phaseSince": FOREVER},
    "nodes that do not exist": {"allocation": ["nowhere", "nowhere"], "phase": "Pending", "reason": "Reallocated"},
    "members that do not exist": {"membership": {"generation": -1, "replicas": [{"number": 9, "role": "x"}]}},
    "nothing": None,
}


class ForeignTest(OperatorTest):
    def write_status(self, name, fields):
        """Changes these fields of the status, or removes all of them."""

        def written():
            job = self.get("adaptdljob", name)
            job["status"] = {} if fields is None else {**job["status"], **fields}
            path = f"/apis/adaptdl.petuum.com/v1/namespaces/{self.namespace}/adaptdljobs/{name}/status"
            done = self.kubectl("replace", "--raw", path, "-f", "-", text=json.dumps(job), check=False)
            if done.returncode and "Conflict" not in done.stderr and "modified" not in done.stderr:
                raise AssertionError(done.stderr)
            return done.returncode == 0

        self.wait_for("the status is written", written)

    def test_a_job_whose_status_another_client_writes_trains_on_from_its_checkpoint(self):
        self.create_modelled_job("beside", samples=1_000_000, until="finish", minReplicas=2, maxReplicas=2)
        self.create_modelled_job("job", samples=1_000_000, until="finish", minReplicas=2, maxReplicas=2)
        beside = self.wait_for_replicas("beside", 2)
        self.wait_for_replicas("job", 2)
        for what, fields in WRITTEN.items():
            print(what, flush=True)
            before = {pod["metadata"]["uid"] for pod in self.pods_of("job")}
            self.write_status("job", fields)

            def trains(before=before):
                status = self.status("job")
                running = {pod["metadata"]["uid"] for pod in self.pods_of("job") if pod["status"].get("phase") == "Running"}
                return status.get("phase") == "Running" and status.get("replicas") == 2 and len(running) == 2 and not running & before

            self.wait_for(f"the job is restarted after {what}", trains)
        after = self.status("beside")
        self.assertEqual((after["phase"], after["group"]), ("Running", beside["group"]), after)
        for name in ("job", "beside"):
            self.finish(name)
            self.wait_for_phase(name, "Succeeded")
            self.assert_trained_once(name)

    def test_a_job_whose_pods_have_foreign_annotations_is_restarted(self):
        self.create_modelled_job("job", samples=1_000_000, until="finish", minReplicas=2, maxReplicas=2)
        before = self.wait_for_replicas("job", 2)
        for annotations in (["adaptdl/rank=0", "adaptdl/replica=0"], ["adaptdl/group=77"], ["adaptdl/rank-"]):
            self.kubectl("annotate", "--overwrite", "pod", self.pods_of("job")[1]["metadata"]["name"], *annotations)
            self.wait_for_status("restarted", "job", lambda status, before=before: status.get("group", 0) > before["group"])
            before = self.wait_for_replicas("job", 2)
        self.finish("job")
        self.wait_for_phase("job", "Succeeded")
        self.assert_trained_once("job")

    def test_a_job_says_that_a_foreign_pod_is_in_the_place_of_its_own_and_starts_without_it(self):
        self.addCleanup(self.kubectl, "label", "node", NODES[0], "foreign-test-")
        template = self.make_template("true", resources=ONE_GPU)
        template["spec"]["nodeSelector"] = {"foreign-test": "yes"}
        self.create_job("job", template)
        self.wait_for_phase("job", "Pending")
        name = f"job-{self.get('adaptdljob', 'job')['metadata']['uid']}-0-0"
        self.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": self.make_template("sleep 600")["spec"]})
        self.kubectl("label", "node", NODES[0], "foreign-test=yes")

        def said():
            events = self.get("events", None, "--field-selector", "involvedObject.name=job,reason=FailedCreate")
            return [event["message"] for event in events]

        self.assertIn(f"pod {name} exists, but does not belong to the job; delete it", self.wait_for("the job says why", said))
        self.kubectl("delete", "pod", name, "--wait=false")
        self.wait_for_phase("job", "Succeeded")


if __name__ == "__main__":
    cluster_support.main()
