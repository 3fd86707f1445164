"""Tests several runs of one user on one machine: they share its devices through an agent, which may die."""

import os
import pathlib
import signal
import unittest

from local_network import leave_network
from run_support import REPLICA_PROGRAM, RunTest, eventually, interrupt, is_alive, replicas_of

PROGRAM = pathlib.Path(__file__).with_name("elastic_program.py")
DEVICES = {"0", "1", "2", "3"}
FOREVER = 1_000_000  # steps


class SharingTest(RunTest):
    def share(self, name, replicas, *program, options=(), **more):
        """Starts a run on the four shared devices. Unless `program` is given, its program follows generations."""
        return self.start(
            "-n", replicas, "--devices", 4, "--device-kind", "cpu", "--name", name, *options, *(program or (PROGRAM,)),
            **more,
        )  # fmt: skip

    def wait_for_replicas(self, **wanted):
        """Waits until the named runs have that many replicas each, and are running. Asserts that no two runs ever hold the same
        device."""

        def held(runs):
            return [device for run in runs.values() if run["ended"] is None for device in run["devices"]]

        def shared(runs):
            """Returns each device that several runs hold, with the names of these runs."""
            return {(device, tuple(name for name, run in runs.items() if run["ended"] is None and device in run["devices"]))
                    for device in held(runs) if held(runs).count(device) > 1}

        def reached():
            runs = self.listed()
            devices = held(runs)
            self.assertLessEqual(set(devices), DEVICES)
            for run in runs.values():
                self.assertTrue(run["state"] != "restarting" or not run["devices"], run)
            if before := shared(runs):
                # The records of the runs are read one after another, so a device may have moved in between. If it has, the next list
                # does not show it with the same runs again.
                runs = self.listed()
                self.assertEqual(shared(runs) & before, set(), runs)
            state = {name: (runs[name]["replicas"], runs[name]["state"]) for name in wanted if name in runs}
            return state == {name: (count, "running") for name, count in wanted.items()}

        self.assertTrue(eventually(reached), self.listed())

    def stop(self, *runs):
        for run in runs:
            interrupt(run)
        for run in runs:
            self.assertEqual(run.finish(), 143, run.text())


class TwoRunsTest(SharingTest):
    def test_two_runs_share_the_devices_and_one_grows_when_the_other_ends(self):
        one = self.share("one", "1:4")
        self.wait_for_replicas(one=4)
        pids = replicas_of(one.pid)
        two = self.share("two", "1:4")
        self.wait_for_replicas(one=2, two=2)
        one.wait_for("device allocation changed: ")
        self.assertLess(set(replicas_of(one.pid)), set(pids))
        self.stop(one)
        self.wait_for_replicas(two=4)
        self.assertEqual(self.listed()["one"]["state"], "stopped")
        self.stop(two)
        self.assertNotIn("restarting with", two.text())

    def test_two_runs_that_share_devices_succeed(self):
        runs = [self.share(name, "1:4", PROGRAM, "--steps", 150) for name in ("one", "two")]
        for run in runs:
            self.assertEqual(run.finish(), 0, run.text())

    def test_resizes_bound_the_shares_of_the_runs(self):
        one, two = self.share("one", "1:4"), self.share("two", "1:4")
        self.wait_for_replicas(one=2, two=2)
        self.adaptdl("resize", "one", "3")
        self.wait_for_replicas(one=3, two=1)
        self.adaptdl("resize", "one", "1:2")
        self.wait_for_replicas(one=2, two=2)
        self.adaptdl("resize", "two", "4")  # the other run keeps its minimum
        self.wait_for_replicas(one=1, two=3)
        self.stop(one, two)

    def test_programs_that_do_not_follow_generations_are_restarted_on_their_share_of_the_devices(self):
        one = self.share("one", "1:4", REPLICA_PROGRAM, "--steps", FOREVER)
        self.wait_for_replicas(one=4)
        self.adaptdl("checkpoint", "save", "one")
        two = self.share("two", "1:4", REPLICA_PROGRAM, "--steps", FOREVER)
        self.wait_for_replicas(one=2, two=2)
        one.wait_for("restarting with 2 replicas from checkpoint-")
        self.stop(one, two)

    def test_a_run_that_cannot_be_resized_keeps_its_devices(self):
        one = self.share("one", "1:4", REPLICA_PROGRAM, "--steps", FOREVER, options=["--no-checkpoint"])
        self.wait_for_replicas(one=4)
        # The run is known not to support a resize once it has made progress for a while without announcing support.
        two = self.share("two", "1:4")
        two.wait_for("adaptdl: waits: ")
        interrupt(one)
        self.assertEqual(one.finish(), 1, one.text())
        self.wait_for_replicas(two=4)
        self.stop(two)


