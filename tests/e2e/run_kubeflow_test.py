"""Tests programs under `adaptdl run` that report their progress in the format of Kubeflow Trainer, as Hugging Face's Trainer does."""

import json
import os
import pathlib
import stat
import sys
import unittest

from local_network import leave_network
from run_support import RunTest, eventually

PROGRAM = pathlib.Path(__file__).with_name("kubeflow_program.py")
MIDDLE = {
    "progress": 29, "targetProgress": 100, "remaining_s": 795, "loss": 0.2347, "grad_norm": 1.5, "learning_rate": 5e-05,
    "epoch": 0.29, "step": 29, "steps": 100,
}  # fmt: skip
END = {
    "progress": 100, "targetProgress": 100, "remaining_s": 0, "loss": 0.1, "grad_norm": 1.5, "learning_rate": 5e-05,
    "epoch": 1, "train_loss": 0.3,
}  # fmt: skip
SHOW = """
import json, os
names = ("KUBEFLOW_TRAINER_SERVER_URL", "KUBEFLOW_TRAINER_SERVER_TOKEN")
print(json.dumps([os.environ.get(name) for name in names]))
"""
# Reports progress on the status descriptor, and then in the Kubeflow format.
BOTH = """
import os, sys
sys.path.insert(0, {directory!r})
import kubeflow_program
os.write(int(os.environ["ADAPTDL_STATUS_FD"]), b'{{"epoch": 3, "loss": 0.5}}\\n')
print("posted", kubeflow_program.post(29, 795, {{"loss": 0.2347}}), flush=True)
"""
# Every replica stays until all three have posted, because the progress that is shown is that of the running replica with the
# lowest rank.
SEVERAL = """
import os, sys, time
sys.path.insert(0, {directory!r})
import kubeflow_program
rank = int(os.environ["ADAPTDL_REPLICA_RANK"])
print("posted", kubeflow_program.post(50 + rank), flush=True)
open({posted!r} + str(rank), "w").close()
while not all(os.path.exists({posted!r} + str(other)) for other in range(3)):
    time.sleep(0.01)
"""


class KubeflowTest(RunTest):
    def go_on(self):
        (self.directory / "go").touch()

    def start_program(self, name, *options, **more):
        return self.start("--name", name, *options, "--", sys.executable, PROGRAM, self.directory / "go", **more)

    def progress(self, name):
        return self.listed(name)[name]["progress"]

    def test_posted_progress_is_shown_and_the_last_post_is_kept(self):
        proxy = "http://127.0.0.1:9"  # must not be used between the program and the run
        run = self.start_program("job", http_proxy=proxy, no_proxy="example.org")
        run.wait_for("[0] middle 200")
        self.assertTrue(eventually(lambda: self.progress("job") == MIDDLE), self.progress("job"))

        def shown():
            heading, row = self.adaptdl("ls", "job").splitlines()
            fields = dict(zip(heading.split(), row.split()))
            return fields["EPOCH"], fields["LOSS"]

        # If a launcher does not answer at once, its run is shown as it was last recorded.
        self.assertTrue(eventually(lambda: shown() == ("0.29", "0.2347")), shown())
        self.assertTrue(eventually(lambda: "remaining_s" in self.adaptdl("describe", "job")))
        token = self.runs / "job" / "token"
        self.assertEqual(stat.S_IMODE(token.stat().st_mode), 0o600)
        self.go_on()
        self.assertEqual(run.finish(), 0, run.text())
        self.assertEqual(self.progress("job"), END)
        self.assertFalse(token.exists())

    def test_with_several_posting_replicas_the_progress_of_rank_0_is_shown(self):
        program = self.python("three", SEVERAL.format(directory=str(PROGRAM.parent), posted=str(self.directory / "posted")))
        run = self.run_to_end("--name", "job", "-n", 3, program)
        self.assertEqual(sorted(run.out), [f"[{rank}] posted 200" for rank in range(3)])
        self.assertEqual(self.progress("job"), {"progress": 50, "targetProgress": 100})

    def test_reports_on_the_status_descriptor_take_precedence_over_posted_progress(self):
        self.run_to_end("--name", "job", self.python("both", BOTH.format(directory=str(PROGRAM.parent))))
        self.assertEqual(self.progress("job"), {"epoch": 3, "loss": 0.5})

    def test_the_kubeflow_variables_are_set_unless_the_user_set_them_or_no_record_exists(self):
        program = self.python("show", SHOW)

        def shown(*options, **more):
            [line] = self.run_to_end("-n", 1, *options, program, **more).out
            return json.loads(line.split(" ", 1)[1])

        url, token = shown("--name", "job")
        self.assertRegex(url, r"^http://127\.0\.0\.1:\d+/kubeflow/local/job\?replica=0-0$")
        self.assertEqual(token, str(self.runs / "job" / "token"))
        own = {"KUBEFLOW_TRAINER_SERVER_URL": "https://elsewhere", "KUBEFLOW_TRAINER_SERVER_TOKEN": "/mine"}
        self.assertEqual(shown(**own), ["https://elsewhere", "/mine"])
        self.assertEqual(shown("--env", "KUBEFLOW_TRAINER_SERVER_URL="), ["", None])
        self.assertEqual(shown("--no-checkpoint", HOME=None), [None, None])

    def test_a_token_left_by_a_killed_run_is_replaced(self):
        run = self.start_program("job")
        run.wait_for("[0] middle 200")
        run.process.kill()
        run.finish()
        token = self.runs / "job" / "token"
        before = token.read_text(encoding="utf-8")
        self.go_on()
        os.chmod(token, 0o644)
        again = self.start_program("job")
        again.wait_for("[0] end 200")
        self.assertEqual(again.finish(), 0, again.text())
        self.assertRegex(before, "^[0-9a-f]{32}$")
        self.assertFalse(token.exists())


if __name__ == "__main__":
    leave_network()
    unittest.main(verbosity=2)
