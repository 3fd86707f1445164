"""A client of the API server for tests that send many requests or must observe every change of many objects."""

import contextlib
import http.client
import json
import socket
import ssl
import subprocess
import threading
import traceback
import urllib.parse

MERGE = {"Content-Type": "application/merge-patch+json"}
PATIENCE = 60


class Unanswered(Exception):
    """Raised if the API server refuses a request."""


class KubeApi:
    """Sends requests to the API server, on one connection per thread."""

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
        """Returns the response, parsed if it is JSON. With `missing`, returns None if the object does not exist or has been replaced."""
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
            raise Unanswered(f"{method} {path}: {response.status} {answer.decode()}")
        return json.loads(answer) if response.getheader("Content-Type") == "application/json" else answer.decode()


class Watch:
    """Calls `take` for each change of a collection's objects, in order and on a separate thread, with the type of the
    change (ADDED, MODIFIED or DELETED) and the object. While the API server is unavailable, the watch waits. If the server
    no longer has the changes of that time, `take` is called once for each object that differs: first for deleted, then for
    modified, then for new objects."""

    def __init__(self, api, path, take):
        self.api, self.path, self.take = api, path, take
        self.known = {}  # by uid
        self.version = None  # resource version of the last change; None: the objects must be listed
        self.watches = 0  # number of watch requests that the server has accepted
        self.failure = None  # the error that ended the thread
        self.connection = None
        self.lock = threading.Lock()  # guards the connection
        self.ends = threading.Event()
        self.thread = threading.Thread(target=self._follow, daemon=True)
        self.thread.start()

    def stop(self):
        """Stops the watch. Raises AssertionError if it ended early or never began."""
        with self.lock:
            self.ends.set()
            if self.connection is not None and self.connection.sock is not None:
                with contextlib.suppress(OSError):
                    self.connection.sock.shutdown(socket.SHUT_RDWR)
        self.thread.join(PATIENCE)
        if self.failure is not None:
            raise AssertionError(f"the watch of {self.path} has ended early") from self.failure
        if self.thread.is_alive() or not self.watches:
            raise AssertionError(f"the watch of {self.path} {'does not end' if self.thread.is_alive() else 'has never begun'}")

    def _follow(self):
        try:
            while not self.ends.is_set():
                try:
                    changes = self._list() if self.version is None else self._watch()
                    for kind, changed in changes:
                        self._change(kind, changed)
                except (OSError, http.client.HTTPException, Unanswered):
                    self.ends.wait(0.2)
        except Exception as error:
            if not self.ends.is_set():
                self.failure = error
                traceback.print_exception(error)

    def _list(self):
        answer = self.api.request("GET", self.path)
        there = {each["metadata"]["uid"]: each for each in answer["items"]}
        gone = [("DELETED", each) for uid, each in self.known.items() if uid not in there]
        changed = [
            ("MODIFIED", each) for uid, each in there.items()
            if uid in self.known and self.known[uid]["metadata"]["resourceVersion"] != each["metadata"]["resourceVersion"]
        ]  # fmt: skip
        new = sorted((each for uid, each in there.items() if uid not in self.known), key=lambda each: each["metadata"]["creationTimestamp"])
        added = [("ADDED", each) for each in new]
        yield from gone + changed + added
        self.version = answer["metadata"]["resourceVersion"]

    def _watch(self):
        connection = self.api.connect()
        connection.connect()
        connection.sock.settimeout(None)
        with self.lock:
            self.connection = connection
            if self.ends.is_set():
                connection.close()
                return
        query = urllib.parse.urlencode({"watch": "true", "allowWatchBookmarks": "true", "resourceVersion": self.version})
        try:
            connection.request("GET", f"{self.path}{'&' if '?' in self.path else '?'}{query}")
            response = connection.getresponse()
            if response.status == 410:
                self.version = None
            elif response.status != 200:
                raise Unanswered(f"{self.path}: {response.status}")
            else:
                self.watches += 1
            for line in response if response.status == 200 else ():
                if not line.endswith(b"\n"):
                    return  # the connection was lost
                event = json.loads(line)
                if event["type"] == "ERROR":
                    self.version = None
                    return
                if event["type"] != "BOOKMARK":
                    yield event["type"], event["object"]
                self.version = event["object"]["metadata"]["resourceVersion"]
        finally:
            with self.lock:
                connection.close()

    def _change(self, kind, changed):
        uid = changed["metadata"]["uid"]
        if kind == "DELETED":
            self.known.pop(uid, None)
        else:
            self.known[uid] = changed
        self.take(kind, changed)
