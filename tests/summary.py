"""Adds up meson's test logs: the end of every failure's output, then "N passed, N failed[, N skipped]"."""
import json
import sys

PASSED = {"OK", "EXPECTEDFAIL"}
SKIPPED = {"SKIP", "IGNORED"}
SHOWN_LINES = 60


def show_failure(path, entry):
    print(f"==== {entry['result']} after {entry['duration']:.0f} s: {entry['name']} ({path})")
    for stream in ("stdout", "stderr"):
        for line in entry.get(stream, "").splitlines()[-SHOWN_LINES:]:
            print(f"{stream}: {line}")


def main(paths):
    # A test that runs again replaces its earlier result in the same log.
    results = {}
    for path in paths:
        with open(path, encoding="utf-8") as log:
            for line in log:
                entry = json.loads(line)
                results[path, entry["name"]] = entry
    passed = sum(entry["result"] in PASSED for entry in results.values())
    skipped = sum(entry["result"] in SKIPPED for entry in results.values())
    failed = len(results) - passed - skipped
    for (path, _), entry in results.items():
        if entry["result"] not in PASSED | SKIPPED:
            show_failure(path, entry)
    print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
