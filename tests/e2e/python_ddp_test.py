"""Compares our training with Python's DistributedDataParallel on the same LibTorch. Both train the same model with
the same initial parameters and batches on two replicas with one thread each, and their losses must agree in each of
100 steps. Needs Debian's python3-torch.
"""

import os
import pathlib
import tempfile
import unittest

import peer_jobs
import python_peer

PROGRAM = os.environ["DDP_PROGRAM"]
PEER = pathlib.Path(__file__).with_name("python_ddp_peer.py")
REPLICAS = 2
STEPS = 100
TOLERANCE = 1e-6  # relative to a loss, or to the largest element of a tensor
DOUBLE_TOLERANCE = 1e-12

# A case has these values:
# side: width and height of the images
# channels, widths: output channels of the convolutions, each of which is followed by pooling, and sizes of the hidden layers
# samples: number of samples in each pass of each replica
# passes: number of passes per step, all but the last one under no_sync()
# clip: maximum norm of the gradients; 0 disables clipping
# double: whether to compute in double precision. In single precision, the two implementations of SyncBatchNorm round
#   differently, and the difference grows as the loss falls, which is why the case SyncBatchNorm has a lower
#   learning rate.
# adaptive: whether our optimizer is an Adaptive one. The job has no data loader, so the scale is 1.
PLAIN = dict(side=8, channels=[4, 8], widths=[32], samples=4, passes=1, lr=0.02, clip=0, bf16=False, double=False,
             sync_batch_norm=False, adaptive=False)
CASES = {
    "plain": {},
    "accumulation": dict(passes=2),
    "SyncBatchNorm": dict(sync_batch_norm=True, lr=0.001),
    "SyncBatchNorm, double": dict(sync_batch_norm=True, double=True),
    "clipping": dict(clip=0.5),
    "bf16": dict(bf16=True),
    "adaptive": dict(adaptive=True),
    "all but bf16, double": dict(passes=2, clip=0.5, sync_batch_norm=True, double=True, adaptive=True),
    "all but SyncBatchNorm": dict(passes=2, clip=0.5, bf16=True, adaptive=True),
}


def answers(job, name, case):
    job.ask(what="make", case={**PLAIN, **case, "name": name})
    losses = [answer["losses"] for answer in job.ask(what="train", steps=STEPS)]
    return losses, job.ask(what="state")


def difference(ours, python):
    """Returns the largest difference between two lists of numbers, relative to the largest number in `python`."""
    return max(abs(a - b) for a, b in zip(ours, python, strict=True)) / max(map(abs, python))


class PythonDdpTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        python = python_peer.python_with_torch()
        with (
            tempfile.TemporaryDirectory() as directory,
            peer_jobs.Job.ours(PROGRAM, REPLICAS) as ours,
            peer_jobs.Job.of_python(python, PEER, REPLICAS, pathlib.Path(directory, "store")) as theirs,
        ):
            peer_jobs.require_same_torch(ours, theirs)
            cls.ours = {name: answers(ours, name, case) for name, case in CASES.items()}
            cls.python = {name: answers(theirs, name, case) for name, case in CASES.items()}

    def compare(self, name):
        (losses, states), (python_losses, python_states) = self.ours[name], self.python[name]
        passes = CASES[name].get("passes", 1)
        tolerance = DOUBLE_TOLERANCE if CASES[name].get("double") else TOLERANCE
        largest_loss = largest_state = 0
        for rank in range(REPLICAS):
            self.assertEqual(len(losses[rank]), STEPS * passes)
            for number, (mine, theirs) in enumerate(zip(losses[rank], python_losses[rank], strict=True)):
                largest_loss = max(largest_loss, difference([mine], [theirs]))
                what = f"loss of pass {number} on replica {rank}: {mine}, of Python {theirs}"
                self.assertLessEqual(difference([mine], [theirs]), tolerance, what)
            self.assertEqual(states[rank].keys(), python_states[rank].keys())
            for tensor, values in states[rank].items():
                largest_state = max(largest_state, difference(values, python_states[rank][tensor]))
                self.assertLessEqual(difference(values, python_states[rank][tensor]), tolerance, tensor)
            # The job learns. Its losses equal those of the plain case only in the cases `plain` and `adaptive`.
            epoch = 5 * passes
            self.assertLess(sum(losses[rank][-epoch:]), 0.9 * sum(losses[rank][:epoch]))
        self.assertNotEqual(losses[0], losses[1])
        self.assertEqual(losses == self.ours["plain"][0], name in ("plain", "adaptive"))
        print(f"{name}: largest relative difference of a loss {largest_loss:.1e}, of a tensor {largest_state:.1e}")

    def test_plain_sgd_matches_ddp(self):
        self.compare("plain")

    def test_gradients_accumulated_under_no_sync_match_ddp(self):
        self.compare("accumulation")

    def test_synchronized_batch_normalization_matches_ddp(self):
        self.compare("SyncBatchNorm")

    def test_synchronized_batch_normalization_in_double_precision_matches_ddp(self):
        self.compare("SyncBatchNorm, double")

    def test_clipped_gradients_match_ddp(self):
        self.compare("clipping")

    def test_mixed_precision_matches_ddp(self):
        self.compare("bf16")

    def test_an_adaptive_optimizer_at_scale_1_matches_plain_sgd(self):
        self.compare("adaptive")

    def test_all_features_except_mixed_precision_match_ddp_when_combined(self):
        self.compare("all but bf16, double")

    def test_all_features_except_batch_normalization_match_ddp_when_combined(self):
        self.compare("all but SyncBatchNorm")


if __name__ == "__main__":
    python_peer.main()
