"""Compares how long `adaptdl build --push` and buildah take: image_build.py [MIB] [ROUNDS]

Both build the same project and push it to the same docker-registry. The project has a base image in the registry, a RUN, and
MIB MiB of files: a third program sources, a third shared libraries, and a third incompressible bytes. The two builders
take turns, ROUNDS times:

cold     neither has cached anything: `adaptdl build --push`, and `buildah bud --layers` with `buildah push`
change   one line of one project file has changed since
nothing  nothing has changed (adaptdl only)

Each round pushes to new repositories. The times are medians from start to exit; the CPU time includes all processes that the
commands start. Also measures how much memory a cold build of 1 GiB of files takes. Exits with 1 if a bound is not met.
"""

import json
import os
import pathlib
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "e2e"))
from registry_support import RegistryServer  # noqa: E402

ADAPTDL = os.environ["ADAPTDL_BIN"]
MIB = int(sys.argv[1]) if len(sys.argv) > 1 else 300
ROUNDS = int(sys.argv[2]) if len(sys.argv) > 2 else 3
PATIENCE = 1200
IN_NAMESPACE = "ADAPTDL_BENCH_IN_NAMESPACE"
# These bounds are fractions of buildah's time.
COLD_BOUND, CHANGE_BOUND = 1 / 2, 1 / 4
NOTHING_BOUND_SECONDS = 1
MEMORY_BOUND_MIB = 200
BASE = """FROM scratch
COPY busybox /bin/busybox
RUN ["/bin/busybox", "--install", "-s", "/bin"]
COPY lib /usr/lib
"""
PROJECT = """FROM {base}
RUN mkdir -p /app /var/lib/app && echo app > /etc/motd
WORKDIR /app
COPY settings.txt .
RUN wc -c settings.txt > size
COPY . .
ENV MODE=train
CMD ["sh", "-c", "ls"]
"""


def copy_some(roots, target, mebibytes, skip=0):
    """Copies files from this machine, in order, until they add up to `mebibytes` MiB. Leaves out the first `skip` MiB
    of files."""
    bytes_left, to_skip = mebibytes << 20, skip << 20
    for root in roots:
        for directory, names, files in os.walk(root):
            names.sort()
            for name in sorted(files):
                path = pathlib.Path(directory, name)
                if path.is_symlink() or not path.is_file():
                    continue
                size = path.stat().st_size
                if size > mebibytes << 18:  # no single file may be a large part of the total
                    continue
                if to_skip > 0:
                    to_skip -= size
                    continue
                if bytes_left <= 0:
                    return
                place = target / path.relative_to("/")
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, place)
                bytes_left -= size


def random_file(path, mebibytes):
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "wb") as file:
        for _ in range(mebibytes):
            file.write(os.urandom(1 << 20))


def processor_seconds():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


