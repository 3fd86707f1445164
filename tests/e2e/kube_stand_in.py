"""A stand-in for a Kubernetes cluster with adaptdl's operator: an API server on loopback that stores AdaptDLJobs, pods and volume
claims, and runs one replica of each job as a process on this machine. Tests can stop the server and make it reject requests, which
a real cluster does not do on demand."""

import datetime
import http.server
import json
import os
import pathlib
import re
import secrets
import signal
import socket
import subprocess
import threading
import time
import urllib.parse

JOBS = "/apis/adaptdl.petuum.com/v1/namespaces/default/adaptdljobs"
PODS = "/api/v1/namespaces/default/pods"
CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
NODES = "/api/v1/nodes"
COLLECTIONS = (JOBS, PODS, CLAIMS, CLASSES, NODES)
ENDED = ("Succeeded", "Failed")
PATIENCE = 60


def timestamp(nanoseconds):
    seconds = datetime.datetime.fromtimestamp(nanoseconds // 10**9, datetime.timezone.utc)
    return f"{seconds:%Y-%m-%dT%H:%M:%S}.{nanoseconds % 10**9:09}Z"


def merge(target, patch):
    """Applies a JSON merge patch (RFC 7386) to `target`."""
    for name, value in patch.items():
        if value is None:
            target.pop(name, None)
        elif isinstance(value, dict) and isinstance(target.get(name), dict):
            merge(target[name], value)
        else:
            target[name] = value


class Replica:
    """The process of a job's pod, and its log."""

    def __init__(self, cluster, job, pod):
        self.cluster, self.pod, self.lines, self.ended = cluster, pod, [], False
        container = job["spec"]["template"]["spec"]["containers"][0]
        volume = cluster.volume(job)
        for name in ("checkpoint", "share"):
            (volume / name).mkdir(parents=True, exist_ok=True)
        annotations = job["spec"]["template"]["metadata"]["annotations"]
        (volume / "params.json").write_text(annotations["adaptdl/parameters"])
        environment = {"PATH": os.environ["PATH"]}
        environment.update((entry["name"], entry["value"].replace("$$", "$")) for entry in container["env"])
        environment["ADAPTDL_CHECKPOINT_PATH"] = str(volume / "checkpoint")
        environment["ADAPTDL_PARAMS_FILE"] = str(volume / "params.json")
        (volume / "environment.json").write_text(json.dumps(environment))
        self.process = subprocess.Popen(
            [word.replace("$$", "$") for word in container["command"]], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, cwd=cluster.directory, env=environment,
        )  # fmt: skip
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        with self.process.stdout as stream:
            for line in stream:
                with self.cluster.changed:
                    self.lines.append((time.time_ns(), line.rstrip("\n")))
                    self.cluster.changed.notify_all()


class Cluster:
    """The cluster. `changed` is the lock for everything that the threads of the server and of the operator share."""

    def __init__(self, directory):
        self.directory = pathlib.Path(directory)
        self.changed = threading.Condition()
        self.objects = {collection: {} for collection in COLLECTIONS}
        self.objects[CLASSES]["shared"] = {"metadata": {"name": "shared"}, "provisioner": "nfs.csi.k8s.io"}
        self.version, self.events = 0, []  # (version, collection, type, object)
        self.replicas = {}  # by pod name
        self.refusals = 0  # how many of the next requests are answered with status 403
        self.requests = []  # (method, path) of all requests that change something
        self.closed = False
        self.server = self.port = None
        self.open_server()
        self.operator = threading.Thread(target=self._operate, daemon=True)
        self.operator.start()

    def close(self):
        """Stops the operator and the server, and kills the replicas."""
        self.closed = True
        self.operator.join(PATIENCE)
        self.close_server()
        for replica in self.replicas.values():
            if replica.process.poll() is None:
                replica.process.kill()
            replica.process.wait(PATIENCE)
            replica.reader.join(PATIENCE)

    def open_server(self):
        cluster = self

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True
            allow_reuse_address = True

            def __init__(self, *arguments):
                self.connections = set()
                super().__init__(*arguments)

            def process_request(self, request, address):
                self.connections.add(request)
                super().process_request(request, address)

            def shutdown_request(self, request):
                self.connections.discard(request)
                super().shutdown_request(request)

            def handle_error(self, request, address):
                pass  # tests disconnect clients on purpose

        class Handler(RequestHandler):
            pass

        Handler.cluster = cluster
        self.server = Server(("127.0.0.1", self.port or 0), Handler)
        self.port = self.server.server_port
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def close_server(self):
        """Stops the API server and closes all its connections. Jobs continue to run."""
        server, self.server = self.server, None
        if server is None:
            return
        server.shutdown()
        server.server_close()
        for connection in list(server.connections):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # already closed
        with self.changed:
            self.changed.notify_all()

    def kubeconfig(self):
        """Returns a kubeconfig for the cluster, in JSON."""
        return json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "stand-in",
            "clusters": [{"name": "stand-in", "cluster": {"server": f"http://127.0.0.1:{self.port}"}}],
            "users": [{"name": "user", "user": {"token": "secret"}}],
            "contexts": [{"name": "stand-in", "context": {"cluster": "stand-in", "user": "user", "namespace": "default"}}],
        })  # fmt: skip

    def volume(self, job):
        """Returns the directory of a job's volume, which is named after the trial."""
        volumes = job["spec"]["template"]["spec"]["volumes"]
        (claim,) = [each["persistentVolumeClaim"]["claimName"] for each in volumes if "persistentVolumeClaim" in each]
        return self.directory / "volumes" / claim.rpartition("-")[2]

    def all(self, collection):
        with self.changed:
            return {name: json.loads(json.dumps(each)) for name, each in self.objects[collection].items()}

    # Callers of the functions below must hold the lock.

    def put(self, collection, item, kind="MODIFIED"):
        self.version += 1
        item["metadata"]["resourceVersion"] = str(self.version)
        if kind == "DELETED":
            self.objects[collection].pop(item["metadata"]["name"], None)
        else:
            self.objects[collection][item["metadata"]["name"]] = item
        self.events.append((self.version, collection, kind, json.loads(json.dumps(item))))
        self.changed.notify_all()

    def create(self, collection, item):
        item["metadata"].update(uid=secrets.token_hex(8), creationTimestamp=timestamp(time.time_ns()), namespace="default")
        self.put(collection, item, "ADDED")

    def remove(self, collection, item):
        self.put(collection, item, "DELETED")
        if collection != JOBS:
            return
        for owned in (PODS, CLAIMS):
            for each in list(self.objects[owned].values()):
                if any(owner["uid"] == item["metadata"]["uid"] for owner in each["metadata"].get("ownerReferences", [])):
                    self.remove(owned, each)
                    if owned == PODS and self.replicas[each["metadata"]["name"]].process.poll() is None:
                        self.replicas[each["metadata"]["name"]].process.kill()

    # The functions below implement the operator.

    def _operate(self):
        while not self.closed:
            with self.changed:
                for job in list(self.objects[JOBS].values()):
                    self._reconcile(job)
            time.sleep(0.02)

    def _set_status(self, job, **fields):
        job.setdefault("status", {}).update(fields)
        self.put(JOBS, job)

    def _pod_of(self, job):
        return next((pod for pod in self.objects[PODS].values()
                     if pod["metadata"]["ownerReferences"][0]["uid"] == job["metadata"]["uid"]), None)

    def _reconcile(self, job):
        phase, suspend = job.get("status", {}).get("phase"), job["spec"].get("suspend", False)
        if phase in ENDED:
            return
        pod = self._pod_of(job)
        if pod is None:
            if not suspend:
                self._start(job)
            elif phase != "Suspended":
                self._set_status(job, phase="Suspended", message="suspended by spec.suspend", allocation=[], readyReplicas=0)
            return
        replica = self.replicas[pod["metadata"]["name"]]
        code = replica.process.poll()
        if code is None:
            if suspend and phase != "Stopping":
                replica.process.send_signal(signal.SIGTERM)
                self._set_status(job, phase="Stopping", message="suspended by spec.suspend")
            return
        if replica.reader.is_alive():
            return  # the rest of the replica's output has not been read yet
        self._end(job, pod, replica, code, suspend)

    def _start(self, job):
        group = job.get("status", {}).get("group", -1) + 1
        name = f"{job['metadata']['name']}-{job['metadata']['uid']}-{group}-0"
        pod = {
            "metadata": {
                "name": name, "labels": {"adaptdl": "true", "adaptdl/job": job["metadata"]["name"]},
                "annotations": {"adaptdl/group": str(group), "adaptdl/rank": "0", "adaptdl/replicas": "1"},
                "ownerReferences": [{"kind": "AdaptDLJob", "name": job["metadata"]["name"], "uid": job["metadata"]["uid"]}],
            },
            "spec": {"nodeName": "node0", "containers": [{"name": "main"}]},
            "status": {"phase": "Running", "containerStatuses": [{"name": "main", "ready": True, "state": {"running": {}}}]},
        }  # fmt: skip
        self.replicas[name] = Replica(self, job, pod)
        self.create(PODS, pod)
        self._set_status(job, phase="Running", message="", group=group, allocation=["node0"], replicas=1, readyReplicas=1)

    def _end(self, job, pod, replica, code, suspend):
        replica.ended = True
        pod["status"] = {
            "phase": "Succeeded" if code == 0 else "Failed",
            "containerStatuses": [{"name": "main", "ready": False, "state": {"terminated": {"exitCode": code}}}],
        }  # fmt: skip
        self.put(PODS, pod)
        usage = {"gpuSeconds": job["status"].get("usage", {}).get("gpuSeconds", 0) + 10}
        if code == 143:
            self.remove(PODS, pod)
            self._set_status(job, phase="Suspended" if suspend else "Pending", message="", readyReplicas=0, usage=usage)
        elif code == 0:
            self._set_status(job, phase="Succeeded", message="all replicas have exited", readyReplicas=0, usage=usage)
        else:
            self._set_status(job, phase="Failed", message=f"replica 0 exited with code {code}", readyReplicas=0, usage=usage)


