"""Support for tests of jobs in a cluster: jobs, pods and volumes like those that the original operator creates."""

import copy
import json
import pathlib
import secrets

import cluster_support
from cluster_support import JOBS, PATIENCE, ClusterTest, kubectl


class ClusterJobsTest(ClusterTest):
    """Base class of tests that create jobs."""

    def make_volume(self, claim, owner=None, create=True):
        """Creates a claim that is bound to a directory that both nodes can access. Returns the directory if the test can access it,
        too. With create=False, the directory does not exist, so pods with the claim do not start."""
        name = f"{self.namespace}-{claim}"[-63:].lstrip("-.")
        path = self.directory / "volumes" / claim if cluster_support.OWN else pathlib.Path("/tmp/adaptdl-test-volumes") / name
        common = {"storageClassName": "", "accessModes": ["ReadWriteMany"]}
        self.volumes.append(name)
        self.apply(
            {
                "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
                "spec": {
                    **common, "capacity": {"storage": "10Gi"}, "persistentVolumeReclaimPolicy": "Retain",
                    "hostPath": {"path": str(path), "type": "DirectoryOrCreate" if create else "Directory"},
                    "claimRef": {"namespace": self.namespace, "name": claim},
                },
            },
            {
                "apiVersion": "v1", "kind": "PersistentVolumeClaim",
                "metadata": {"name": claim, **({"ownerReferences": [_owner(owner)]} if owner else {})},
                "spec": {**common, "volumeName": name, "resources": {"requests": {"storage": "1Gi"}}},
            },
        )  # fmt: skip
        self.kubectl_bound(claim)
        return path if cluster_support.OWN else None

    def make_shared_class(self, claim):
        """Creates a storage class with one volume for this claim, a directory that both nodes can access. Returns the class's name."""
        name = f"{self.namespace}-{claim}"[-63:].lstrip("-.")
        self.volumes.append(name)
        self.apply(
            {
                "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
                "provisioner": "kubernetes.io/no-provisioner",
            },
            {
                "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
                "spec": {
                    "storageClassName": name, "accessModes": ["ReadWriteMany"], "capacity": {"storage": "10Gi"},
                    "persistentVolumeReclaimPolicy": "Retain", "claimRef": {"namespace": self.namespace, "name": claim},
                    "hostPath": {"path": str(self.directory / "volumes" / claim), "type": "DirectoryOrCreate"},
                },
            },
        )  # fmt: skip
        self.addCleanup(kubectl, "delete", "storageclass", name)
        return name

    def kubectl_bound(self, claim):
        self.wait_for(f"{claim} is bound", lambda: self.get("pvc", claim)["status"].get("phase") == "Bound")

    def make_template(self, command, image=None, volume=None, **container):
        """Returns a pod template as completed by `adaptdl submit`. `volume` is the claim for checkpoints and shared files."""
        main = {"name": "main", "image": image or cluster_support.IMAGE, "command": ["sh", "-c", command], **container}
        spec = {"containers": [main], "terminationGracePeriodSeconds": 1}
        if volume:
            spec["volumes"] = [{"name": "adaptdl-pvc", "persistentVolumeClaim": {"claimName": volume}}]
            main["volumeMounts"] = [
                {"name": "adaptdl-pvc", "mountPath": f"/adaptdl/{part}", "subPath": f"adaptdl/{part}"}
                for part in ("checkpoint", "share")
            ]
            main["env"] = [
                {"name": f"ADAPTDL_{part.upper()}_PATH", "value": f"/adaptdl/{part}"} for part in ("checkpoint", "share")
            ]
        return {"spec": spec}

    def make_job(self, name, command="sleep 100000", replicas=1, group=0, phase=None, volume=False, template=None,
                 nodes=None, ready=True, spec=None, **more):  # fmt: skip
        """Creates an AdaptDLJob with its pods and status, and returns it. `volume`: whether the job owns a claim. `phase`: if None,
        the job is Running once all pods are running, or Starting with ready=False. `nodes`: the node of each rank. `more` is passed
        to make_template()."""
        claim = f"adaptdl-pvc-{secrets.token_hex(8)}" if volume else None
        job = {
            "apiVersion": "adaptdl.petuum.com/v1", "kind": "AdaptDLJob", "metadata": {"name": name},
            "spec": {"template": template or self.make_template(command, volume=claim, **more), **(spec or {})},
        }  # fmt: skip
        job = json.loads(self.kubectl("create", "-f", "-", "-o", "json", text=json.dumps(job)))
        if claim:
            self.make_volume(claim, job)
        if not replicas:
            return self.set_status(name, phase=phase or "Pending")
        self.make_pods(job, replicas, group, nodes)
        ready = ready and phase in (None, "Running")
        if ready:
            self.wait_for_pods(name)
        return self.set_status(name, phase=phase or ("Running" if ready else "Starting"), readyReplicas=replicas if ready else 0)

    def make_pods(self, job, replicas, group=0, nodes=None):
        """Creates a job's next pods with the labels and names that the original operator uses, and updates the job's status."""
        if nodes is None:
            names = sorted(node["metadata"]["name"] for node in self.get("nodes"))
            nodes = [names[rank % len(names)] for rank in range(replicas)]
        pods = [_pod(job, self.namespace, nodes, group, rank) for rank in range(replicas)]
        self.kubectl("create", "-f", "-", text=json.dumps({"apiVersion": "v1", "kind": "List", "items": pods}))
        self.set_status(job["metadata"]["name"], phase="Starting", group=group, allocation=nodes, replicas=replicas, readyReplicas=0)

    def set_status(self, name, **status):
        """Changes fields of a job's status. None removes a field. Returns the job."""
        path = f"{JOBS.format(self.namespace)}/{name}/status"
        for _ in range(10):
            job = self.get("adaptdljob", name)
            job["status"] = {key: value for key, value in {**job.get("status", {}), **status}.items() if value is not None}
            done = self.kubectl("replace", "--raw", path, "-f", "-", text=json.dumps(job), check=False)
            if done.returncode == 0:
                return json.loads(done.stdout)
            if "modified" not in done.stderr:
                break
        raise AssertionError(f"the status of {name} could not be changed: {done.stderr}")

    def wait_for_pods(self, job, phase="Running", patience=PATIENCE):
        """Waits until all pods of a job are in this phase. Returns them in the order of their ranks."""

        def there():
            pods = self.pods_of(job)
            return pods if pods and all(pod["status"].get("phase") == phase for pod in pods) else None

        return self.wait_for(f"pods of {job} are {phase}", there, patience)

    def pods_of(self, job):
        pods = self.get("pods", None, "-l", f"adaptdl/job={job}")
        return sorted(pods, key=lambda pod: int(pod["metadata"]["annotations"]["adaptdl/rank"]))


