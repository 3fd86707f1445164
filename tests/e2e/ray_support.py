"""Runs a real Ray cluster with all its nodes on this machine."""

import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import time

import python_peer  # in this directory

PATIENCE = 120
HEAD_PORT, DASHBOARD_PORT = 6399, 8299
# The versions are pinned so that the results do not depend on new releases.
RAY = ["ray==2.60.0", "aiohttp==3.14.5", "aiohttp-cors==0.8.1", "click==8.5.1", "colorful==0.5.8", "filelock==4.3.1", "grpcio==1.85.3",
       "jsonschema==4.26.0", "msgpack==1.2.4", "opencensus==0.11.4", "opentelemetry-exporter-prometheus==0.66b2",
       "opentelemetry-proto==1.45.2", "opentelemetry-sdk==1.45.2", "packaging==26.4", "prometheus_client==0.26.0", "protobuf==7.36.2",
       "py-spy==0.4.3", "pydantic==2.14.4", "PyYAML==6.0.4", "requests==2.34.2", "smart_open==9.0.2", "virtualenv==21.15.11"]


def python():
    """Returns the Python interpreter of a virtual environment with Ray. Raises unittest.SkipTest if it cannot be created."""
    return python_peer.venv("ray", RAY)


class RayCluster:
    """A head node without CPUs, and nodes with one CPU each. The ports are fixed, so each cluster needs a separate network."""

    def __init__(self, python, directory, **environment):
        """Starts the head. `environment` holds additional environment variables for the processes of the head and of the nodes."""
        self.python, self.directory = python, pathlib.Path(directory)
        self.nodes = {}  # processes of `ray start`, by node name
        self.address = f"127.0.0.1:{HEAD_PORT}"
        self.url = f"http://127.0.0.1:{DASHBOARD_PORT}"
        # By default, Ray starts workers with a low priority, so they would get little processor time while other tests run.
        self.environment = {
            **os.environ, **environment, "TMPDIR": str(self.directory), "ADAPTDL_TEST_RAY": str(self.directory), "RAY_ADDRESS": self.address,
            "RAY_DASHBOARD_STARTUP_TIMEOUT_S": "600", "RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0", "RAY_worker_niceness": "0"}
        self.added = 0
        try:
            self.start_head()
        except BaseException:
            self.end()
            raise

    def start_head(self):
        self._start("head", "--head", f"--port={HEAD_PORT}", "--num-cpus=0", "--dashboard-host=127.0.0.1", f"--dashboard-port={DASHBOARD_PORT}",
                    f"--temp-dir={self.directory}/t", *self._ports(0))

    @staticmethod
    def _ports(i):
        """Returns options with the ports of node `i`. The ports are below the ephemeral range, which outgoing connections use."""
        return [f"--dashboard-agent-listen-port={22365 + i}", f"--dashboard-agent-grpc-port={22465 + i}", f"--runtime-env-agent-port={22565 + i}",
                f"--metrics-export-port={22665 + i}", f"--node-manager-port={22765 + i}", f"--object-manager-port={22865 + i}",
                f"--min-worker-port={24000 + i * 100}", f"--max-worker-port={24099 + i * 100}"]

    def add_node(self):
        """Starts a node, and returns its name."""
        self.added += 1
        i, name = self.added, f"node{self.added}"
        self._start(name, f"--address={self.address}", "--num-cpus=1", "--labels", f"adaptdl-test={name}", *self._ports(i))
        return name

    def kill(self, name):
        """Kills the raylet of a node, as if its machine had failed."""
        [raylet] = [pid for pid in self._processes_of_node(name) if b"/raylet\0" in self._read(pid, "cmdline")[:300]]
        os.kill(raylet, signal.SIGKILL)

    def kill_all(self, name):
        """Kills all processes of a node, as if its machine had lost power."""
        while processes := self._processes_of_node(name):
            for pid in processes:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)
        self.nodes.pop(name).wait()

    def stop(self, name):
        """Ends a node, as if its machine had been shut down."""
        process = self.nodes.pop(name)
        process.terminate()
        process.wait(PATIENCE)

    def drain(self, name, seconds):
        node = self.query(f"next(n['NodeID'] for n in ray.nodes() if n['Alive'] and n['Labels'].get('adaptdl-test') == {name!r})")
        self._ray("drain-node", "--address", self.address, "--node-id", node, "--reason", "DRAIN_NODE_REASON_PREEMPTION",
                  "--reason-message", "spot", "--deadline-remaining-seconds", str(seconds))

    def query(self, expression):
        """Evaluates an expression in a process that is connected to the cluster, and returns its value as text."""
        code = f"import ray; ray.init(log_to_driver=False, logging_level='error'); print({expression})"
        return subprocess.run([self.python, "-c", code], env=self.environment, check=True, capture_output=True, text=True, timeout=PATIENCE).stdout.strip()

    def requested(self):
        """Returns how many bundles of resources were last requested from the autoscaler, which these clusters do not have."""
        return len(json.loads(self.query("(ray.experimental.internal_kv._internal_kv_get('autoscaler_resource_request') or b'[]').decode()")))

    def processes_of(self, pattern):
        """Returns the IDs of the cluster's processes whose command line begins with the pattern."""
        commands = {pid: self._read(pid, "cmdline").replace(b"\0", b" ").decode() for pid in self._processes(f"ADAPTDL_TEST_RAY={self.directory}")}
        return [pid for pid, command in commands.items() if re.match(pattern, command, re.DOTALL)]

    def end(self):
        for process in self.nodes.values():
            process.terminate()
        for process in self.nodes.values():
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        deadline = time.monotonic() + PATIENCE
        while left := self._processes(f"ADAPTDL_TEST_RAY={self.directory}"):
            assert time.monotonic() < deadline, left
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)

    def _ray(self, *arguments):
        done = subprocess.run([pathlib.Path(self.python).with_name("ray"), *arguments], env=self.environment, capture_output=True, text=True,
                              timeout=PATIENCE)
        assert done.returncode == 0, done.stdout + done.stderr

    def _start(self, name, *arguments):
        log = self.directory / f"{name}.log"
        # Each Ray node assumes that it alone uses the session directory, and would replace the working directories of the others.
        own = [] if name == "head" else ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"', self.directory / "t"]
        command = [*own, pathlib.Path(self.python).with_name("ray"), "start", *arguments, "--node-ip-address=127.0.0.1", "--object-store-memory=80000000",
                   "--disable-usage-stats", "--block"]
        for attempts_left in range(2, -1, -1):
            if name == "head":  # a new head must not find the file of an earlier one
                (self.directory / "t" / "ray_current_cluster").unlink(missing_ok=True)
            with open(log, "wb") as file:
                self.nodes[name] = subprocess.Popen(command, env={**self.environment, "ADAPTDL_TEST_NODE": name}, stdout=file, stderr=file,
                                                    stdin=subprocess.DEVNULL)
            while self.nodes[name].poll() is None:
                if "Ray runtime started" in log.read_text():
                    return
                time.sleep(0.05)
            # Ray ends a node whose parts do not respond within limits, such as 30 s for the raylet, that cannot be set. A busy
            # machine may not meet them.
            assert attempts_left > 0, log.read_text()
            self.kill_all(name)

    def _processes(self, *settings):
        """Returns the processes that have these settings in their environment, except zombies, whose environment is empty."""
        pids = [int(entry.name) for entry in pathlib.Path("/proc").iterdir() if entry.name.isdigit()]
        return [pid for pid in pids if {setting.encode() for setting in settings} <= set(self._read(pid, "environ").split(b"\0"))]

    def _processes_of_node(self, name):
        return self._processes(f"ADAPTDL_TEST_RAY={self.directory}", f"ADAPTDL_TEST_NODE={name}")

    @staticmethod
    def _read(pid, file):
        try:
            return pathlib.Path(f"/proc/{pid}/{file}").read_bytes()
        except OSError:
            return b""
