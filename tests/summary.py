"""Adds up meson's test logs: prints "N passed, N failed[, N skipped]" for the logs given."""
import json
import sys

PASSED = {"OK", "EXPECTEDFAIL"}
SKIPPED = {"SKIP", "IGNORED"}


def main(paths):
    # A test that runs again replaces its earlier result in the same log.
    results = {}
    for path in paths:
        with open(path, encoding="utf-8") as log:
            for line in log:
                entry = json.loads(line)
                results[path, entry["name"]] = entry["result"]
    passed = sum(result in PASSED for result in results.values())
    skipped = sum(result in SKIPPED for result in results.values())
    failed = len(results) - passed - skipped
    print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
