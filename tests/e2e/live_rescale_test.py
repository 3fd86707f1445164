"""Tests a job whose replicas change while it is training, because `adaptdl resize` is called or replicas are killed."""
import collections
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import threading
import time
import unittest

from checkpoints import largest_difference, parameters  # in this directory
from local_network import leave_network
from run_support import ADAPTDL, RunTest, children, descendants, eventually, interrupt, is_alive, listening_addresses

PROGRAM = os.environ["RESCALE_PROGRAM"]
SAMPLES, BATCH = 240, 12
FOREVER = 1_000_000  # epochs


class LiveRescaleTest(RunTest):
    def setUp(self):
        super().setUp()
        self.environment.update(OMP_NUM_THREADS="1", XDG_RUNTIME_DIR=str(self.directory), ADAPTDL_CHECKPOINT_EVERY="0")
        self.samples = self.directory / "samples"
        self.samples.touch()

    def train(self, name, *arguments, options=(), epochs):
        """Starts the program with `adaptdl run`, with checkpoints in a directory that is named after the run."""
        return self.start("--name", name, "--checkpoint", self.directory / name, *options, "--", PROGRAM,
                          "--epochs", epochs, "--samples", self.samples, *arguments)

    def verb(self, *arguments):
        return subprocess.run([ADAPTDL, *map(str, arguments)], env=self.environment, text=True, capture_output=True)

    def counts(self):
        """Returns how often each (epoch, sample) was trained on, and the processes that trained."""
        times, processes = collections.Counter(), set()
        for line in self.samples.read_text().splitlines():
            process, epoch, *samples = line.split()
            processes.add(process)
            times.update((epoch, sample) for sample in samples)
        return times, processes

    @staticmethod
    def epochs(times):
        """Returns the number of epochs that were trained."""
        return 1 + max(int(epoch) for epoch, _ in times)

    def obey(self, run):
        """Resizes the run in the background whenever the program requests a resize. Returns a list that receives the results."""
        made = []

        def answer():
            answered = 0
            while run.process.poll() is None:
                asked = [line for line in run.out if "resize " in line]
                for line in asked[answered:]:
                    done = self.verb("resize", "job", line.split("resize ")[1].split()[0])
                    made.append((line, done.returncode, done.stderr))
                answered = len(asked)
                time.sleep(0.01)

        thread = threading.Thread(target=answer)
        thread.start()
        self.addCleanup(thread.join)
        return made

    def test_rescaling_without_restarts_yields_the_same_parameters_as_with_restarts(self):
        sizes = [2, 4, 3, 1] * 2
        steps = [3 + 6 * i for i in range(len(sizes))]
        at = ",".join(f"{step}:{size}" for step, size in zip(steps, sizes))
        run = self.train("job", "--at", at, options=("--replicas", 1, "--devices", "4", "--device-kind", "cpu"),
                         epochs=3)
        made = self.obey(run)
        self.assertEqual(run.finish(300), 0, run.text())
        self.assertEqual([code for _, code, _ in made], [0] * len(sizes), made)
        times, processes = self.counts()
        self.assertEqual(len(times), 3 * SAMPLES)
        self.assertEqual(set(times.values()), {1})
        # There is one process for each replica that was added, so no replica that stayed was restarted.
        self.assertEqual(len(processes), 1 + 2 * (1 + 2))

        self.samples.write_text("")
        restarted = self.directory / "restarted"
        for size in [1, *sizes]:
            last = self.start("-n", size, "--checkpoint", restarted, "--", PROGRAM, "--epochs", 3, "--at", at, "--restart")
            code = last.finish(120)
            self.assertIn(code, (0, 143), last.text())
        self.assertEqual(code, 0)
        self.assertLessEqual(largest_difference(parameters(self.directory / "job"), parameters(restarted)), 1e-6)

    def test_a_new_replica_loads_its_state_from_another_sender_if_the_first_is_killed(self):
        loading, until = self.directory / "loading", self.directory / "until"
        run = self.train("job", "--step-time", 30, "--slow-load", loading, "--until", until,
                         options=("--replicas", "2:3", "--devices", "3", "--device-kind", "cpu"), epochs=FOREVER)
        self.prefer(run, "job", 3)
        self.assertTrue(eventually(lambda: len(self.training(run)) == 3), run.text())
        os.kill(self.training(run)[-1], signal.SIGKILL)
        self.assertTrue(eventually(lambda: loading.exists() and loading.read_text().endswith("\n")), run.text())
        os.kill(self.training(run)[0], signal.SIGKILL)  # rank 0, which is sending its state
        loading.with_suffix(".go").touch()
        newcomer = loading.read_text().split()[0]
        self.assertTrue(eventually(lambda: int(newcomer) in self.training(run)), run.text())
        until.touch()
        self.assertEqual(run.finish(120), 0, run.text())
        self.assertEqual(run.text().count("the running replicas were lost while they were sending"), 1, run.text())
        self.assertEqual(loading.read_text().split()[:2], [newcomer, newcomer])  # it was not restarted
        times, _ = self.counts()
        self.assertGreaterEqual(len(times), self.epochs(times) * SAMPLES - 2 * BATCH)
        self.assertLessEqual(set(times.values()), {1, 2})

    def test_the_other_replicas_finish_an_evaluation_in_the_training_loop_if_one_is_killed(self):
        for name, victim in (("last", -1), ("first", 0)):
            with self.subTest(name):
                self.samples.write_text("")
                evaluations = self.directory / f"evaluations-{name}"
                run = self.train(name, "--evaluate", 5, "--evaluations", evaluations,
                                 options=("--replicas", "2:3", "--devices", "3", "--device-kind", "cpu"), epochs=1)
                self.prefer(run, name, 3)
                self.assertTrue(eventually(lambda: len(self.evaluating(run, evaluations)) == 3), run.text())
                os.kill(self.evaluating(run, evaluations)[victim], signal.SIGKILL)
                evaluations.with_suffix(".go").touch()
                self.assertEqual(run.finish(120), 0, run.text())
                self.assertFalse([line for line in run.err if "restarting all replicas" in line], run.text())
                evaluated = [int(line.split()[3]) for line in run.out if "evaluated on" in line]
                # The first evaluation lacks what the killed replica had added.
                self.assertLess(evaluated[0], SAMPLES, run.text())
                self.assertEqual(evaluated[1:], [SAMPLES] * (SAMPLES // BATCH // 5 - 1), run.text())
                # No step was repeated.
                self.assertEqual(set(self.counts()[0].values()), {1})
                self.assertEqual(len(self.counts()[0]), SAMPLES)

    def test_invalid_collective_calls_fail_the_job_without_regrouping(self):
        for wrong, text in (("--stray", "differs between replicas: allreduce (step boundary) on replica 0, allreduce on replica 1"),
                            ("--large-part", "is larger than max_message (67108864 bytes)")):
            with self.subTest(wrong):
                run = self.train(f"job{wrong}", wrong, epochs=1,
                                 options=("--replicas", "1:2", "--devices", "2", "--device-kind", "cpu", "--max-restarts", 0))
                self.assertEqual(run.finish(60), 1, run.text())
                self.assertIn(text, run.text())
                self.assertNotIn("replicas were lost", run.text())

    def evaluating(self, run, evaluations):
        """Returns the live replicas in the order of their ranks once all of them have begun to evaluate, otherwise []."""
        begun = {int(line) for line in evaluations.read_text().split()} if evaluations.exists() else set()
        training = self.training(run)
        return training if begun and begun == set(training) else []

    def test_the_result_is_saved_even_if_the_saving_replica_is_killed(self):
        # Each case consists of the bounds on the number of replicas and the number of replicas that are killed. In the second
        # case, a replacement must join the remaining replicas while they are saving.
        for replicas, kills in (("1:2", 1), ("2:3", 2)):
            with self.subTest(replicas):
                self.samples.write_text("")
                name, saving = f"job-{kills}", self.directory / f"saving-{kills}"
                run = self.train(name, "--slow-save", saving,
                                 options=("--replicas", replicas, "--devices", "3", "--device-kind", "cpu"), epochs=2)
                self.prefer(run, name, int(replicas[-1]))
                self.assertTrue(eventually(lambda: saving.exists() and saving.read_text().endswith("\n")), run.text())
                writer = int(saving.read_text())
                others = [pid for pid in self.training(run) if pid != writer]
                for pid in [writer, *others[:kills - 1]]:
                    os.kill(pid, signal.SIGKILL)
                saving.with_suffix(".go").touch()
                self.assertEqual(run.finish(120), 0, run.text())
                self.assertFalse([line for line in run.err if "restarting all replicas" in line], run.text())
                self.assertGreaterEqual(len(set(saving.read_text().split())), 2, run.text())
                self.assertEqual(len([line for line in run.err if "the result of the last epoch" in line]), 1, run.text())
                self.assertIn("epoch 2", self.verb("checkpoint", "ls", self.directory / name).stdout, run.text())

    def test_a_checkpoint_is_saved_even_if_the_replica_asked_to_save_it_is_killed(self):
        run = self.train("job", "--step-time", 30,
                         options=("--replicas", "2:3", "--devices", "3", "--device-kind", "cpu"), epochs=1000)
        self.prefer(run, "job", 3)
        self.assertTrue(eventually(lambda: len(self.training(run)) == 3), run.text())
        asked = self.training(run)[0]
        os.kill(asked, signal.SIGSTOP)
        with subprocess.Popen([ADAPTDL, "checkpoint", "save", "job"], env=self.environment, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE) as save:
            time.sleep(0.5)
            os.kill(asked, signal.SIGKILL)
            saved = save.communicate(timeout=60)
        self.assertEqual(save.returncode, 0, saved)
        self.assertTrue((pathlib.Path(saved[0].strip()) / "manifest.json").exists(), saved)
        interrupt(run)
        self.assertEqual(run.finish(), 143, run.text())

    def test_checkpoint_save_fails_and_training_continues_if_the_replicas_cannot_save_a_checkpoint(self):
        run = self.train("job", "--step-time", 30, options=("--replicas", 2), epochs=1000)
        self.assertTrue(eventually(lambda: len(self.training(run)) == 2), run.text())
        shutil.rmtree(self.directory / "job", ignore_errors=True)
        (self.directory / "job").touch()
        done = self.verb("checkpoint", "save", "job")
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("run 'job': saving the checkpoint failed: ", done.stderr)
        (self.directory / "job").unlink()
        self.assertEqual(self.verb("checkpoint", "save", "job").returncode, 0, run.text())
        interrupt(run)
        self.assertEqual(run.finish(), 143, run.text())

    def test_processes_of_a_local_run_listen_only_on_the_loopback_interface(self):
        run = self.train("job", "--step-time", 30,
                         options=("--replicas", 2, "--devices", "3", "--device-kind", "cpu"), epochs=1000)
        for size in (2, 3, 1):
            if size != 2:
                done = self.verb("resize", "job", size)
                self.assertEqual(done.returncode, 0, done.stderr)
            self.assertTrue(eventually(lambda: len(self.training(run)) == size), run.text())
            # At times, no replica is listening, because the replicas are forming a new group.
            found = eventually(lambda: self.listeners(run))
            self.assertTrue(found, f"no replica of {size} listens")
            self.assertIn(run.pid, found)  # the supervisor
            outside = {pid: each for pid, each in found.items() if any(not host.is_loopback for host, _ in each)}
            self.assertEqual(outside, {}, f"with {size} replicas")
        interrupt(run)
        self.assertEqual(run.finish(), 143, run.text())

    def listeners(self, run):
        """Returns the addresses that the job's processes listen on, or None if no training replica is listening yet."""
        found = listening_addresses([run.pid, *descendants(run.pid), self.agent()])
        return found if set(found) & set(self.training(run)) else None

    def training(self, run):
        """Returns the live replicas that have trained on at least one batch. They are in the order in which they were started,
        which is the order of their ranks."""
        trained = {int(line.split()[0]) for line in self.samples.read_text().splitlines()}
        return sorted((pid for pid in children(run.pid) if pid in trained), key=self.number)

    def number(self, pid):
        """Returns the number of a replica in its run. Process IDs cannot be used to order replicas, because the IDs
        can wrap around."""
        try:
            environment = pathlib.Path(f"/proc/{pid}/environ").read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            return -1  # it has just ended
        found = re.search(rb"ADAPTDL_REPLICA_ID=\d+-(\d+)", environment)
        return int(found[1]) if found else -1

    def kill_some(self, run, kills):
        """Kills at least `kills` replicas, one or two at a time, and always leaves one that is training. Returns how many
        replicas were killed."""
        random.seed(1)
        killed = 0
        while killed < kills:
            training = eventually(lambda: self.training(run)[1:] and self.training(run) or run.process.poll() is not None)
            self.assertTrue(run.process.poll() is None and training, run.text())
            victims = random.sample(training, min(random.choice([1, 1, 2]), len(training) - 1))
            for pid in victims:
                os.kill(pid, signal.SIGKILL)
            self.assertTrue(eventually(lambda: not any(is_alive(pid) for pid in victims)), run.text())
            killed += len(victims)
            self.wait_until_the_step_is_done(run)
        return killed

    def wait_until_the_step_is_done(self, run):
        """Waits until the step that a loss interrupted is finished. A replica may begin this step before it notices the loss.
        It then begins the step again, and has finished it once it begins the next step."""
        before = self.steps()
        self.assertTrue(eventually(lambda: all(self.steps()[pid] >= before[pid] + 3 for pid in self.training(run))), run.text())

    def steps(self):
        """Returns how many steps each process has begun, including repeated ones."""
        return collections.Counter(int(line.split()[0]) for line in self.samples.read_text().splitlines())

    def test_killed_replicas_cost_at_most_the_current_step_while_one_survives(self):
        until = self.directory / "until"
        run = self.train("job", "--step-time", 30, "--until", until,
                         options=("--replicas", "1:3", "--devices", "3", "--device-kind", "cpu"), epochs=FOREVER)
        # Otherwise, the only remaining replica could be one that is just leaving the job.
        self.prefer(run, "job", 3)
        killed = self.kill_some(run, 4)
        until.touch()
        self.assertEqual(run.finish(300), 0, run.text())
        self.assertFalse([line for line in run.err if "restarting all replicas" in line], run.text())
        # A killed replica may have trained on samples that it had not reported yet, and the interrupted step is repeated. Two
        # replicas that are killed at the same time may interrupt the step one after the other.
        times, _ = self.counts()
        self.assertGreaterEqual(len(times), self.epochs(times) * SAMPLES - killed * BATCH)
        self.assertLessEqual(sum(times.values()), self.epochs(times) * SAMPLES + killed * BATCH)
        self.assertLessEqual(max(times.values()), 3)


if __name__ == "__main__":
    leave_network()
    unittest.main()
