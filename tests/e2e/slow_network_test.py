"""Tests training over a network that is slow and loses packets: training takes longer, but ends correctly."""

import json
import os
import socket
import time

import python_peer  # in this directory
from run_support import RunTest
from slow_network import SlowNetwork

LINEAR_REGRESSION = os.environ["LINEAR_REGRESSION"]
DELAY, LOSS = 0.2, 0.05
SAMPLES, STEPS = 10_000, 20


class SlowNetworkTest(RunTest):
    def test_training_completes_with_200_ms_latency_and_5_percent_packet_loss(self):
        network = SlowNetwork(DELAY, LOSS)
        self.addCleanup(network.close)
        with socket.create_server(("127.0.0.1", 0)) as server:
            began = time.monotonic()
            socket.create_connection(server.getsockname()).close()
        self.assertGreaterEqual(time.monotonic() - began, 2 * DELAY)
        run = self.start(
            "-n", 2, "--checkpoint", "c", LINEAR_REGRESSION,
            "--epochs", 1, "--batch-size", SAMPLES // STEPS, "--log-json", self.directory / "log.json",
        )  # fmt: skip
        self.assertEqual(run.finish(240), 0, run.text())
        [epoch] = map(json.loads, (self.directory / "log.json").read_text().splitlines())
        self.assertEqual((epoch["replicas"], epoch["samples"]), (2, SAMPLES))
        self.assertGreater(network.lost, 0, f"of {network.packets} packets")
        # Each step includes at least one exchange between the replicas.
        self.assertGreaterEqual(time.monotonic() - began, STEPS * DELAY)


if __name__ == "__main__":
    python_peer.main()
