"""Summarizes meson's test logs: summary.py [--stages FILE] LOG...

Prints the end of the output of each failed test, the times of all stages and of the slowest tests, and finally "N passed, N
failed[, N skipped]". A log that does not exist is counted as a failed test. FILE is the record of stages that
tests/common.sh writes, with the peak memory in FILE.memory.
"""
import argparse
import json
import pathlib
import sys

PASSED = {"OK", "EXPECTEDFAIL"}
SKIPPED = {"SKIP", "IGNORED"}
SHOWN_LINES = 60
SLOWEST = 10


def show_failure(path, entry):
    print(f"==== {entry['result']} after {entry['duration']:.0f} s: {entry['name']} ({path})")
    for stream in ("stdout", "stderr"):
        for line in entry.get(stream, "").splitlines()[-SHOWN_LINES:]:
            print(f"{stream}: {line}")


def show_stages(path):
    times = {}  # name -> event (begin or end) -> time
    for line in path.read_text(encoding="utf-8").splitlines():
        name, event, time = line.split("\t")
        times.setdefault(name, {})[event] = int(time)
    print("seconds  stage")
    for name, time in times.items():
        ended = "end" in time
        print(f"{time['end'] - time['begin'] if ended else '-':>7}  {name}{'' if ended else ' (did not end)'}")
    ends = [time for each in times.values() for time in each.values()]
    print(f"{max(ends) - min(ends):>7}  in all, as stages overlap")
    memory = path.with_name(path.name + ".memory")
    if memory.exists():
        print(f"peak memory: {int(memory.read_text()) / 1024:.1f} GiB above that at the start")


def show_slowest(results):
    print("seconds  test")
    for (path, name), entry in sorted(results.items(), key=lambda each: -each[1]["duration"])[:SLOWEST]:
        where = path.split("/")[0].removeprefix("build").removeprefix("-sanitize-")
        print(f"{entry['duration']:>7.0f}  {name}{f' ({where})' if where else ''}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--stages", type=pathlib.Path)
    parser.add_argument("logs", nargs="+")
    options = parser.parse_args()
    # If a test ran twice, its second result in the log replaces the first.
    results, missing = {}, 0
    for path in options.logs:
        try:
            with open(path, encoding="utf-8") as log:
                for line in log:
                    entry = json.loads(line)
                    results[path, entry["name"]] = entry
        except FileNotFoundError:
            print(f"==== no test ran that writes {path}")
            missing += 1
    passed = sum(entry["result"] in PASSED for entry in results.values())
    skipped = sum(entry["result"] in SKIPPED for entry in results.values())
    failed = len(results) - passed - skipped + missing
    for (path, _), entry in results.items():
        if entry["result"] not in PASSED | SKIPPED:
            show_failure(path, entry)
    if options.stages:
        show_stages(options.stages)
        show_slowest(results)
    print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
