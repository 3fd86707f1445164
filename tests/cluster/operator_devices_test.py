"""Tests that the operator accounts for devices of dynamic resource allocation: jobs get only devices that exist and are free.

Kubernetes 1.20 does not have the API group resource.k8s.io. CustomResourceDefinitions stand in for its resources, and the test
stands in for the driver that writes ResourceSlices and the scheduler that allocates claims.
"""

import json

import cluster_support
from cluster_support import kubectl
from operator_jobs_support import IMAGE
from operator_support import OperatorTest

GROUP = "resource.k8s.io"
DRIVER = "gpu.example.com"
KINDS = {"DeviceClass": "Cluster", "ResourceSlice": "Cluster", "ResourceClaim": "Namespaced", "ResourceClaimTemplate": "Namespaced"}
RESOURCE = "deviceclass.resource.kubernetes.io/gpu.example.com"


def plural(kind):
    return kind.lower() + ("es" if kind.endswith("s") else "s")


def definition(kind):
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural(kind)}.{GROUP}", "annotations": {"api-approved.kubernetes.io": "unapproved, for tests"}},
        "spec": {
            "group": GROUP, "scope": KINDS[kind], "names": {"kind": kind, "plural": plural(kind), "singular": kind.lower()},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
        },
    }  # fmt: skip


def make(kind, name, **fields):
    return {"apiVersion": f"{GROUP}/v1", "kind": kind, "metadata": {"name": name}, **fields}


def make_slice(node, count, generation=1):
    devices = [{"name": f"gpu-{index}", "attributes": {"type": {"string": "gpu"}}} for index in range(count)]
    devices.append({"name": "part-0", "attributes": {"type": {"string": "partition"}}})
    pool = {"name": node, "generation": generation, "resourceSliceCount": 1}
    return make("ResourceSlice", f"{node}-gpus", spec={"driver": DRIVER, "nodeName": node, "pool": pool, "devices": devices})


class DevicesTest(OperatorTest):
    # The validator does not apply to the test's namespace, because it would reject the jobs: without the API group,
    # the API server reports a pod's claims as an unknown field.
    settings = {"validatorNamespaces": "{matchLabels: {tests.adaptdl/validated: 'true'}}"}

    @classmethod
    def setUpClass(cls):
        if cluster_support.OWN:
            for kind in KINDS:
                cls.addClassCleanup(kubectl, "delete", "customresourcedefinition", f"{plural(kind)}.{GROUP}", "--ignore-not-found")
            kubectl("apply", "-f", "-", text=json.dumps({"apiVersion": "v1", "kind": "List", "items": [*map(definition, KINDS)]}))
            names = [f"customresourcedefinition/{plural(kind)}.{GROUP}" for kind in KINDS]
            kubectl("wait", "--for=condition=Established", *names, "--timeout=60s")
        super().setUpClass()

    def setUp(self):
        super().setUp()
        for node in ("node0", "node1"):
            self.set_gpus(0, node)

    def apply(self, *objects):
        self.kubectl("apply", "-f", "-", text=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))

    def create_job_with_claims(self, name, replicas):
        template = self.make_template("sleep 100000", image=IMAGE)
        template["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]
        template["spec"]["containers"][0]["resources"] = {"claims": [{"name": "gpu"}]}
        self.create_job(name, template, minReplicas=replicas, maxReplicas=replicas)

    def gpus_of_nodes(self):
        done = self.adaptdl("top", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        return {node["name"]: node["allocatable"].get(RESOURCE, 0) for node in json.loads(done.stdout)["nodes"]}

    def test_jobs_are_placed_where_devices_of_dynamic_resource_allocation_are_free(self):
        selector = f"device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].type == 'gpu'"
        request = {"name": "gpu", "exactly": {"deviceClassName": DRIVER, "allocationMode": "ExactCount", "count": 1}}
        self.apply(
            make("DeviceClass", DRIVER, spec={"selectors": [{"cel": {"expression": selector}}]}),
            make_slice("node0", 2),
            make_slice("node1", 1),
            make("ResourceClaimTemplate", "one-gpu", spec={"spec": {"devices": {"requests": [request]}}}),
        )
        # `top` accepts cached objects from the API server, which may be slightly out of date.
        self.wait_for("the devices are listed", lambda: self.gpus_of_nodes() == {"node0": 2, "node1": 1})
        self.create_job_with_claims("first", 3)
        first = self.wait_for_phase("first", "Running")
        self.assertEqual(sorted(first["allocation"]), ["node0", "node0", "node1"])

        self.create_job_with_claims("second", 1)
        self.wait_for_status("waiting", "second", lambda status: status.get("reason") == "Waiting")
        self.apply(make_slice("node1", 2, generation=2))
        second = self.wait_for_phase("second", "Running")
        self.assertEqual(second["allocation"], ["node1"])

        # This claim does not belong to the pod of a replica.
        self.kubectl("delete", "adaptdljob", "second")
        devices = [{"request": "gpu", "driver": DRIVER, "pool": "node1", "device": "gpu-1"}]
        self.apply(make("ResourceClaim", "of-others", spec={}, status={"allocation": {"devices": {"results": devices}}}))
        self.create_job_with_claims("third", 1)
        self.wait_for_status("waiting", "third", lambda status: status.get("reason") == "Waiting")
        self.kubectl("delete", "resourceclaim", "of-others")
        third = self.wait_for_phase("third", "Running")
        self.assertEqual(third["allocation"], ["node1"])


if __name__ == "__main__":
    cluster_support.main()
