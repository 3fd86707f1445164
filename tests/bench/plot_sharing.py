"""Lets two runs share four devices of this machine, and draws which run held which devices:

    python3 tests/bench/plot_sharing.py build/cli/adaptdl build/tests/e2e/rescale_program > docs/sharing.svg

The program really trains, but its steps sleep for as long as they would take on dedicated devices, so that four devices
are worthwhile even on a machine with fewer cores.
"""

import json
import os
import subprocess
import sys
import tempfile
import time

DEVICES = ["0", "1", "2", "3"]
RUNS = {"first": (0, 55), "second": (12, 30)}  # in seconds: when the run is started, and when it is asked to end
SECONDS, STEP_MS = 62, 400
WIDTH, LEFT, TOP, ROW, GAP, RIGHT = 760, 84, 64, 30, 8, 24
COLOURS = {"first": "#0072b2", "second": "#d55e00"}


def record(adaptdl, program, home):
    """Returns what `adaptdl ls` shows several times per second, as a list of (seconds, {run: (devices, why)})."""
    environment = {**os.environ, "HOME": home, "XDG_STATE_HOME": home, "XDG_RUNTIME_DIR": home, "OMP_NUM_THREADS": "1"}

    def call(*words):
        return subprocess.run([adaptdl, *words], env=environment, check=True, capture_output=True, text=True).stdout

    steps = [(at, name, "start") for name, (at, _) in RUNS.items()] + [(at, name, "end") for name, (_, at) in RUNS.items()]
    steps.sort()
    begin, seen = time.monotonic(), []
    while (now := time.monotonic() - begin) < SECONDS:
        if steps and now >= steps[0][0]:
            _, name, what = steps.pop(0)
            if what == "start":
                call("run", "--detach", "--name", name, "--replicas", "1:4", "--devices", "4", "--device-kind", "cpu",
                     "--", program, "--epochs", "1000", "--step-time", str(STEP_MS))
            else:
                call("delete", name)
        runs = json.loads(call("ls", "--json"))
        seen.append((now, {run["name"]: (run["devices"], run["why"]) for run in runs if run["ended"] is None}))
        time.sleep(0.1)
    return seen


def blocks(seen):
    """Yields the intervals in which a run held a device: (device, run, from, to)."""
    open_blocks = {}
    for now, runs in seen + [(seen[-1][0], {})]:
        held = {(device, run) for run, (devices, _) in runs.items() for device in devices}
        for key in [key for key in open_blocks if key not in held]:
            yield (*key, open_blocks.pop(key), now)
        for key in held:
            open_blocks.setdefault(key, now)


def changes(seen):
    """Yields the reason for each change of a run's number of devices: (seconds, run, devices, reason)."""
    last = {}
    for now, runs in seen:
        for run, (devices, why) in runs.items():
            if devices and last.get(run) != len(devices):
                last[run] = len(devices)
                yield now, run, len(devices), why


def text(x, y, words, anchor="start", **more):
    extra = "".join(f' {name.replace("_", "-")}="{value}"' for name, value in more.items())
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{extra}>{words}</text>'


def draw(seen):
    across = lambda seconds: LEFT + seconds / SECONDS * WIDTH
    floor = TOP + len(DEVICES) * (ROW + GAP)
    reasons = list(changes(seen))
    height = floor + 56 + 18 * len(reasons)
    yield (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + RIGHT} {height}" '
           'font-family="sans-serif" font-size="12" fill="#333">')
    yield '<rect width="100%" height="100%" fill="white"/>'
    yield text(LEFT, 24, "Two runs share four devices", font_size=15)
    for i, (name, (start, end)) in enumerate(RUNS.items()):
        x = LEFT + 300 + 230 * i
        yield f'<rect x="{x}" y="13" width="12" height="12" fill="{COLOURS[name]}"/>'
        yield text(x + 18, 24, f"{name}: from {start} s to {end} s")
    for tick in range(0, SECONDS + 1, 10):
        yield f'<line x1="{across(tick):.1f}" x2="{across(tick):.1f}" y1="{TOP - 8}" y2="{floor}" stroke="#ddd"/>'
        yield text(across(tick), floor + 16, f"{tick} s", "middle")
    for i, device in enumerate(DEVICES):
        yield text(LEFT - 12, TOP + i * (ROW + GAP) + ROW / 2 + 4, f"device {device}", "end")
    for device, run, begin, end in sorted(blocks(seen)):
        y = TOP + DEVICES.index(device) * (ROW + GAP)
        yield (f'<rect x="{across(begin):.1f}" y="{y}" width="{across(end) - across(begin):.1f}" height="{ROW}" '
               f'fill="{COLOURS[run]}"/>')
    for i, (now, run, count, why) in enumerate(reasons):
        words = f"{now:.1f} s: {run} has {count}" + (f" ({why})" if why else "")
        yield text(LEFT, floor + 44 + 18 * i, words, fill=COLOURS[run])
    yield "</svg>"


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    adaptdl, program = map(os.path.abspath, sys.argv[1:])
    with tempfile.TemporaryDirectory() as home:
        os.chmod(home, 0o700)
        seen = record(adaptdl, program, home)
    print("\n".join(draw(seen)))


if __name__ == "__main__":
    main()
