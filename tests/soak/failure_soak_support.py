"""A training job that tests disturb with failures of different kinds, and what it reports about its training."""

import collections
import dataclasses
import os
import pathlib
import re
import signal
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "e2e"))
from run_support import RunTest, children, eventually, is_alive  # noqa: E402

PROGRAM = os.environ["RESCALE_PROGRAM"]
SAMPLES, BATCH = 240, 12  # the program's own values
DEVICES = 4
FOREVER = 1_000_000  # epochs
BOUNDS = [(1, 4), (1, 4), (2, 4), (1, 3), (1, 2), (3, 4), (4, 4)]
# After a failure, the first line of a process may belong to the step before it, the second line to a step that is interrupted,
# and the third line to the repetition of that step. When a process reports its fourth line, all others have reported their third.
LINES_TRAINING = 4
RATE = ("--lr", 0.003)  # the program converges within 50 epochs at this rate


@dataclasses.dataclass(frozen=True)
class Kind:
    weight: int  # relative frequency with which it is drawn
    needs: int  # replicas that must be training


KINDS = {
    "replica": Kind(18, 2),
    "rank 0": Kind(14, 2),
    "several": Kind(12, 3),
    "in a row": Kind(10, 3),
    "stall": Kind(10, 2),
    "replacement": Kind(14, 2),
    "all": Kind(4, 1),
    "launcher": Kind(4, 1),
    "agent": Kind(5, 1),
    "resize": Kind(9, 1),
}


@dataclasses.dataclass
class Event:
    kind: str
    line: int  # index of the first line of samples that may have been reported after the event
    seconds: float = 0.0  # until the job was training again
    blows: int = 0  # attacks on replicas, each of which may cost the step in progress
    again: int = 0  # samples that the job had reported since the checkpoint from which it resumed


class Samples:
    """The samples that the replicas trained on, in the order in which they reported them."""

    def __init__(self, path):
        self._file = path.open()
        self._rest = ""
        self.lines = []  # (epoch, samples)
        self.steps = collections.Counter()  # by process

    def close(self):
        self._file.close()

    def read(self):
        self._rest += self._file.read()
        *lines, self._rest = self._rest.split("\n")
        for line in lines:
            process, epoch, *samples = map(int, line.split())
            self.lines.append((epoch, samples))
            self.steps[process] += 1
        return self

    def epoch(self):
        return self.read().lines[-1][0] if self.lines else 0

    def told_since(self, line):
        return sum(len(samples) for _, samples in self.read().lines[line:])


