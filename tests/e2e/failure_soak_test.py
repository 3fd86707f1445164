"""Causes a few failures of each kind in a training job: the short form of tests/soak/failure_soak.py."""

import os
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(os.environ["SOURCE_ROOT"]) / "tests" / "soak"))
import failure_soak  # noqa: E402
from local_network import leave_network  # noqa: E402

# The launcher waits longer after each failure before it starts new replicas. With a new launcher, the wait is short again.
ORDER = (
    "agent", "resize", "all", "launcher", "rank 0", "several", "stall", "replacement", "in a row", "replica", "rank 0",
    "resize",
)  # fmt: skip


class FailureSoakTest(failure_soak.FailureSoak):
    # A replica that the machine does not schedule for this long is also lost, and no event would account for that loss.
    hang_timeout = "7s"
    # Otherwise, the policy could let some replicas leave just when the others are killed, and none would remain.
    preferred = failure_soak.DEVICES

    def test_each_kind_of_failure_loses_only_bounded_work_and_does_not_affect_the_loss(self):
        self.soak(ORDER, seed=1)


if __name__ == "__main__":
    leave_network()
    unittest.main()
