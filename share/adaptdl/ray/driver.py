"""Runs an adaptdl job on a Ray cluster: driver.py [OPTIONS] -- RUN_OPTIONS... -- PROGRAM ARGUMENTS...

The driver makes no decisions. It starts `adaptdl run RUN_OPTIONS... -- PROGRAM ARGUMENTS...`, which chooses the job's
devices, and starts, signals and watches the replicas. The two exchange JSON lines (see cluster_relay.h): the driver
reports the cluster's nodes, places one actor per device, and forwards the messages between the actors' replica servers
and `adaptdl run`.
"""

import argparse
import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time

import ray
import ray._private.state
import ray.autoscaler.sdk
import ray.experimental.internal_kv as key_value_store
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

NODES_EVERY = 1.0  # seconds
REQUEST_EVERY = 30.0  # seconds
# Prefix of a key that ends in a job's id. The key's value is a bundle and the number of such bundles that the job could use.
WANTED = "adaptdl-wanted-"
PLACE_TIMEOUT = 60.0  # seconds after which the driver stops trying to place an actor
MAX_LINE = 16 << 20  # bytes; more than LineChannel::kMaxMessage


class ReplicaServer:
    """An actor that runs the replica server of a device on the device's node."""

    async def start(self, adaptdl):
        self.process = await asyncio.create_subprocess_exec(
            "adaptdl-replicas", executable=os.path.abspath(adaptdl), stdin=subprocess.PIPE, stdout=subprocess.PIPE, limit=MAX_LINE,
            env={**os.environ, "ADAPTDL_RAY": "1"})
        self.partial = b""

    async def send(self, text):
        self.process.stdin.write(text.encode())
        await self.process.stdin.drain()

    async def receive(self):
        """Returns the lines received next, or an empty list once the server has ended."""
        while True:
            data = await self.process.stdout.read(MAX_LINE)
            *lines, self.partial = (self.partial + data).split(b"\n")
            if lines or not data:
                return [line.decode() for line in lines]

    async def close(self):
        self.process.stdin.close()
        await self.process.wait()