class WaitingTest(SharingTest):
    def test_a_run_waits_for_its_minimum_number_of_devices_and_reports_why(self):
        one = self.share("one", "2:4")
        self.wait_for_replicas(one=4)
        name = self.adaptdl(
            "run", "--detach", "-n", 3, "--devices", 4, "--device-kind", "cpu", "--name", "three", PROGRAM
        ).strip()
        self.assertEqual(name, "three")
        # The command returns when the run is waiting, possibly before the record shows that.
        self.assertTrue(eventually(lambda: self.listed()["three"]["state"] == "waiting"), self.listed())
        waiting = self.listed()["three"]
        self.assertEqual(waiting["replicas"], 0)
        self.assertIn("needs at least 3 devices", waiting["why"])
        self.stop(one)
        self.wait_for_replicas(three=3)
        self.adaptdl("delete", "three")
        self.assertTrue(eventually(lambda: not is_alive(waiting["pid"])))

    def test_an_interrupt_ends_a_run_that_is_waiting_for_devices(self):
        one = self.share("one", 4)
        self.wait_for_replicas(one=4)
        two = self.share("two", "1:4")
        two.wait_for("adaptdl: waits: needs at least 1 device, but the minimums of other runs leave fewer")
        interrupt(two)
        self.assertEqual(two.finish(), 1)
        self.assertEqual(two.err[-1], "adaptdl: stopped while waiting for devices; no replica was started")
        self.assertEqual(self.listed()["two"]["why"], "while waiting for devices")
        self.stop(one)

    def test_a_fixed_size_run_keeps_its_devices(self):
        one = self.share("one", 2, REPLICA_PROGRAM, "--steps", FOREVER)
        self.wait_for_replicas(one=2)
        pids, devices = replicas_of(one.pid), self.listed()["one"]["devices"]
        two = self.share("two", "1:4")
        self.wait_for_replicas(one=2, two=2)
        self.assertEqual(replicas_of(one.pid), pids)
        self.assertEqual(self.listed()["one"]["devices"], devices)
        self.stop(one, two)


class AgentTest(SharingTest):
    def test_runs_continue_when_the_agent_is_killed_and_another_agent_starts(self):
        one, two = self.share("one", "1:4"), self.share("two", "1:4")
        self.wait_for_replicas(one=2, two=2)
        pids = replicas_of(one.pid) + replicas_of(two.pid)
        first = self.agent()
        os.kill(first, signal.SIGKILL)
        self.assertTrue(eventually(lambda: self.agent() not in (None, first)))
        three = self.share("three", "1:4")
        self.assertTrue(eventually(lambda: self.listed().get("three", {}).get("replicas") == 1))
        self.wait_for_replicas(three=1)
        # No replica was restarted: one of the runs has given up one device.
        now = replicas_of(one.pid) + replicas_of(two.pid)
        self.assertLess(set(now), set(pids))
        self.stop(one, two, three)

    def test_devices_of_a_killed_launcher_go_to_the_other_runs(self):
        one, two = self.share("one", "1:4"), self.share("two", "1:4")
        self.wait_for_replicas(one=2, two=2)
        one.send(signal.SIGKILL)
        one.finish()
        self.wait_for_replicas(two=4)
        self.stop(two)


if __name__ == "__main__":
    leave_network()
    unittest.main(verbosity=2)