def _owner(job):
    return {
        "apiVersion": "adaptdl.petuum.com/v1", "kind": "AdaptDLJob", "name": job["metadata"]["name"],
        "uid": job["metadata"]["uid"], "controller": True, "blockOwnerDeletion": True,
    }  # fmt: skip


def _pod(job, namespace, nodes, group, rank):
    name, uid = job["metadata"]["name"], job["metadata"]["uid"]
    pod = copy.deepcopy(job["spec"]["template"])
    metadata, spec = pod.setdefault("metadata", {}), pod["spec"]
    pod.update(apiVersion="v1", kind="Pod")
    metadata.update(name=f"{name}-{uid}-{group}-{rank}", ownerReferences=[_owner(job)])
    metadata.setdefault("labels", {}).update({"adaptdl": "true", "adaptdl/job": name, "petuum.com/nodegroup": "all"})
    metadata.setdefault("annotations", {}).update(
        {
            "adaptdl/group": str(group), "adaptdl/rank": str(rank), "adaptdl/replicas": str(len(nodes)),
            "adaptdl/node": nodes[rank],
        }
    )  # fmt: skip
    spec.update(hostname=f"{name}-{group}-{rank}", restartPolicy="Never")
    spec.setdefault("nodeSelector", {})["kubernetes.io/hostname"] = nodes[rank]
    spec.setdefault("volumes", []).append({"name": "adaptdl-shm", "emptyDir": {"medium": "Memory"}})
    environment = {
        "JOB_ID": f"{namespace}/{name}", "MASTER_PORT": 47000 + group, "NUM_NODES": len(set(nodes)), "NUM_RESTARTS": group,
        "NUM_REPLICAS": len(nodes), "REPLICA_RANK": rank, "SUPERVISOR_URL": "http://adaptdl-supervisor:8080",
        "SCHED_VERSION": "0.2.9",
    }  # fmt: skip
    for container in spec["containers"]:
        container.setdefault("volumeMounts", []).append({"name": "adaptdl-shm", "mountPath": "/dev/shm"})
        container.setdefault("env", []).extend(
            {"name": f"ADAPTDL_{key}", "value": str(value)} for key, value in environment.items()
        )
    return pod
