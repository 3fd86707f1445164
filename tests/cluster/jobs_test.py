"""Tests how jobs in a cluster are listed, described, followed and deleted. Their pods are like the ones that the
original operator creates."""

import json
import re

import cluster_support
from cluster_jobs_support import ClusterJobsTest
from cluster_support import OUT_OF_MEMORY

# Prints 20 lines in each group except the first, which prints lines until it is stopped.
COUNTING = (
    "i=0; while [ $ADAPTDL_NUM_RESTARTS -eq 0 ] || [ $i -lt 20 ]; do "
    "i=$((i+1)); echo group $ADAPTDL_NUM_RESTARTS line $i; sleep 0.2; done"
)


class JobsTest(ClusterJobsTest):
    def listed(self, *options):
        done = self.adaptdl("ls", "-o", "json", *options)
        self.assertEqual(done.returncode, 0, done.stderr)
        return {job["name"]: job for job in json.loads(done.stdout)}

    def refusal(self, *words, code=1, **more):
        done = self.adaptdl(*words, **more)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        self.assertRegex(done.stderr, r"\Aadaptdl: error: [^\n]+\n\Z")
        return done.stderr[len("adaptdl: error: ") : -1]

    def why(self, name, pattern):
        """Waits until `ls` shows a reason that matches the pattern."""
        return self.wait_for(
            f"the reason shown for {name} matches {pattern}", lambda: re.search(pattern, self.listed(name)[name]["why"])
        )

    def tearDown(self):
        self.kubectl("delete", "adaptdljobs", "--all", "--wait=false")
        self.kubectl("delete", "pods", "--all", "--grace-period=0", "--force", "--wait=true")
        self.wait_for("all jobs are gone", lambda: not self.get("adaptdljobs"))


class ReasonsTest(JobsTest):
    """Tests the reasons that `ls` shows for jobs that do not start, fail or are being deleted."""

    def test_an_image_pull_failure_is_reported(self):
        self.make_job("job", image="127.0.0.1:1/no/such:1", ready=False)
        self.why("job", r"^cannot pull image '127\.0\.0\.1:1/no/such:1': .*refused")

    def test_insufficient_gpus_are_reported(self):
        self.make_job("job", resources={"limits": {"nvidia.com/gpu": 64}}, ready=False, nodes=["node0"])
        self.why("job", r"^no node fits \(\d+ in total\): .*\d with insufficient nvidia\.com/gpu")

    def test_a_missing_volume_claim_is_reported(self):
        self.make_job("job", template=self.make_template("sleep 1000", volume="nowhere"), ready=False)
        self.why("job", r"^its volume claim 'nowhere' does not exist$")

    def test_a_missing_secret_is_reported(self):
        template = self.make_template("sleep 1000")
        template["spec"]["volumes"] = [{"name": "v", "secret": {"secretName": "nowhere"}}]
        template["spec"]["containers"][0]["volumeMounts"] = [{"name": "v", "mountPath": "/v"}]
        self.make_job("job", template=template, ready=False)
        self.why("job", r'^its volume cannot be mounted: .*secret "nowhere" not found')

    def test_a_missing_config_map_is_reported(self):
        self.make_job("job", envFrom=[{"configMapRef": {"name": "nowhere"}}], ready=False)
        self.why("job", r'^cannot create its container: configmap "nowhere" not found$')

    def test_a_program_failure_is_reported_with_its_exit_code(self):
        self.make_job("job", command="exit 7", replicas=2, ready=False)
        self.why("job", r"^exited with code 7$")

    def test_an_out_of_memory_kill_is_reported_with_the_limit(self):
        self.make_job("job", command=OUT_OF_MEMORY, resources={"limits": {"memory": "20Mi"}}, ready=False)
        self.why("job", r"^killed: out of memory \(limit 20Mi\)$")

    def test_a_deletion_that_is_waiting_for_finalizers_is_reported(self):
        job = self.make_job("job", replicas=0)
        job["metadata"] = {"name": "job", "finalizers": ["example.com/hold"]}
        self.kubectl("patch", "adaptdljob", "job", "--type=merge", "-p", '{"metadata":{"finalizers":["example.com/hold"]}}')
        self.kubectl("delete", "adaptdljob", "job", "--wait=false")
        self.why("job", r"^is being deleted; waiting for finalizers: example\.com/hold$")
        self.kubectl("patch", "adaptdljob", "job", "--type=merge", "-p", '{"metadata":{"finalizers":null}}')

    def test_a_job_without_a_scheduler_is_reported(self):
        self.apply({
            "apiVersion": "adaptdl.petuum.com/v1", "kind": "AdaptDLJob", "metadata": {"name": "job"},
            "spec": {"template": self.make_template("true")},
        })  # fmt: skip
        self.why("job", "^no scheduler has acted on it yet$|is the AdaptDL scheduler running")


