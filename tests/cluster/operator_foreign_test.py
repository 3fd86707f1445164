"""Tests that jobs recover from objects that other clients of the API server write: the status of a job, the annotations of its pods,
and a pod with the name of one of its pods. Also tests that the supervisor rejects invalid hints and unauthorized requests, and
accepts progress in Kubeflow's format. Other jobs must not be affected."""

import http.client
import json
import time

import cluster_support
from operator_jobs_support import IMAGE, ONE_GPU
from operator_support import INTERVAL, NODES, OperatorTest

SUPERVISOR_PORT = 8080
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


# The schema of AdaptDLJobs does not allow these fields.
REFUSED = [{"phase": "Sleeping"}, {"group": -7}, {"replicas": "two"}, {"allocation": "node0"}]


# These hints are rejected even with the job's token.
NO_HINTS = [
    '{"progress": NaN}', '{"progress": Infinity}', '{"progress": -1}', '{"progress": 1e999}', '{"initBatchSize": 0.5}',
    '{"initBatchSize": 1e18}', '{"maxProfiledReplicas": -2}', '{"localBszBounds": [1]}', '{"gradParams": {"norm": -1, "var": 1}}',
    '{"perfParams": {"alpha_c": NaN}}', '{"perfParams": {"gamma": 0}}', '{"unknown": 1}', "[]", "", "{", "[" * 10_000,
    json.dumps({"progress": "x" * 70_000}),
]  # fmt: skip
# These hints are valid, but the goodput computed from them overflows.
HUGE = {
    "initBatchSize": 1, "maxBatchSize": 2**53, "localBszBounds": [1, 2**53], "maxProfiledReplicas": 2**53, "progress": 1e308,
    "gradParams": {"norm": 1e308, "var": 1e-308},
    "perfParams": {"alpha_c": 1e308, "beta_c": 1e-308, "alpha_n": 1e308, "beta_n": 0, "alpha_r": 1e308, "beta_r": 1e308, "gamma": 1.0},
}  # fmt: skip

# Posts progress in the format of Kubeflow until it is accepted.
POST = r'''
until wget -q -O /dev/null --header "Authorization: Bearer $(cat $KUBEFLOW_TRAINER_SERVER_TOKEN)" --header "Content-Type: application/json" \
    --post-data '{"trainerStatus": {"progressPercentage": 29, "metrics": [{"name": "loss", "value": "0.5"}]}}' $KUBEFLOW_TRAINER_SERVER_URL
do sleep 1; done
sleep 100000
'''


