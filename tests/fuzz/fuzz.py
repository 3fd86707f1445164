#!/usr/bin/env python3
"""Runs a libFuzzer program on a corpus, which is not changed, and then on new inputs: fuzz.py PROGRAM CORPUS [ARGUMENT...]

The program tries new inputs for $ADAPTDL_FUZZ_SECONDS (default: 3). Inputs that make it fail are printed and kept.
Inputs that take long because the machine is busy are not failures.
"""
import base64
import os
import pathlib
import re
import resource
import subprocess
import sys
import tempfile

SLOW = 10.0  # seconds of processor time


def is_slow(program, unit):
    """Returns whether the program takes long for the input, whatever else runs on the machine."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([program, unit], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime > SLOW


def main():
    program, corpus, *arguments = sys.argv[1:]
    seconds = os.environ.get("ADAPTDL_FUZZ_SECONDS", "3")
    directory = pathlib.Path(tempfile.mkdtemp(prefix="adaptdl-fuzz-"))
    found = directory / "found"
    found.mkdir()
    command = [program, f"-max_total_time={seconds}", "-timeout=120", "-rss_limit_mb=2048", "-max_len=4096",
               "-print_final_stats=1", f"-artifact_prefix={directory}/", *arguments, str(found), corpus]
    try:
        result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                                timeout=float(seconds) + 300)
        output, status = result.stdout, result.returncode
    except subprocess.TimeoutExpired as error:
        output, status = (error.stdout or b"").decode(errors="replace"), 1
    runs = re.search(r"number_of_executed_units: (\d+)", output)
    print(f"{pathlib.Path(corpus).name}: {runs.group(1) if runs else 'no'} inputs, {len(list(found.iterdir()))} of them new")
    slow = [path for path in directory.glob("slow-unit-*") if not is_slow(program, path)]
    failures = [path for path in directory.iterdir() if path != found and path not in slow]
    if status == 0 and not failures and runs:
        subprocess.run(["rm", "-rf", str(directory)], check=True)
        return 0
    print(output[-20000:])
    for path in failures:
        print(f"{path}: {base64.b64encode(path.read_bytes()).decode()}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
