"""Compares how long `adaptdl cp` and `kubectl cp` take for a large file: cluster_copy.py [MIB] [ROUNDS]

The two commands copy the file into a pod of a real cluster and out of it, in turn; the median times from start to exit are
compared. adaptdl's time includes comparing the SHA-256 digests of both ends. kubectl does not verify its copies, so
this script checks separately that they are complete.
"""

import filecmp
import os
import pathlib
import statistics
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "cluster"))
import cluster_support  # noqa: E402
from cluster_jobs_support import ClusterJobsTest  # noqa: E402
from cluster_support import ADAPTDL  # noqa: E402

MIB = int(sys.argv[1]) if len(sys.argv) > 1 else 1024
ROUNDS = int(sys.argv[2]) if len(sys.argv) > 2 else 3


class Copying(ClusterJobsTest):
    @classmethod
    def start_job(cls):
        """Starts a job, and returns the name of its pod."""
        self = cls()
        self.make_job("job", command="mkdir -p /tmp/there; sleep 100000")
        return self.pods_of("job")[0]["metadata"]["name"]


def measure(command, environment):
    began = time.monotonic()
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment, timeout=1200, check=True)
    return time.monotonic() - began


def main():
    cluster_support.use_cluster()
    Copying.setUpClass()
    try:
        pod = Copying.start_job()
        environment = Copying().environment()
        source, target = Copying.directory / "source", Copying.directory / "target"
        with open(source, "wb") as file:
            for _ in range(MIB):
                file.write(os.urandom(1 << 20))
        commands = {
            ("into the pod", "kubectl cp"): ["kubectl", "cp", source, f"{pod}:/tmp/there/k"],
            ("into the pod", "adaptdl cp"): [ADAPTDL, "cp", source, "job:/tmp/there/a"],
            ("out of the pod", "kubectl cp"): ["kubectl", "cp", f"{pod}:/tmp/there/k", target],
            ("out of the pod", "adaptdl cp"): [ADAPTDL, "cp", "job:/tmp/there/a", target],
        }
        times = {name: [] for name in commands}
        for _ in range(ROUNDS):
            for (way, program), command in commands.items():
                target.unlink(missing_ok=True)
                times[way, program].append(measure(command, environment))
                if way == "out of the pod" and not filecmp.cmp(source, target, shallow=False):
                    print(f"{program} copied back a different file")
                    return program == "adaptdl cp"
        good = True
        for way in ("into the pod", "out of the pod"):
            theirs, ours = (statistics.median(times[way, program]) for program in ("kubectl cp", "adaptdl cp"))
            print(f"{MIB} MiB {way}: kubectl cp {theirs:.2f} s, adaptdl cp {ours:.2f} s, {ours / theirs:.2f} of kubectl's time")
            good = good and ours <= theirs
        return 0 if good else 1
    finally:
        Copying.doClassCleanups()


if __name__ == "__main__":
    sys.exit(main())