class ManagementTest(JobsTest):
    def test_a_job_is_listed_described_and_deleted(self):
        self.make_job("job", replicas=2, group=3, volume=True, spec={"minReplicas": 1, "maxReplicas": 4})
        self.set_status("job", train={"progress": 30, "targetProgress": 120, "initBatchSize": 64})
        # `ls` accepts cached objects from the API server, which may be slightly out of date.
        row = r"^job  +\S+  +running  +2/2  +3  +25%  +\S+"
        table = self.wait_for("it is listed", lambda: re.search(row, text := self.adaptdl("ls").stdout, re.MULTILINE) and text)
        self.assertEqual(len(table.splitlines()), 2)
        self.assertEqual(self.adaptdl("ls", "-o", "name").stdout, "job\n")
        self.assertEqual(self.adaptdl("ls", "-A", "-o", "name").stdout.split().count(f"{self.namespace}/job"), 1)
        self.assertIn("name: job\n", self.adaptdl("ls", "-o", "yaml").stdout)
        self.assertRegex(self.adaptdl("ls", "-o", "wide").stdout, r"1:4 +64 +- +- +node0,node1")
        text = self.adaptdl("describe", "job").stdout
        for pattern in (
            r"Status: +Running\n", r"Replicas: +2 of 2 ready; at least 1, at most 4\n", r"Nodes: +node0, node1\n",
            r"/adaptdl/checkpoint +volume claim adaptdl-pvc-\w+, adaptdl/checkpoint\n", r"targetProgress +120\n",
            r"\n +0 +job-\S+-3-0 +node0 +ready +0 +",
        ):  # fmt: skip
            self.assertRegex(text, pattern)
        done = self.adaptdl("delete", "job")
        self.assertEqual((done.returncode, done.stdout), (0, "deleted job\n"), done.stderr)
        for line in done.stderr.splitlines():  # printed if the deletion takes a while
            self.assertRegex(line, "^adaptdl: deletion of job 'job' is waiting for pods ")
        self.assertEqual(self.get("adaptdljobs"), [])
        self.assertEqual(self.pods_of("job"), [])
        self.wait_for("its claim is gone", lambda: not self.get("pvc"))

    def test_an_ambiguous_name_is_rejected_unless_local_or_cluster_is_given(self):
        self.make_job("both", command="echo of the job", phase="Succeeded", ready=False)
        self.wait_for_pods("both", "Succeeded")
        ran = self.adaptdl("run", "-n", 1, "--name", "both", "sh", "-c", "echo of the run")
        self.assertEqual(ran.returncode, 0, ran.stderr)
        # If a local run has the name, the command waits only briefly for the cluster, and a busy one may respond too late.
        refused = self.wait_for("the cluster answers in time", lambda: (done := self.adaptdl("logs", "both")).returncode == 2 and done)
        self.assertRegex(refused.stderr, r"\Aadaptdl: error: 'both' is both a local run and a job in context .*--local[^\n]*\n\Z")
        self.assertIn("of the run", self.adaptdl("logs", "both", "--local").stdout)
        self.assertIn("of the job", self.adaptdl("logs", "both", "--cluster").stdout)
        names = [line.split()[:2] for line in self.adaptdl("ls").stdout.splitlines()]
        self.assertEqual([name for name, _ in names].count("both"), 2)
        for place in ("--local", "--cluster"):
            self.assertEqual(self.adaptdl("delete", "both", place).stdout.split("\n")[0], "deleted both")

    def test_a_missing_job_is_named_in_the_error(self):
        self.assertRegex(self.refusal("describe", "nothing"), f"^job 'nothing' not found in namespace '{self.namespace}' ")
        self.assertRegex(self.refusal("ls", "nothing"), "^run or job 'nothing' not found")


class LogsTest(JobsTest):
    def test_log_lines_are_prefixed_with_the_rank_and_in_order_within_each_replica(self):
        self.make_job("job", command="for i in 1 2 3; do echo line $i; sleep 1; done", replicas=2, ready=False)
        self.wait_for_pods("job", "Succeeded")
        lines = self.adaptdl("logs", "job").stdout.splitlines()
        self.assertEqual(sorted(lines), sorted(f"[{rank}] line {i}" for rank in (0, 1) for i in (1, 2, 3)))
        for rank in (0, 1):
            own = [line for line in lines if line.startswith(f"[{rank}]")]
            self.assertEqual(own, [f"[{rank}] line {i}" for i in (1, 2, 3)])
        self.assertEqual(self.adaptdl("logs", "job", "--rank", 1, "--tail", 1).stdout, "line 3\n")
        self.assertRegex(self.refusal("logs", "job", "--rank", 5), "job 'job' has no log of rank 5")

    def test_followed_logs_continue_with_the_next_group_and_end_with_the_job(self):
        job = self.make_job("job", command=COUNTING, replicas=1)
        follow = self.start("logs", "job", "--follow")
        follow.wait_for(r"^\[0\] group 0 line 5$")
        self.kubectl("delete", "pods", "-l", "adaptdl/job=job", "--grace-period=1")
        self.make_pods(job, 2, group=1)
        for rank in (0, 1):
            follow.wait_for(rf"^\[{rank}\] group 1 line 20$")
        self.set_status("job", phase="Succeeded")
        self.assertEqual(follow.finish(), 0, follow.text())
        for rank in (0, 1):
            second = [line for line in follow.out if line.startswith(f"[{rank}] group 1 ")]
            self.assertEqual(second, [f"[{rank}] group 1 line {i}" for i in range(1, 21)])


if __name__ == "__main__":
    cluster_support.main()