class RequestHandler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    cluster = None

    def log_message(self, *arguments):
        pass

    def answer(self, code, body):
        data = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def refuse(self, code, reason, name=""):
        details = {"name": name} if name else {}
        self.answer(code, {"kind": "Status", "code": code, "reason": reason, "message": f"{reason} {name}", "details": details})

    def write_chunk(self, data):
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def begin_stream(self):
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def handle_any(self):
        cluster = self.cluster
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        target = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(target.query))
        with cluster.changed:
            refused = cluster.refusals > 0
            cluster.refusals -= refused
            if self.command != "GET":
                cluster.requests.append((self.command, target.path))
        if refused:
            return self.refuse(403, "Forbidden")
        collection = next((each for each in COLLECTIONS if target.path == each or target.path.startswith(each + "/")), None)
        if collection is None:
            return self.refuse(404, "NotFound")
        name, _, part = target.path[len(collection) + 1 :].partition("/")
        if part == "log":
            return self.send_log(name, query)
        if not name and self.command == "GET":
            return self.watch(collection, query) if query.get("watch") in ("true", "1") else self.list(collection, query)
        with cluster.changed:
            code, answer = self.change(collection, name, json.loads(body) if body else None, query)
        if code >= 400:
            return self.refuse(code, answer, name)
        self.answer(code, answer)

    do_GET = do_POST = do_PATCH = do_DELETE = handle_any

    def change(self, collection, name, body, query):
        """Makes a change. Returns the status code, and the object or the reason for a rejection. Requires the lock."""
        cluster = self.cluster
        if self.command == "POST":
            name = body["metadata"]["name"]
            if name in cluster.objects[collection]:
                return 409, "AlreadyExists"
            if query.get("dryRun") == "All":
                return 201, body
            cluster.create(collection, body)
            return 201, body
        item = cluster.objects[collection].get(name)
        if item is None:
            return 404, "NotFound"
        if self.command == "PATCH":
            if body.get("metadata", {}).get("uid", item["metadata"]["uid"]) != item["metadata"]["uid"]:
                return 409, "Conflict"
            merge(item, body)
            cluster.put(collection, item)
        elif self.command == "DELETE":
            cluster.remove(collection, item)
        return 200, item

    def selected(self, item, query):
        labels = item["metadata"].get("labels", {})
        wanted = [each.split("=") for each in filter(None, query.get("labelSelector", "").split(","))]
        field = re.fullmatch(r"metadata\.name=(.*)", query.get("fieldSelector", ""))
        return all(labels.get(key) == value for key, value in wanted) and (not field or field[1] == item["metadata"]["name"])

    def list(self, collection, query):
        with self.cluster.changed:
            items = [each for each in self.cluster.objects[collection].values() if self.selected(each, query)]
            answer = {"metadata": {"resourceVersion": str(self.cluster.version)}, "items": json.loads(json.dumps(items))}
        self.answer(200, answer)

    def is_open(self):
        return self.cluster.server is self.server and not self.cluster.closed

    def watch(self, collection, query):
        cluster, seen = self.cluster, int(query.get("resourceVersion", 0))
        self.begin_stream()
        while self.is_open():
            with cluster.changed:
                new = [event for event in cluster.events if event[0] > seen]
                if not new:
                    cluster.changed.wait(0.2)
                    continue
            seen = new[-1][0]
            for _, of, kind, item in new:
                if of == collection and self.selected(item, query):
                    self.write_chunk(json.dumps({"type": kind, "object": item}).encode() + b"\n")

    def send_log(self, name, query):
        cluster = self.cluster
        replica = cluster.replicas.get(name)
        with cluster.changed:
            if replica is None or name not in cluster.objects[PODS]:
                replica = None
        if replica is None:
            return self.refuse(404, "NotFound", name)
        self.begin_stream()
        sent = 0
        while self.is_open():
            with cluster.changed:
                lines, ended = replica.lines[sent:], replica.ended or not query.get("follow")
                if not lines and not ended:
                    cluster.changed.wait(0.2)
                    continue
            sent += len(lines)
            for when, line in lines:
                if timestamp(when) >= query.get("sinceTime", ""):
                    self.write_chunk(f"{timestamp(when)} {line}\n".encode())
            if ended and not lines:
                return self.write_chunk(b"")