class Driver:
    def __init__(self, options, command):
        self.options = options
        self.command = command
        self.actors = {}  # by device
        self.sending = {}  # by device: queue of lines to be sent
        self.nodes = None
        self.trouble = None  # the last warning about Ray
        self.wanted = WANTED + ray.get_runtime_context().get_job_id()
        self.requested, self.requested_at = [], 0.0  # bundles that this driver last requested from the autoscaler, and when

    async def run(self):
        from_engine, engine_out = os.pipe()
        engine_in, to_engine = os.pipe()
        relay = {"in": engine_in, "out": engine_out, "address": ray.util.get_node_ip_address(),
                 "copy_checkpoints": self.options.copy_checkpoints, "rescale_timeout_ms": self.options.rescale_timeout_ms}
        environment = {**os.environ, "ADAPTDL_RELAY": json.dumps(relay)}
        self.engine = await asyncio.create_subprocess_exec(*self.command, env=environment, pass_fds=(engine_in, engine_out), stdin=subprocess.DEVNULL)
        os.close(engine_in), os.close(engine_out)
        for number in signal.SIGINT, signal.SIGTERM:
            asyncio.get_running_loop().add_signal_handler(number, self.stop, number)
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=MAX_LINE)
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(from_engine, "rb"))
        transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, os.fdopen(to_engine, "wb"))
        self.writer = asyncio.StreamWriter(transport, protocol, None, loop)
        watching = asyncio.create_task(self.watch_nodes())
        while line := await reader.readline():
            self.act(json.loads(line))
        watching.cancel()
        self.want(0)
        await asyncio.gather(*(self.close(device) for device in list(self.actors)))
        return await self.engine.wait()

    def stop(self, number):
        self.engine.send_signal(number)
        self.want(0)  # now, because Ray may soon kill this process

    def tell(self, **message):
        self.writer.write((json.dumps(message) + "\n").encode())

    def act(self, message):
        device = message.get("device")
        if message["do"] == "open":
            self.sending[device] = asyncio.Queue()
            asyncio.create_task(self.serve(device, message["node"]))
        elif message["do"] == "send" and device in self.sending:
            self.sending[device].put_nowait(json.dumps(message["message"]) + "\n")
        elif message["do"] == "close":
            asyncio.create_task(self.close(device))
        elif message["do"] == "want":
            self.want(message["devices"])

    def want(self, devices):
        """Tells the autoscaler how many devices the job could use."""
        bundle = {"CPU": self.options.cpus, **({"GPU": self.options.gpus} if self.options.gpus else {})}
        with self.warning():
            if devices:
                key_value_store._internal_kv_put(self.wanted, json.dumps([bundle, devices]))
            else:
                key_value_store._internal_kv_del(self.wanted)
            self.request_nodes()

    def request_nodes(self):
        """Requests the nodes that all adaptdl jobs could use. The autoscaler remembers only the last request of any job."""
        keys = [key.decode() for key in key_value_store._internal_kv_list(WANTED)]
        if set(keys) - {self.wanted}:
            ended = {WANTED + job["JobID"] for job in ray._private.state.jobs() if job["IsDead"]}
            for key in ended.intersection(keys):
                key_value_store._internal_kv_del(key)
            keys = [key for key in keys if key not in ended]
        values = [key_value_store._internal_kv_get(key) for key in sorted(keys)]
        bundles = [bundle for value in values if value for bundle, count in [json.loads(value)] for _ in range(count)]
        # The request is repeated, because another driver may have requested something else at the same time.
        if bundles != self.requested or (keys and time.monotonic() - self.requested_at > REQUEST_EVERY):
            self.requested, self.requested_at = bundles, time.monotonic()
            ray.autoscaler.sdk.request_resources(bundles=bundles)

    async def serve(self, device, node):
        """Runs the replica server of a device until it ends."""
        sender = None
        try:
            actor = ray.remote(ReplicaServer).options(
                num_cpus=self.options.cpus, num_gpus=self.options.gpus, max_restarts=0,
                scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False)).remote()
            self.actors[device] = actor
            await asyncio.wait_for(actor.start.remote(self.options.adaptdl), PLACE_TIMEOUT)
            self.tell(**{"is": "connected", "device": device})
            sender = asyncio.create_task(self.send_all(device, actor))
            while lines := await actor.receive.remote():
                for line in lines:
                    self.writer.write(f'{{"is": "message", "device": {json.dumps(device)}, "message": {line}}}\n'.encode())
                await self.writer.drain()
            why = "its replica server has ended"
        except asyncio.TimeoutError:
            why = f"its node had no room for it within {PLACE_TIMEOUT:g} s"
        except ray.exceptions.RayError as error:
            why = "its node or actor has died" if isinstance(error, ray.exceptions.RayActorError) else str(error).splitlines()[0]
        if sender:
            sender.cancel()
        if actor := self.actors.pop(device, None):
            ray.kill(actor)
        self.sending.pop(device, None)
        self.tell(**{"is": "lost", "device": device, "why": why})

    async def send_all(self, device, actor):
        queue = self.sending[device]
        while True:
            text = await queue.get()
            while not queue.empty():
                text += queue.get_nowait()
            await actor.send.remote(text)

    async def close(self, device):
        actor = self.actors.pop(device, None)
        self.sending.pop(device, None)
        if actor is None:
            return
        try:
            await asyncio.wait_for(actor.close.remote(), 15)
        except (asyncio.TimeoutError, ray.exceptions.RayError):
            pass
        ray.kill(actor)

    def devices_of(self, node):
        resources = node["Resources"]
        counts = [resources.get("CPU", 0) // self.options.cpus] if self.options.cpus else []
        if self.options.gpus:
            counts.append(resources.get("GPU", 0) // self.options.gpus)
        return int(min(counts, default=0))

    async def watch_nodes(self):
        while True:
            with self.warning():
                self.report_nodes()
                self.request_nodes()  # other jobs may have ended without withdrawing their requests
            await asyncio.sleep(NODES_EVERY)

    def report_nodes(self):
        draining = ray._private.state.state.get_draining_nodes()
        nodes = [{"id": node["NodeID"], "address": node["NodeManagerAddress"], "devices": self.devices_of(node),
                  "leaving": node["NodeID"] in draining} for node in ray.nodes() if node["Alive"]]
        nodes.sort(key=lambda node: node["id"])
        if nodes != self.nodes:
            self.nodes = nodes
            self.tell(**{"is": "nodes", "nodes": nodes})

    @contextlib.contextmanager
    def warning(self):
        """Turns an error from Ray's library into a warning, because the job can continue. Repeated warnings are printed once."""
        try:
            yield
            self.trouble = None
        except Exception as error:
            what, self.trouble = self.trouble, str(error).splitlines()[0] if str(error) else type(error).__name__
            if what != self.trouble:
                print(f"adaptdl: warning: Ray does not answer: {self.trouble}", file=sys.stderr, flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--adaptdl", default="./adaptdl")
    parser.add_argument("--cpus", type=float, default=1)
    parser.add_argument("--gpus", type=float, default=0)
    parser.add_argument("--copy-checkpoints", action="store_true")
    parser.add_argument("--rescale-timeout-ms", type=int, default=60_000)
    parser.add_argument("run", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    if options.run[:1] == ["--"]:
        del options.run[0]
    ray.init(address="auto", log_to_driver=False, logging_level="warning")
    return asyncio.run(Driver(options, [options.adaptdl, "run", *options.run]).run())


if __name__ == "__main__":
    sys.exit(main())
