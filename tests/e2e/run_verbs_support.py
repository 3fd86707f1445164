"""Helpers for the end-to-end tests of commands that refer to runs by name."""

from run_support import REPLICA_PROGRAM, RunTest

FOREVER = 1_000_000  # steps


class VerbsTest(RunTest):
    def start_counting(self, name, *arguments, replicas=2, program=(REPLICA_PROGRAM, "--steps", FOREVER), **more):
        run = self.start("-n", replicas, "--name", name, *arguments, *program, **more)
        run.wait_for("begins at step", replicas)
        return run

    def refusal(self, *words, code=1):
        message = self.adaptdl(*words, code=code)
        self.assertRegex(message, r"\Aadaptdl: error: [^\n]+\n\Z")
        return message[len("adaptdl: error: ") : -1]
