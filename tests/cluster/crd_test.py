"""Tests the resource AdaptDLJob with kubectl and with the requests of the original operator."""

import json

import cluster_support
from cluster_support import ClusterTest

PATH = cluster_support.JOBS
HINTS = {
    "initBatchSize": 128, "localBszBounds": [32, 256], "globalBatchSize": 512, "maxBatchSize": 1024, "maxProfiledReplicas": 2,
    "gradientAccumulation": True, "gradParams": {"norm": 0.5, "var": 1.5},
    "perfParams": {"alpha_c": 0.1, "beta_c": 0.01, "alpha_n": 0.2, "beta_n": 0.02, "alpha_r": 0.3, "beta_r": 0.03, "gamma": 1.5},
}  # fmt: skip


def job(name=None, **spec):
    """Returns a job like those in the examples of the original AdaptDL."""
    template = {
        "spec": {
            "containers": [
                {
                    "name": "main", "image": "localhost/none:1", "command": ["python3", "/root/mlm_task_adaptdl.py"],
                    "env": [{"name": "PYTHONUNBUFFERED", "value": "true"}], "resources": {"limits": {"nvidia.com/gpu": 1}},
                }
            ]
        }
    }  # fmt: skip
    metadata = {"name": name} if name else {"generateName": "mlm-task-"}
    spec = {"template": template, **spec}
    return {
        "apiVersion": "adaptdl.petuum.com/v1", "kind": "AdaptDLJob", "metadata": metadata,
        "spec": {key: value for key, value in spec.items() if value is not None},
    }  # fmt: skip


