"""Checks that a run of the tests leaves nothing on the machine: leftovers.py record FILE, then leftovers.py check FILE.

`record` saves the state of the machine before the run. After the run, `check` prints everything that is new, one item per line, and
fails if there is anything. The processes of the run have its ADAPTDL_SUITE in their environment, and its temporary files are in its
own TMPDIR. Other files and cgroups are checked if their names contain "adaptdl".
"""

import json
import os
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
PLACES = ["/tmp", "/var/tmp", "/dev/shm", "/run", "/run/netns", "/run/lock", "/var/lib/cni/results", str(pathlib.Path.home())]
MARK = "adaptdl"
OTHERS = ("adaptdl-suite-", "adaptdl-stages-")  # files of test runs that are in progress at the same time
GRACE = 60  # seconds to wait for processes that are about to end, such as an agent, which ends 10 s after its last run


def names_in(directory):
    try:
        return [entry.path for entry in os.scandir(directory)]
    except OSError:
        return []


def mounts():
    lines = pathlib.Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
    return [line.split()[4] for line in lines]


def cgroups():
    return [directory for directory, _, _ in os.walk("/sys/fs/cgroup") if MARK in directory]


def devices():
    return names_in("/sys/class/net")


def source_changes():
    command = ["git", "-C", ROOT, "status", "--porcelain", "--untracked-files=all"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines()
    except FileNotFoundError:
        return []


def files():
    paths = (pathlib.Path(path) for place in PLACES for path in names_in(place))
    return [str(path) for path in paths if (MARK in path.name and not path.name.startswith(OTHERS)) or path.parent.name == "netns"]


def snapshot():
    return {
        "file": files(),
        "mount": mounts(),
        "cgroup": cgroups(),
        "network device": devices(),
        "change of the source": source_changes(),
    }


def ancestors():
    pids, pid = set(), os.getpid()
    while pid > 0 and pid not in pids:
        pids.add(pid)
        text = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        pid = int(text.rpartition(")")[2].split()[1])
    return pids


def processes(suite):
    """Returns the processes of this run, except this process and its ancestors."""
    mark, own = f"ADAPTDL_SUITE={suite}".encode(), ancestors()
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if int(path.name) in own or mark not in (path / "environ").read_bytes().split(b"\0"):
                continue
            command = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            found.append(f"{path.name}: {command[:200]}")
        except OSError:
            continue  # the process has ended
    return found


def record(path):
    path.write_text(json.dumps(snapshot()), encoding="utf-8")


def check(path):
    deadline = time.monotonic() + GRACE
    while (left := processes(os.environ["ADAPTDL_SUITE"])) and time.monotonic() < deadline:
        time.sleep(0.2)
    lines = [f"process {each}" for each in left]
    lines += [f"file {each}" for each in names_in(os.environ["TMPDIR"])]
    before = json.loads(path.read_text(encoding="utf-8"))
    for kind, now in snapshot().items():
        lines += [f"{kind} {each}" for each in sorted(set(now) - set(before[kind]))]
    print("\n".join(lines))
    return 1 if lines else 0


if __name__ == "__main__":
    if sys.argv[1] == "record":
        record(pathlib.Path(sys.argv[2]))
    elif "ADAPTDL_SUITE" not in os.environ:
        print("skipped: run ./bootstrap test, which records the state before the tests")
        sys.exit(77)
    else:
        sys.exit(check(pathlib.Path(sys.argv[2])))
