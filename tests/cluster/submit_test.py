"""Tests `adaptdl submit` with images that have already been pushed: what it creates, what it rejects before creating
anything, and that it leaves nothing behind after a failure."""

import contextlib
import json
import os
import pty
import re
import subprocess

import cluster_support
from cluster_support import ADAPTDL, PATIENCE
from submit_registry_test import RegistryTest  # noqa: F401  `submit` would find the storage class of a test that runs at the same time
from submit_support import Submitting


def read_terminal(descriptor):
    """Returns what was written to a terminal that is no longer open in any process."""
    written = b""
    with contextlib.suppress(OSError), open(descriptor, "rb", buffering=0) as terminal:
        while piece := terminal.read(10000):
            written += piece
    return written.decode()


class SubmitTest(Submitting):
    def test_a_job_with_an_image_gets_a_volume_and_works_with_ls_logs_cp_and_delete(self):
        self.add_storage()
        self.make_file(self.job())
        done = self.submit("--image", cluster_support.IMAGE, "--max-replicas", 3, "--", "one", "--two")
        name = done.stdout.strip()
        self.assertRegex(name, r"\Ahello-[a-z0-9]{5}\Z")
        job = self.get("adaptdljob", name)
        self.assertEqual(job["spec"]["maxReplicas"], 3)
        main = job["spec"]["template"]["spec"]["containers"][0]
        self.assertEqual((main["image"], main["args"]), (cluster_support.IMAGE, ["one", "--two"]))
        (claim,) = self.get("persistentvolumeclaims")
        self.assertEqual(claim["spec"]["storageClassName"], self.storage)
        self.assertEqual(claim["spec"]["accessModes"], ["ReadWriteMany"])
        (owner,) = claim["metadata"]["ownerReferences"]
        self.assertEqual((owner["kind"], owner["uid"]), ("AdaptDLJob", job["metadata"]["uid"]))
        self.make_pods(job, 2)
        self.wait_for_pods(name)
        self.set_status(name, phase="Running", readyReplicas=2)
        self.assertIn(name, self.adaptdl("ls").stdout)
        # Each replica truncates the file first.
        self.wait_for("both replicas have written", lambda: self.adaptdl("logs", name).stdout.count("written") == 2)
        done = self.adaptdl("cp", f"{name}:/adaptdl/share/foo.txt", "foo.txt")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual((self.directory / "foo.txt").read_text(), "done\n")
        self.assertEqual(self.adaptdl("delete", name).returncode, 0)
        self.wait_for("its claim is deleted, too", lambda: not self.left())

    def test_several_jobs_in_one_file_are_submitted_and_printed_as_json(self):
        self.make_file(self.job(), self.job())
        done = self.submit("--image", cluster_support.IMAGE, "--json", "--name", "mine", "--min-replicas", 1)
        jobs = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertEqual(len(jobs), 2)
        for one in jobs:
            self.assertRegex(one["name"], r"\Amine-[a-z0-9]{5}\Z")
            self.assertEqual(self.get("adaptdljob", one["name"])["metadata"]["uid"], one["uid"])
            self.assertEqual(self.get("persistentvolumeclaim", one["claim"])["metadata"]["labels"], {"adaptdl/job": one["name"]})
            self.assertEqual((one["image"], one["namespace"]), (cluster_support.IMAGE, self.namespace))

    def test_on_a_terminal_submit_suggests_the_logs_command(self):
        self.make_file(self.job())
        ours, theirs = pty.openpty()
        done = subprocess.run([ADAPTDL, "submit", self.project, "--image", cluster_support.IMAGE], stdin=subprocess.DEVNULL, stdout=theirs,
                              stderr=subprocess.PIPE, timeout=PATIENCE, env=self.environment(TERM="xterm"))  # fmt: skip
        os.close(theirs)
        text = read_terminal(ours)
        self.assertEqual(done.returncode, 0, done.stderr)
        name = re.search(r"Submitted job (\S+) to namespace", text).group(1)
        self.assertIn(f"adaptdl logs {name} --follow", text)

    def test_follow_prints_logs_until_the_job_ends_and_exits_with_1_if_the_job_failed(self):
        for phase, code in (("Succeeded", 0), ("Failed", 1)):
            with self.subTest(phase):
                self.add_storage()
                # The program always exits with code 0, because otherwise the reason for the replica's failure would be
                # reported before the job's own message.
                command = "echo began; sleep 1; echo $ADAPTDL_CHECKPOINT_PATH; until [ -e /tmp/end ]; do sleep 0.1; done"
                self.make_file(self.job(command))
                running = self.start("submit", self.project, "--image", cluster_support.IMAGE, "--follow")
                name = running.wait_for(r"^hello-\w+$").group(0)
                self.make_pods(self.get("adaptdljob", name), 1)
                running.wait_for(r"^\[0\] began$")
                running.wait_for(r"^\[0\] /adaptdl/checkpoint$")
                self.set_status(name, phase=phase, reason="Because", message="of this")
                # The container may end before kubectl receives the result of its command.
                self.kubectl("exec", self.pods_of(name)[0]["metadata"]["name"], "--", "touch", "/tmp/end", check=False)
                self.assertEqual(running.finish(), code, running.text())
                if code:
                    self.assertRegex(running.err[-1], rf"^adaptdl: error: job '{name}' failed: .*of this")

    def test_interrupted_and_timed_out_waits_do_not_stop_the_job(self):
        self.make_file(self.job())
        running = self.start("submit", self.project, "--image", cluster_support.IMAGE, "--wait")
        name = running.wait_for(r"^hello-\w+$").group(0)
        self.assertEqual(running.stop(), 130)
        self.assertRegex(running.text(), f"job '{name}' continues")
        done = self.submit("--image", cluster_support.IMAGE, "--wait", "--timeout", "3s", code=1)
        self.assertRegex(done.stderr, r"timed out waiting for job .*; the job was not stopped")
        self.assertEqual(len(self.get("adaptdljobs")), 2)

    def test_a_dry_run_creates_nothing_and_prints_manifests_that_kubectl_accepts(self):
        self.make_file(self.job())
        for how in ("--dry-run", "--dry-run=server"):
            for form in ("yaml", "json"):
                done = self.submit("--image", cluster_support.IMAGE, how, "-o", form, "--checkpoint-storage-class", self.storage)
                self.assertEqual(self.left(), [])
                made = self.kubectl("create", "--dry-run=client", "-o", "name", "-f", "-", text=done.stdout)
                self.assertRegex(made, r"\Apersistentvolumeclaim/adaptdl-pvc-\S+\nadaptdljob\S*/hello-\w+\n\Z")

    def test_a_dry_run_on_the_client_does_not_contact_the_cluster(self):
        self.make_file(self.job())
        nowhere = self.project / "kubeconfig"
        done = self.submit("--image", "x", "--dry-run=client", KUBECONFIG=self.make_dead(nowhere))
        self.assertIn("kind: AdaptDLJob", done.stdout)

    @staticmethod
    def make_dead(path):
        path.write_text(json.dumps({
            "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}], "users": [{"name": "u", "user": {}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}], "current-context": "x",
        }))  # fmt: skip
        return path

    def test_submit_rejects_invalid_input_before_creating_anything(self):
        image = ("--image", cluster_support.IMAGE)
        self.assertRegex(self.refusal(*image, code=2), "job file '.*adaptdljob.yaml' not found")
        self.make_file(self.job(spec={"minReplicas": 3, "maxReplicas": 2}))
        self.assertRegex(self.refusal(*image), r"spec.minReplicas \(3\) must not be greater")
        self.make_file(self.job())
        self.assertRegex(self.refusal(code=2), "has no Dockerfile, and none of the files .*meson.build, .*--image")
        self.assertRegex(self.refusal(*image, "--checkpoint-storage-class", "gone"), f"storage class 'gone' not found; available: .*{self.storage}")
        self.assertRegex(self.refusal(*image, "--tensorboard", "gone"), "PersistentVolumeClaim 'adaptdl-tensorboard-gone' not found .*tensorboard create -n \\S+ gone")
        self.assertRegex(self.refusal(*image, ADAPTDL_SUBMIT_REPO_CREDS="gone"), "Secret 'gone' not found .*ADAPTDL_SUBMIT_REPO_CREDS")
        self.assertRegex(self.refusal(*image, "--namespace", "gone"), "gone")
        self.assertRegex(self.refusal(*image, "--checkpoint-storage-size", "much", code=2), "invalid --checkpoint-storage-size 'much': expected an amount of storage")
        self.make_file(self.job(volumeMounts=[{"name": "none", "mountPath": "/x"}]))
        self.assertRegex(self.refusal(*image), "the pods of job .* would be rejected: .*volumeMounts")
        self.assertEqual(self.left(), [])

    def test_a_name_already_in_use_is_rejected_and_the_existing_job_is_kept(self):
        job = self.job()
        job["metadata"] = {"name": "fixed"}
        self.make_file(job)
        self.submit("--image", cluster_support.IMAGE)
        before = self.left()
        self.assertRegex(self.refusal("--image", cluster_support.IMAGE), "job 'fixed' already exists in namespace")
        self.assertEqual(self.left(), before)

    def test_without_permission_to_create_both_jobs_and_claims_neither_is_created(self):
        self.make_file(self.job())
        full = ["get", "list", "create", "patch", "delete"]
        named = ("--image", cluster_support.IMAGE, "--checkpoint-storage-class", self.storage)
        for jobs, claims in ((full, ["get", "patch", "delete"]), (["get", "delete"], full)):
            self.assertRegex(self.refusal(*named, KUBECONFIG=self.as_user(self.rules(jobs, claims))), "forbidden")
            self.assertEqual(self.left(), [])

    def test_without_permission_to_set_the_owner_of_a_claim_nothing_is_left_behind(self):
        self.make_file(self.job())
        rules = self.rules(["get", "create", "delete"], ["get", "create", "delete"])
        named = ("--image", cluster_support.IMAGE, "--checkpoint-storage-class", self.storage)
        self.assertRegex(self.refusal(*named, KUBECONFIG=self.as_user(rules)), "forbidden.*patch|patch.*forbidden")
        self.assertEqual(self.left(), [])

    def test_submitting_two_jobs_with_quota_for_one_leaves_nothing_behind(self):
        quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}}
        for what in ("count/adaptdljobs.adaptdl.petuum.com", "persistentvolumeclaims"):
            self.apply({**quota, "spec": {"hard": {what: "1"}}})
            self.wait_for("the quota is counted", lambda: self.get("resourcequota", "q").get("status", {}).get("used") == {what: "0"})
            self.make_file(self.job(), self.job())
            self.assertRegex(self.refusal("--image", cluster_support.IMAGE), "exceeded quota: q")
            self.wait_for("nothing is left", lambda: self.left() == [])
            self.kubectl("delete", "resourcequota", "q")


if __name__ == "__main__":
    cluster_support.main()