class CrdTest(ClusterTest):
    def create(self, resource):
        return self.kubectl("create", "-f", "-", "-o", "json", text=json.dumps(resource), check=False)

    def created(self, resource):
        done = self.create(resource)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def patch_status(self, name, status):
        """Merges fields into the status. The original operator sends a merge patch, which kubectl 1.20 cannot do for a status."""
        current = json.loads(self.kubectl("get", "--raw", f"{PATH.format(self.namespace)}/{name}"))
        current["status"] = {**current.get("status", {}), **status}
        path = f"{PATH.format(self.namespace)}/{name}/status"
        done = self.kubectl("replace", "--raw", path, "-f", "-", text=json.dumps(current), check=False)
        return done.returncode, done.stdout or done.stderr

    def test_jobs_written_for_the_original_operator_are_stored_unchanged(self):
        for resource in (
            job(),
            job(minReplicas=0, maxReplicas=1, preemptible=False),
            job("all-fields", minReplicas=2, maxReplicas=2, preemptible=True),
        ):
            kept = self.created(resource)
            self.assertEqual(kept["spec"], resource["spec"])
            self.assertTrue(kept["metadata"]["name"])

    def test_a_job_keeps_its_volumes_pull_secrets_labels_and_annotations(self):
        resource = job("submitted")
        spec = resource["spec"]["template"]["spec"]
        spec["imagePullSecrets"] = [{"name": "registry"}]
        spec["volumes"] = [{"name": "adaptdl-pvc", "persistentVolumeClaim": {"claimName": "adaptdl-pvc-1"}}]
        spec["containers"][0]["volumeMounts"] = [
            {"name": "adaptdl-pvc", "mountPath": "/adaptdl/share", "subPath": "adaptdl/share"}
        ]
        resource["spec"]["template"]["metadata"] = {"annotations": {"team": "vision"}, "labels": {"team": "vision"}}
        self.assertEqual(self.created(resource)["spec"], resource["spec"])

    def test_an_invalid_job_is_rejected_and_the_error_names_the_field(self):
        no_containers = {"spec": {"containers": []}}
        nameless = {"spec": {"containers": [{"image": "x"}]}}
        for resource, words in (
            (job("a", template=None), "spec.template"),
            (job("b", template={}), "spec.template.spec"),
            (job("c", template=no_containers), "spec.template.spec.containers"),
            (job("d", template=nameless), "spec.template.spec.containers"),
            (job("e", maxReplicas=0), "spec.maxReplicas"),
            (job("f", minReplicas=-1), "spec.minReplicas"),
            (job("g", minReplicas="two"), "spec.minReplicas"),
            (job("h", preemptible="yes"), "spec.preemptible"),
            (job("i", suspend="yes"), "spec.suspend"),
            (job("n" * 64), "metadata.name"),
        ):
            done = self.create(resource)
            self.assertNotEqual(done.returncode, 0, words)
            # Older clients omit the leading "spec." in errors that they detect themselves.
            self.assertIn(words.removeprefix("spec."), done.stderr)

    def test_kubectl_apply_updates_an_existing_job(self):
        self.apply(job("applied", maxReplicas=2))
        self.apply(job("applied", maxReplicas=4))
        self.assertEqual(self.get("adaptdljob", "applied")["spec"]["maxReplicas"], 4)

    def test_kubectl_get_prints_status_columns_for_every_name_of_the_resource(self):
        self.created(job("columns", minReplicas=1, maxReplicas=8))
        status = {"phase": "Running", "group": 3, "replicas": 4, "readyReplicas": 2, "reason": "Scaled", "message": "more nodes came"}
        self.assertEqual(self.patch_status("columns", status)[0], 0)
        for kind in ("adaptdljobs", "adaptdljob", "adljob", "adljobs"):
            header, row = self.kubectl("get", kind, "columns").splitlines()
            self.assertEqual(header.split(), ["NAME", "STATUS", "READY", "REPLICAS", "RESTARTS", "AGE"])
            self.assertRegex(row, r"^columns +Running +2 +4 +3 +\d+[smh]")
        header, row = self.kubectl("get", "adljob", "columns", "-o", "wide").splitlines()
        self.assertEqual(header.split()[6:], ["MIN", "MAX", "REASON", "MESSAGE"])
        self.assertRegex(row, r" 1 +8 +Scaled +more nodes came$")
        self.assertRegex(self.kubectl("get", "all"), r"(?m)^adaptdljob\S*/columns ")

    def test_every_status_of_the_original_operator_is_accepted_and_stored(self):
        self.created(job("status"))
        for status in (
            {"phase": "Pending", "allocation": None, "replicas": None, "readyReplicas": None},
            {"phase": "Starting", "allocation": ["node0", "node0", "node1"], "replicas": 3, "readyReplicas": 0, "group": 0},
            {"phase": "Running", "readyReplicas": 3, "train": HINTS},
            {"train": {**HINTS, "gradParams": None, "perfParams": None, "somethingNew": {"a": [1]}}},
            {"phase": "Stopping", "allocation": []},
            {"phase": "Failed", "reason": "PodFailure", "message": "status-0 Failed"},
            {"phase": "Succeeded", "completionTimestamp": "2021-03-18T12:00:00.123456+00:00"},
            {"ofALaterVersion": {"kept": True}},
        ):
            code, answer = self.patch_status("status", status)
            self.assertEqual(code, 0, answer)
            kept = self.get("adaptdljob", "status")["status"]
            for key, value in status.items():
                self.assertEqual(kept.get(key), value, key)

    def test_an_invalid_status_is_rejected_and_the_error_names_the_field(self):
        self.created(job("wrong"))
        for status, words in (
            ({"phase": "Done"}, "status.phase"),
            ({"allocation": "node0"}, "status.allocation"),
            ({"replicas": -1}, "status.replicas"),
            ({"conditions": [{"type": "Ready"}]}, "status.conditions"),
        ):
            code, answer = self.patch_status("wrong", status)
            self.assertNotEqual(code, 0)
            self.assertIn(words, answer)

    def test_the_suspend_field_and_the_suspended_phase_are_accepted(self):
        self.assertIs(self.created(job("suspended", suspend=True))["spec"]["suspend"], True)
        self.assertEqual(self.patch_status("suspended", {"phase": "Suspended"})[0], 0)

    def test_spec_and_status_are_updated_independently(self):
        self.created(job("apart", maxReplicas=2))
        self.assertEqual(self.patch_status("apart", {"phase": "Running"})[0], 0)
        self.kubectl("patch", "adljob", "apart", "--type=merge", "-p", '{"spec": {"maxReplicas": 3}, "status": {"phase": "Failed"}}')
        both = self.get("adaptdljob", "apart")
        self.assertEqual((both["spec"]["maxReplicas"], both["status"]["phase"]), (3, "Running"))

    def test_kubectl_explain_describes_the_fields_of_a_job(self):
        for field, words in (
            ("spec.minReplicas", "Minimum number"), ("spec.preemptible", "checkpoint"), ("spec.suspend", "suspended"), ("status", "scheduler"),
        ):  # fmt: skip
            text = self.wait_for(
                "the definition is published",
                lambda field=field: self.kubectl("explain", f"adaptdljob.{field}", check=False).stdout,
            )
            self.assertIn(words, text)


if __name__ == "__main__":
    cluster_support.main()
