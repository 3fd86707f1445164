"""A few failures of each kind over a training job: the short form of tests/soak/failure_soak.py."""

import os
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(os.environ["SOURCE_ROOT"]) / "tests" / "soak"))
import failure_soak  # noqa: E402
from local_network import leave_network  # noqa: E402

# After each failure the launcher waits longer before it starts others; a new launcher begins with a short time again.
ORDER = (
    "agent", "resize", "all", "launcher", "rank 0", "several", "stall", "replacement", "in a row", "replica", "rank 0",
    "resize",
)  # fmt: skip


class FailureSoakTest(failure_soak.FailureSoak):
    # A replica that is not scheduled for as long is lost, too, which no event accounts for.
    hang_timeout = "7s"
    # The policy might have some leave just when the others are killed, and nothing would be left to continue from.
    preferred = failure_soak.DEVICES

    def test_each_kind_of_failure_loses_only_bounded_work_and_preserves_the_loss(self):
        self.soak(ORDER, seed=1)


if __name__ == "__main__":
    leave_network()
    unittest.main()