class Bench:
    def __init__(self, root):
        self.root = root
        self.server = RegistryServer(root / "registry")
        self.project = root / "project"
        self.cache = root / "cache"
        self.environment = {**os.environ, "ADAPTDL_BUILD_CACHE": str(self.cache), "TMPDIR": str(root)}

    def make(self):
        base = self.root / "base"
        copy_some(["/usr/lib/x86_64-linux-gnu", "/usr/lib"], base / "lib", 200)
        shutil.copy(shutil.which("busybox"), base / "busybox")
        (base / "Dockerfile").write_text(BASE)
        done = subprocess.run([ADAPTDL, "build", "-q", "--json", "-t", f"{self.server.host}/base:1", "--push", base], env=self.environment, check=True,
                              timeout=PATIENCE, capture_output=True)
        print(f"base image {json.loads(done.stdout)['size'] / 2**20:.0f} MiB")
        self.project.mkdir()
        (self.project / "Dockerfile").write_text(PROJECT.format(base=f"{self.server.host}/base:1"))
        (self.project / "settings.txt").write_text("steps = 1000\n")
        (self.project / "train.py").write_text("print('training')\n")
        copy_some(["/usr/include", "/usr/lib/python3", "/usr/lib/python3.11"], self.project / "source", MIB // 3)
        copy_some(["/usr/lib/x86_64-linux-gnu", "/usr/lib"], self.project / "libraries", MIB // 3, skip=200)
        random_file(self.project / "weights", MIB - 2 * (MIB // 3))

    def measure(self, *commands):
        """Runs the commands, and returns the elapsed time and the CPU time, in seconds."""
        began, used = time.monotonic(), processor_seconds()
        for command in commands:
            done = subprocess.run(list(map(str, command)), env=self.environment, timeout=PATIENCE, capture_output=True, text=True)
            if done.returncode != 0:
                sys.exit(f"{command}: {done.stderr}")
        return time.monotonic() - began, processor_seconds() - used

    def adaptdl(self, name):
        return self.measure([ADAPTDL, "build", "-t", f"{self.server.host}/{name}:1", "--push", self.project])

    def buildah(self, name):
        place = ["--root", self.root / "buildah", "--runroot", self.root / "buildah-run", "--storage-driver", "overlay"]
        image = f"{self.server.host}/{name}:1"
        return self.measure(["buildah", *place, "bud", "--layers", "--tls-verify=false", "-t", image, self.project],
                            ["buildah", *place, "push", "--tls-verify=false", image])

    def forget(self):
        """Removes everything that adaptdl and buildah have cached."""
        shutil.rmtree(self.cache, ignore_errors=True)
        place = self.root / "buildah"
        if place.exists():
            # buildah leaves its storage mounted.
            subprocess.run(["umount", "--recursive", place / "overlay"], capture_output=True)
            shutil.rmtree(place)
            shutil.rmtree(self.root / "buildah-run", ignore_errors=True)

    def change(self, number):
        with open(self.project / "train.py", "a") as file:
            file.write(f"print({number})\n")

    def memory(self):
        """Returns the peak memory of a cold build of 1 GiB of files, in MiB."""
        shutil.rmtree(self.cache)
        random_file(self.project / "more", 1024 - MIB)
        program = ("import os, resource, subprocess, sys; done = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL);"
                   "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss); sys.exit(done.returncode)")
        done = subprocess.run([sys.executable, "-c", program, ADAPTDL, "build", "-t", f"{self.server.host}/large:1", "--push", self.project],
                              env=self.environment, timeout=PATIENCE, capture_output=True, text=True, check=True)
        return int(done.stdout) / 1024

    def close(self):
        self.server.kill()
        self.forget()


def compare(name, theirs, ours, bound):
    their_time, our_time = statistics.median(wall for wall, _ in theirs), statistics.median(wall for wall, _ in ours)
    ratio = statistics.median(our[0] / their[0] for their, our in zip(theirs, ours))
    their_work, our_work = statistics.median(cpu for _, cpu in theirs), statistics.median(cpu for _, cpu in ours)
    print(f"{name}: buildah {their_time:.2f} s (CPU {their_work:.2f} s), adaptdl {our_time:.2f} s (CPU {our_work:.2f} s), {ratio:.2f} of buildah's time "
          f"(bound {bound:.2f})", flush=True)
    return ratio <= bound


def main():
    if missing := [tool for tool in ("buildah", "busybox", "docker-registry") if shutil.which(tool) is None]:
        print("skipped: these are not installed:", *missing)
        return 77
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    root = pathlib.Path(tempfile.mkdtemp(prefix="adaptdl-bench-"))
    bench = Bench(root)
    try:
        bench.make()
        times = {name: [] for name in ("buildah cold", "adaptdl cold", "buildah change", "adaptdl change", "adaptdl nothing")}
        for number in range(ROUNDS):
            bench.forget()
            times["buildah cold"].append(bench.buildah(f"b{number}"))
            times["adaptdl cold"].append(bench.adaptdl(f"a{number}"))
            bench.change(number)
            times["buildah change"].append(bench.buildah(f"b{number}"))
            times["adaptdl change"].append(bench.adaptdl(f"a{number}"))
            times["adaptdl nothing"].append(bench.adaptdl(f"a{number}"))
            print(f"round {number + 1}:", ", ".join(f"{name} {taken[-1][0]:.2f} s" for name, taken in times.items()), flush=True)
        good = [compare(f"{MIB} MiB, cold", times["buildah cold"], times["adaptdl cold"], COLD_BOUND),
                compare(f"{MIB} MiB, one file changed", times["buildah change"], times["adaptdl change"], CHANGE_BOUND)]
        nothing = statistics.median(wall for wall, _ in times["adaptdl nothing"])
        print(f"{MIB} MiB, nothing changed: adaptdl {nothing:.2f} s (bound {NOTHING_BOUND_SECONDS} s)")
        memory = bench.memory()
        print(f"1 GiB, cold: adaptdl takes {memory:.0f} MiB of memory (bound {MEMORY_BOUND_MIB} MiB)")
        return 0 if all(good) and nothing < NOTHING_BOUND_SECONDS and memory < MEMORY_BOUND_MIB else 1
    finally:
        bench.close()
        shutil.rmtree(root)


if __name__ == "__main__":
    # In a private mount namespace, no other process sees the mounts, and they disappear at the end.
    unshare = ["unshare", "--mount", "--propagation", "private"]
    if IN_NAMESPACE not in os.environ and subprocess.run([*unshare, "true"], capture_output=True).returncode == 0:
        os.execvpe("unshare", [*unshare, sys.executable, *sys.argv], {**os.environ, IN_NAMESPACE: "1"})
    sys.exit(main())
