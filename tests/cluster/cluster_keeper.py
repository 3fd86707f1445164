"""One real cluster that all tests of a suite share, though each is a process of its own.

Whoever needs it borrows it. The first borrower starts a keeper, a process apart that brings the cluster up, and takes it
down when nobody has needed it for a while. All agreement is by locks of files, which the kernel lets go of with the process
that held them, so that a test which is killed leaves nothing behind, and a keeper that is killed is followed by another:

    NAME.users   shared by every borrower; held alone by the keeper while it takes the cluster down
    NAME.start   held while a borrower looks whether there is a keeper, and starts one
    NAME.keeper  held by the keeper as long as it lives
"""

import fcntl
import os
import pathlib
import signal
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "e2e"))
from python_peer import cache_directory  # noqa: E402

STATE = pathlib.Path(os.environ.get("KUBE_CLUSTER_STATE", "/run/adaptdl-kubernetes"))
KUBE_CLUSTER = pathlib.Path(__file__).with_name("kube-cluster")
NODES = os.environ.get("KUBE_CLUSTER_NODES", "2")
LINGER = 60  # seconds between the last borrower and the end, so that a suite's tests find it up
READY = STATE / "ready"
CACHE = cache_directory() / "kubernetes"
LOG = CACHE / "log" / f"{STATE.name}.keeper.log"


class Unavailable(Exception):
    """There can be no cluster on this machine, and why."""


def obstacle():
    """Why this machine can have no cluster; empty if it can."""
    check = subprocess.run([KUBE_CLUSTER, "check"], capture_output=True, text=True, timeout=60)
    return check.stderr.strip() if check.returncode else ""


def _open(name):
    return open(CACHE / f"{STATE.name}.{name}", "a+", encoding="utf-8")


def _try_lock(file, how):
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False


def _keeper_lives():
    with _open("keeper") as file:
        return not _try_lock(file, fcntl.LOCK_SH)


def borrow():
    """Returns the kubeconfig's path and the path of the network namespace that it is to be used in, once the cluster is up.
    What was borrowed goes back when this process ends. Throws Unavailable."""
    reason = obstacle()
    if reason:
        raise Unavailable(reason)
    LOG.parent.mkdir(parents=True, exist_ok=True)
    borrow.users = _open("users")  # its lock lasts as long as it is open
    fcntl.flock(borrow.users, fcntl.LOCK_SH)
    with _open("start") as start:
        fcntl.flock(start, fcntl.LOCK_EX)
        if not _keeper_lives():
            READY.unlink(missing_ok=True)
            with open(LOG, "w", encoding="utf-8") as log:
                subprocess.Popen(  # outlives this test
                    [sys.executable, __file__], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
                )
            while not _keeper_lives() and not LOG.read_text(encoding="utf-8"):
                time.sleep(0.05)
        while not READY.exists():
            if not _keeper_lives():
                raise RuntimeError(f"the cluster did not come up:\n{LOG.read_text(encoding='utf-8')}")
            time.sleep(0.2)
    return STATE / "admin.conf", READY.read_text(encoding="utf-8").strip()


def give_back():
    """What was borrowed goes back now."""
    if hasattr(borrow, "users"):
        borrow.users.close()


def load(archive):
    """Gives every node the images of an archive."""
    subprocess.run([KUBE_CLUSTER, "load", archive], check=True, timeout=300)


def end():
    """Takes all clusters down as soon as nobody uses them, rather than a while later; returns when that is done."""
    waiting = []
    for path in CACHE.glob("*.keeper"):
        file = open(path, encoding="utf-8")
        if _try_lock(file, fcntl.LOCK_SH):
            file.close()
            continue
        os.kill(int(file.read()), signal.SIGTERM)
        waiting.append(file)
    for file in waiting:
        fcntl.flock(file, fcntl.LOCK_SH)
        file.close()


def keep():
    linger = LINGER

    def hurry(_number, _frame):
        nonlocal linger
        linger = 0

    signal.signal(signal.SIGTERM, hurry)
    keeper = _open("keeper")
    fcntl.flock(keeper, fcntl.LOCK_EX)
    keeper.truncate(0)
    keeper.write(str(os.getpid()))
    keeper.flush()
    with _open("users") as users:
        # What is started here must not inherit the locks: Python's files are closed in children.
        if subprocess.run([KUBE_CLUSTER, "up", NODES], check=False).returncode:
            subprocess.run([KUBE_CLUSTER, "down"], check=False)
            sys.exit(1)
        network = subprocess.run([KUBE_CLUSTER, "network"], check=True, capture_output=True, text=True).stdout
        partial = READY.with_suffix(".partial")
        partial.write_text(network, encoding="utf-8")
        partial.rename(READY)
        idle_since = time.monotonic()
        while True:
            if not _try_lock(users, fcntl.LOCK_EX):
                idle_since = time.monotonic()
            elif time.monotonic() - idle_since >= linger:
                READY.unlink()
                subprocess.run([KUBE_CLUSTER, "down"], check=True)
                # First: a borrower that waits for `users` must not find this keeper alive, as its cluster is gone.
                keeper.close()
                return
            else:
                fcntl.flock(users, fcntl.LOCK_UN)
            time.sleep(1)


def build():
    """Exit code 0 when all is built, 77 where that is not needed or cannot be."""
    if os.environ.get("KUBECONFIG"):
        print("skipped, as KUBECONFIG names a cluster")
        return 77
    reason = obstacle()
    if reason:
        print(f"skipped, as there can be no cluster: {reason}")
        return 77
    return subprocess.run([KUBE_CLUSTER, "build"], check=False).returncode


if __name__ == "__main__":
    if sys.argv[1:] == ["build"]:
        sys.exit(build())
    if sys.argv[1:] == ["end"]:
        end()
    else:
        keep()