class ForeignTest(OperatorTest):
    def write_status(self, name, fields):
        """Changes these fields of the status, or removes all fields if `fields` is None. Returns the error if the API server
        refuses the change."""

        def answer():
            job = self.get("adaptdljob", name)
            job["status"] = {} if fields is None else {**job["status"], **fields}
            path = f"/apis/adaptdl.petuum.com/v1/namespaces/{self.namespace}/adaptdljobs/{name}/status"
            done = self.kubectl("replace", "--raw", path, "-f", "-", text=json.dumps(job), check=False)
            conflict = "Conflict" in done.stderr or "modified" in done.stderr  # the operator changed the job first
            return None if conflict else (done.returncode, done.stderr)

        code, error = self.wait_for("the API server answers", answer)
        return error if code else None

    def test_a_job_whose_status_another_client_overwrites_continues_from_its_checkpoint(self):
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

    def test_pod_annotations_from_another_client_do_not_affect_a_job(self):
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

    def environment_of(self, name):
        """Returns the environment variables of the job's replica 0."""
        return {entry["name"]: entry.get("value") for entry in self.pods_of(name)[0]["spec"]["containers"][0]["env"]}

    def ask(self, method, path, body=None, token=None):
        """Sends a request to the supervisor. Returns the status code of the response."""
        # The network of the API server has no route to services.
        connection = http.client.HTTPConnection(self.operator_pod()["status"]["podIP"], SUPERVISOR_PORT, timeout=30)
        try:
            connection.request(method, path, body, {"Authorization": f"Bearer {token}"} if token else {})
            return connection.getresponse().status
        finally:
            connection.close()

    def test_invalid_hints_unknown_jobs_and_forged_tokens_are_rejected(self):
        groups = {}
        for name in ("job", "beside"):
            self.create_modelled_job(name, samples=1_000_000, until="finish", minReplicas=2, maxReplicas=2)
        for name in ("job", "beside"):
            groups[name] = self.wait_for_replicas(name, 2)["group"]
        job, other = self.environment_of("job"), self.environment_of("beside")
        token = job["ADAPTDL_SUPERVISOR_TOKEN"]
        hints, generation = f"/hints/{job['ADAPTDL_JOB_ID']}", f"/generation/{job['ADAPTDL_JOB_ID']}?after=0&timeout=0"
        for body in NO_HINTS:
            self.assertIn(self.ask("PUT", hints, body, token), (400, 413), body[:100])
        for forged in ("wrong", token[:-1], token + "0", other["ADAPTDL_SUPERVISOR_TOKEN"]):
            self.assertEqual(self.ask("PUT", hints, '{"progress": 1}', forged), 403)
            self.assertEqual(self.ask("GET", generation, token=forged), 403)
        self.assertEqual(self.ask("GET", generation), 403)
        for path in ("/hints/nowhere/job", f"/hints/{self.namespace}/nothing", f"/hints/{self.namespace}/%2e%2e%2fjob"):
            self.assertEqual(self.ask("PUT", path, "{}", token), 404, path)
        time.sleep(2 * INTERVAL)
        for name, group in groups.items():
            status = self.status(name)
            self.assertEqual((status["phase"], status["group"]), ("Running", group), status)
            self.finish(name)
            self.wait_for_phase(name, "Succeeded")
            self.assert_trained_once(name)

    def test_progress_posted_in_the_kubeflow_format_is_shown_by_ls(self):
        template = self.make_template(POST, image=IMAGE, resources=ONE_GPU)
        template["spec"]["securityContext"] = {"runAsUser": 1000, "runAsNonRoot": True}
        self.create_job("job", template, maxReplicas=1)
        self.wait_for_status("29% done", "job", lambda status: status.get("train") == {"progress": 29, "targetProgress": 100})
        self.assertIn(" 29% ", self.adaptdl("ls", "job").stdout)
        url = self.environment_of("job")["KUBEFLOW_TRAINER_SERVER_URL"]
        path = url[url.index("/kubeflow/") :]
        body = '{"trainerStatus": {"progressPercentage": 50}}'
        self.assertEqual(self.ask("POST", path, body), 403)
        self.assertEqual(self.ask("POST", path, body, "wrong"), 403)

    def test_the_operator_schedules_other_jobs_when_one_reports_huge_hints(self):
        self.create_program_job("huge", "sleep 100000", maxReplicas=4)
        self.wait_for_phase("huge", "Running")
        environment = self.environment_of("huge")
        path, token = f"/hints/{environment['ADAPTDL_JOB_ID']}", environment["ADAPTDL_SUPERVISOR_TOKEN"]
        self.assertEqual(self.ask("PUT", path, json.dumps(HUGE), token), 200)
        self.wait_for_status("updated with the hints", "huge", lambda status: (status.get("train") or {}).get("progress") == HUGE["progress"])
        before = self.containers_of_operator()
        self.create_modelled_job("beside", samples=1_000_000, until="finish", maxReplicas=4)
        # The job grows to this size during the first cycles.
        self.wait_for_replicas("beside", 4)
        self.kubectl("delete", "adaptdljob", "huge", "--wait=true")
        self.finish("beside")
        self.wait_for_phase("beside", "Succeeded")
        self.assert_trained_once("beside")
        self.assertEqual(self.containers_of_operator(), before)

    def test_a_conflicting_pod_name_is_reported_and_the_job_waits_until_the_name_is_free(self):
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

        self.assertIn(f"pod '{name}' already exists, but does not belong to the job; delete it", self.wait_for("the event is created", reported))
        self.kubectl("delete", "pod", name, "--wait=false")
        self.wait_for_phase("job", "Succeeded")


if __name__ == "__main__":
    cluster_support.main()
