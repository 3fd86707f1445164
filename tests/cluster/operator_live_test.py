"""Tests live rescale in a cluster: the replicas of a job change while it is training, without a restart of those that remain."""

import cluster_support
from operator_support import OperatorTest

PATIENCE = 180  # seconds for a change on a busy machine: a scheduling cycle, the start of a pod, and a rescale


class LiveRescaleTest(OperatorTest):
    settings = {r"nodeSelector.kubernetes\.io/hostname": "node0"}

    def give_gpus(self, node0, node1):
        self.set_gpus(node0, "node0")
        self.set_gpus(node1, "node1")

    def uids(self, name):
        """Returns the uids of the job's running pods, by the number of the replica in its group."""
        pods = [pod for pod in self.pods_of(name) if pod["status"].get("phase") == "Running"]
        return {pod["metadata"]["name"].rpartition("-")[2]: pod["metadata"]["uid"] for pod in pods}

    def wait_until_trained(self, name, count):
        """Waits until `count` replicas have trained a step."""
        self.wait_for(f"{count} replicas train", lambda: [line["replicas"] for line in self.journal(name, "step")[-1:]] == [count], PATIENCE)

    def wait_for_members(self, name, count):
        """Waits until `count` replicas are running and training. Returns the job's status."""
        status = self.wait_for_status(
            f"running with {count} replicas", name,
            lambda status: status.get("replicas") == count == status.get("readyReplicas") == len(status["allocation"]), PATIENCE,
        )  # fmt: skip
        self.wait_until_trained(name, count)
        return status

    def restarts(self, name):
        uid = self.get("adaptdljob", name)["metadata"]["uid"]
        events = [event for event in self.get("events") if event["involvedObject"].get("uid") == uid]
        return [event["message"] for event in events if event["reason"] in ("Starting", "Stopping", "Reallocated")]

    def test_a_job_is_rescaled_while_it_is_training_without_restarting_the_remaining_replicas(self):
        self.give_gpus(1, 0)
        self.wait_until_gpus_are_known()
        self.create_modelled_job("job", samples=1_000_000, until="finish", live=True)
        self.wait_for_replicas("job", 1)
        before = self.uids("job")
        sizes = [1]
        for node0, node1 in ((2, 0), (2, 2), (0, 3), (0, 1)):
            self.give_gpus(node0, node1)
            sizes.append(node0 + node1)
            status = self.wait_for_members("job", sizes[-1])
            self.assertEqual(status["group"], 0)
            self.assertEqual(sorted(status["allocation"]), ["node0"] * node0 + ["node1"] * node1)
            now = self.uids("job")
            kept = before.keys() & now.keys()
            self.assertEqual({key: before[key] for key in kept}, {key: now[key] for key in kept})
            self.assertTrue(kept, (before, now))
            before = now
        self.finish("job")
        self.wait_for_phase("job", "Succeeded")
        self.assert_trained_once("job")
        trained = [line["replicas"] for line in self.journal("job", "step")]
        changes = [size for index, size in enumerate(trained) if index == 0 or trained[index - 1] != size]
        for size in sizes:
            self.assertIn(size, changes)
        self.assertEqual(len(self.restarts("job")), 1, self.restarts("job"))  # only the first start

    def test_the_other_replicas_continue_after_a_node_loses_power_and_replacements_join(self):
        self.give_gpus(2, 2)
        self.wait_until_gpus_are_known()
        self.create_modelled_job("job", samples=1_000_000, until="finish", live=True)
        # A job that gets more nodes before its program has started is restarted, so its group need not be 0.
        group = self.wait_for_members("job", 4)["group"]
        before = self.uids("job")
        self.power_off("node1")
        self.addCleanup(lambda: self.wait_for("node1 is ready", lambda: self.is_ready("node1")))
        self.addCleanup(self.power_on, "node1")
        self.wait_until_trained("job", 2)
        self.power_on("node1")
        status = self.wait_for_members("job", 4)
        self.assertEqual(status["group"], group)
        now = self.uids("job")
        self.assertEqual(len(before.items() & now.items()), 2, (before, now))
        self.finish("job")
        self.wait_for_phase("job", "Succeeded")
        self.assert_trained_once("job", crashed=True)

    def start_again_and_finish(self, name, resume):
        """Resumes the stopped job, and checks that it continues where its last group stopped. At most the step in progress may be
        repeated."""
        last = self.journal(name, "step")[-1]
        resume()
        self.wait_for("it trains again", lambda: self.journal(name, "step")[-1]["group"] > last["group"], PATIENCE)
        start = next(line for line in self.journal(name, "start") if line["group"] > last["group"])
        self.assertLessEqual(last["to"] - start["samples"], last["to"] - last["from"])
        self.finish(name)
        self.wait_for_phase(name, "Succeeded")
        self.assert_trained_once(name, crashed=True)

    def start_with_newcomers(self, name):
        """Starts a job with two replicas, and returns as soon as the pod of an additional replica is running."""
        self.give_gpus(2, 0)
        self.wait_until_gpus_are_known()
        self.create_modelled_job(name, samples=1_000_000, until="finish", live=True)
        self.wait_for_members(name, 2)
        self.give_gpus(2, 2)
        self.wait_for("newcomers run", lambda: len(self.uids(name)) > 2, PATIENCE)

    def test_a_job_that_loses_its_gpus_just_after_new_replicas_start_saves_its_progress(self):
        self.start_with_newcomers("job")
        self.give_gpus(0, 0)
        self.wait_for_phase("job", "Pending")
        self.start_again_and_finish("job", lambda: self.give_gpus(2, 2))

    def test_a_job_that_is_suspended_just_after_new_replicas_start_saves_its_progress(self):
        self.start_with_newcomers("job")
        self.set_suspend("job", True)
        self.wait_for_phase("job", "Suspended")
        self.start_again_and_finish("job", lambda: self.set_suspend("job", False))

    def test_replicas_waiting_for_lost_peers_save_their_progress_when_no_node_is_free(self):
        self.give_gpus(2, 2)
        self.wait_until_gpus_are_known()
        self.create_modelled_job("job", samples=1_000_000, until="finish", live=True, minReplicas=4)
        self.wait_for_members("job", 4)
        self.power_off("node1")
        self.addCleanup(lambda: self.wait_for("node1 is ready", lambda: self.is_ready("node1")))
        self.addCleanup(self.power_on, "node1")
        self.wait_for_phase("job", "Pending", patience=2 * PATIENCE)
        self.power_on("node1")
        self.start_again_and_finish("job", lambda: self.give_gpus(2, 2))

    def test_a_restarted_operator_continues_a_rescale(self):
        self.give_gpus(1, 0)
        self.wait_until_gpus_are_known()
        self.create_modelled_job("job", samples=1_000_000, until="finish", live=True)
        self.wait_for_replicas("job", 1)
        before = self.uids("job")
        self.give_gpus(3, 0)
        self.wait_for("a newcomer was created", lambda: len(self.pods_of("job")) > 1, PATIENCE)
        self.kill_operator_process()
        status = self.wait_for_members("job", 3)
        self.assertEqual(status["group"], 0)
        self.assertEqual(before.items() - self.uids("job").items(), set())
        self.kill_operator_process()
        self.give_gpus(2, 0)
        self.wait_for_members("job", 2)
        self.finish("job")
        self.wait_for_phase("job", "Succeeded")
        self.assert_trained_once("job")


if __name__ == "__main__":
    cluster_support.main()