class DisturbedJob(RunTest):
    """Runs a job of 1 to 4 replicas, and disturbs it.

    A derived class sets `random`, `deadline`, `jobs`, `processes` and `samples` before it starts the job, and `kind`,
    `event` and `struck` before each event.
    """

    hang_timeout = "3s"
    preferred = None  # number of replicas, as far as the bounds permit it; None: the policy decides

    def setUp(self):
        super().setUp()
        self.environment.update(OMP_NUM_THREADS="1")

    # The methods below start and observe the job.

    def start_job(self):
        self.job = self.start(
            "--name", "job", "--checkpoint", "c", "--checkpoint-every", "1s", "--replicas", f"1:{DEVICES}",
            "--devices", DEVICES, "--device-kind", "cpu", "--hang-timeout", self.hang_timeout, "--max-restarts", 1,
            PROGRAM, "--epochs", FOREVER, "--until", self.directory / "until", "--samples", self.directory / "samples",
            "--step-time", 24, *RATE,
        )  # fmt: skip
        self.jobs.append(self.job)
        self.bounds = (1, DEVICES)
        if self.preferred:
            self.prefer(self.job, "job", self.preferred)

    def replicas(self):
        """Returns the job's replicas, including those that are still loading. Rank 0 is first, and newcomers are last."""
        found = []
        for pid in children(self.job.pid):
            try:
                environment = pathlib.Path(f"/proc/{pid}/environ").read_bytes()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if match := re.search(rb"ADAPTDL_REPLICA_ID=(\d+)-(\d+)", environment):
                found.append((int(match[1]), int(match[2]), pid))
        self.processes.update(pid for *_, pid in found)
        return [pid for *_, pid in sorted(found)]

    def training(self):
        steps = self.samples.read().steps
        return [pid for pid in self.replicas() if steps[pid] > 0]

    def until(self, condition, what):
        """Waits for the condition, but no longer than one event may take."""

        def met():
            ended = self.job.process.poll()
            if ended is not None:
                self.fail(f"the run ended with {ended} before {what}\n" + "\n".join(self.job.err[-60:]))
            return condition()

        if not eventually(met, self.deadline):
            self.fail(f"not within {self.deadline} s: {what}\n" + "\n".join(self.job.err[-60:]))

    def train_again(self, but=()):
        """Waits until the job is training again, on replicas other than those in `but`."""
        before = self.samples.read().steps.copy()

        def trains():
            steps = self.samples.read().steps
            return any(steps[pid] >= before[pid] + LINES_TRAINING for pid in self.replicas() if pid not in but)

        self.until(trains, "the job trains again")
        self.event.seconds += time.monotonic() - self.struck
        self.struck = None

    def train_on(self, lines):
        """Lets the job train until its replicas have reported a total of `lines` more lines."""
        end = len(self.samples.read().lines) + lines
        self.until(lambda: len(self.samples.read().lines) >= end, f"{lines} more steps of replicas")

    def change_bounds(self, bounds):
        self.bounds = bounds
        self.adaptdl("resize", "job", "{}:{}".format(*bounds))
        self.until(self.at_size, "{} to {} replicas train".format(*bounds))

    def at_size(self):
        run = self.listed()["job"]
        fits = self.bounds[0] <= run["replicas"] <= self.bounds[1]
        # Replicas that leave may still exist for a while after they are no longer counted.
        return run["state"] == "running" and fits and len(self.replicas()) == run["replicas"] == run["wanted"]

    # The methods below disturb the job. Each hit_ method returns once the job is training again.

    def strike(self, number=0, *victims):
        """Sends a signal to the victims. The first call for an event starts the clock for the time until the job is training again."""
        if self.event is None:
            self.event = Event(self.kind, len(self.samples.read().lines))
        if self.struck is None:
            self.struck = time.monotonic()
        for pid in victims:
            os.kill(pid, number)

    def kill(self, victims):
        self.strike(signal.SIGSTOP, *victims)  # so that all die in the same step
        self.strike(signal.SIGKILL, *victims)
        self.event.blows += 1
        self.until(lambda: not any(map(is_alive, victims)), f"{victims} are gone")

    def kill_some(self, victims):
        self.kill(victims)
        self.train_again(but=victims)

    def hit_replica(self, training):
        self.kill_some([self.random.choice(training)])

    def hit_rank_0(self, training):
        self.kill_some(training[:1])

    def hit_several(self, training):
        self.kill_some(self.random.sample(training, self.random.randint(2, len(training) - 1)))

    def hit_stall(self, training):
        victim = self.random.choice(training)
        self.strike(signal.SIGSTOP, victim)
        self.event.blows += 1
        self.until(lambda: not is_alive(victim), f"{victim}, which hangs, is killed")
        self.train_again(but=[victim])

    def hit_in_a_row(self, training):
        """Kills several replicas in a row, possibly while the survivors of the previous kill are forming a new group."""
        victims = self.random.sample(training, self.random.randint(2, len(training) - 1))
        for pid in victims:
            self.kill([pid])
            time.sleep(self.random.choice([0, 0.1, 0.5]) * self.random.random())
        self.train_again(but=victims)

    def hit_replacement(self, training):
        """Kills a replica, and then its replacement while the replacement is loading or joining."""
        before = set(self.replicas())
        newcomers = lambda: [pid for pid in self.replicas() if pid not in before]
        joined, may_load = self.joins(), self.random.random() < 0.3
        self.kill_some([self.random.choice(training)])
        # If too few replicas are left, their group waits for the replacement.
        comes = lambda: may_load or self.joins() > joined or set(newcomers()) & set(self.training())
        # On a busy machine, the policy may decide that a replacement is not worthwhile.
        if not eventually(lambda: newcomers() and comes(), self.deadline / 3):
            self.change_bounds((len(training), DEVICES))
        self.until(lambda: newcomers() and comes(), "a replacement comes")
        time.sleep(self.random.choice([0, 0.1, 0.5]) * self.random.random())
        self.kill_some(newcomers()[-1:])

    def hit_all(self, _):
        line = len(self.samples.read().lines)
        self.adaptdl("checkpoint", "save", "job")
        victims = self.replicas()
        self.kill(victims)
        self.event.again = self.samples.told_since(line)
        self.train_again(but=victims)
        self.repeat_all()

    def hit_launcher(self, _):
        line = len(self.samples.read().lines)
        for _ in range(2):  # the first checkpoint may have been started before that line
            before = self.checkpoints()
            self.until(lambda: self.checkpoints() - before, "a periodic checkpoint")
        replicas = self.replicas()
        self.strike(signal.SIGKILL, self.job.pid)
        self.job.finish()
        self.assertTrue(eventually(lambda: not any(map(is_alive, replicas))), "replicas outlive their launcher")
        self.event.again = self.samples.told_since(line)
        self.start_job()
        self.train_again()
        self.repeat_all()

    def hit_agent(self, _):
        old = self.agent()
        self.processes.add(old)
        self.strike(signal.SIGKILL, old)
        self.until(lambda: self.agent() not in (None, old), "there is another agent")
        self.train_again()

    def hit_resize(self, _):
        self.strike()
        self.change_bounds(self.random.choice([bounds for bounds in BOUNDS if bounds != self.bounds]))
        self.train_again()

    def repeat_all(self):
        """Waits until the job has trained on all samples since its checkpoint again, so that none counts as an effect of the next event."""
        enough = self.event.again + 2 * BATCH  # the replicas may report up to a step apart
        self.until(lambda: self.samples.told_since(self.event.line) >= enough, "the job trains again on all samples since its checkpoint")

    def joins(self):
        """Returns how often newcomers were asked to join."""
        changes = [re.search(r"adaptdl: from (\d+) to (\d+) replica", line) for line in self.job.err]
        return sum(int(change[2]) > int(change[1]) for change in changes if change)

    def checkpoints(self):
        return {path.name for path in (self.directory / "c").glob("checkpoint-*")}
