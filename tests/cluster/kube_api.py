"""A client of the API server for tests that make many requests, or that must see every change of many objects."""

import http.client
import json
import socket
import ssl
import subprocess
import threading
import time
import urllib.parse

MERGE = {"Content-Type": "application/merge-patch+json"}
PATIENCE = 60


class KubeApi:
    """Requests to the API server, on a connection for each thread."""

    def __init__(self, kubeconfig):
        command = ["kubectl", "--kubeconfig", kubeconfig, "config", "view", "--raw", "--minify", "-o", "json"]
        config = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        self.address = urllib.parse.urlsplit(cluster["server"]).netloc
        self.context = ssl.create_default_context(cafile=cluster["certificate-authority"])
        self.context.load_cert_chain(user["client-certificate"], user["client-key"])
        self.local = threading.local()

    def connect(self, timeout=PATIENCE):
        return http.client.HTTPSConnection(self.address, context=self.context, timeout=timeout)

    def request(self, method, path, body=None, headers=None, missing=False):
        """Returns the response, parsed if it is JSON; None if there is no such object and `missing` is set."""
        text = None if body is None else json.dumps(body)
        for attempt in range(2):
            if not hasattr(self.local, "connection"):
                self.local.connection = self.connect()
            try:
                self.local.connection.request(method, path, text, headers or {"Content-Type": "application/json"})
                response = self.local.connection.getresponse()
                answer = response.read()
                break
            except (OSError, http.client.HTTPException):
                del self.local.connection  # the server may have closed it since the last request
                if attempt:
                    raise
        if missing and response.status in (404, 409):
            return None
        if response.status >= 300:
            raise RuntimeError(f"{method} {path}: {response.status} {answer.decode()}")
        return json.loads(answer) if response.getheader("Content-Type") == "application/json" else answer.decode()


class Watch:
    """Calls `take` with the type of each change of the objects of a collection (ADDED, MODIFIED or DELETED) and the object, in order,
    on a thread of its own. While the API server is away, it waits; changes that it misses then are seen as one."""

    def __init__(self, api, path, take):
        self.api, self.path, self.take = api, path, take
        self.known = {}  # by uid
        self.connection = None
        self.lock = threading.Lock()  # guards the connection
        self.ends = threading.Event()
        self.thread = threading.Thread(target=self._follow, daemon=True)
        self.thread.start()

    def stop(self):
        self.ends.set()
        with self.lock:
            if self.connection is not None and self.connection.sock is not None:
                self.connection.sock.shutdown(socket.SHUT_RDWR)
        self.thread.join(PATIENCE)

    def _follow(self):
        while not self.ends.is_set():
            try:
                version = self._list()
                while version and not self.ends.is_set():
                    version = self._watch(version)
            except (OSError, http.client.HTTPException, RuntimeError, ValueError):
                time.sleep(0.2)

    def _list(self):
        listed = self.api.request("GET", self.path)
        there = {each["metadata"]["uid"]: each for each in listed["items"]}
        for uid in [uid for uid in self.known if uid not in there]:
            self._change("DELETED", self.known[uid])
        for uid, each in there.items():
            old = self.known.get(uid)
            if old is None or old["metadata"]["resourceVersion"] != each["metadata"]["resourceVersion"]:
                self._change("ADDED" if old is None else "MODIFIED", each)
        return listed["metadata"]["resourceVersion"]

    def _watch(self, version):
        """Returns the version at which the watch ended; None if the objects have to be listed again."""
        with self.lock:
            self.connection = self.api.connect(timeout=None)
            self.connection.connect()
        query = urllib.parse.urlencode({"watch": "true", "allowWatchBookmarks": "true", "resourceVersion": version})
        try:
            self.connection.request("GET", f"{self.path}{'&' if '?' in self.path else '?'}{query}")
            for line in self.connection.getresponse():
                event = json.loads(line)
                if event["type"] == "ERROR":
                    return None
                version = event["object"]["metadata"]["resourceVersion"]
                if event["type"] != "BOOKMARK":
                    self._change(event["type"], event["object"])
            return version
        finally:
            with self.lock:
                self.connection.close()

    def _change(self, kind, changed):
        uid = changed["metadata"]["uid"]
        if kind == "DELETED":
            self.known.pop(uid, None)
        else:
            self.known[uid] = changed
        self.take(kind, changed)
