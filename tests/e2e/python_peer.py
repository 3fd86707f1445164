"""Provides Python packages to compare with, in virtual environments that are built once and kept.

The environments are in $ADAPTDL_TEST_CACHE, by default /var/cache/adaptdl-tests for root and ~/.cache/adaptdl-tests
($XDG_CACHE_HOME/adaptdl-tests if that is set) for other users. Delete the directory to rebuild them.
"""

import fcntl
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import time
import unittest

# Seconds for one call of venv or pip. A large package takes minutes over a slow network, and forever if all packets are lost.
PATIENCE = 900
SKIPPED = 77  # the exit code that Meson reports as "skipped"
UNUSED = 30 * 24 * 3600  # seconds

# The versions are pinned, so that no result depends on new releases. Those that the published package was written for
# have no wheels for Python 3.12 and later.
NUMPY = ["numpy==1.23.5; python_version < '3.12'", "scipy==1.11.4; python_version < '3.12'",
         "numpy==2.2.6; python_version >= '3.12'", "scipy==1.15.3; python_version >= '3.12'", "autograd==1.9.1"]
ADAPTDL = "--no-deps adaptdl==0.2.11"
# The published package with everything that its PyTorch modules import. It does not work with semver 3.
ADAPTDL_TORCH = [*NUMPY, "portpicker==1.6.0", "semver==2.13.0", "requests==2.34.2", "setuptools==79.0.1", ADAPTDL]

# The dependencies of Optuna, and the versions of Optuna that open our studies.
OPTUNA = ["alembic==1.20.1", "colorlog==6.12.0", "Mako==1.4.3", "MarkupSafe==3.0.4", "packaging==26.4", "PyYAML==6.0.4",
          "SQLAlchemy==2.1.9", "tqdm==4.70.1", "typing_extensions==4.16.0", "numpy==2.2.6"]
OPTUNA_VERSIONS = ["4.0.0", "4.9.0", "5.0.0"]

# Hugging Face's Trainer, which uses PyTorch from another environment.
TRANSFORMERS = ["transformers==5.24.0", "psutil==7.2.2", "--no-deps accelerate==1.15.0"]


def cache_directory():
    chosen = os.environ.get("ADAPTDL_TEST_CACHE")
    if chosen:
        return pathlib.Path(chosen)
    if os.geteuid() == 0:
        return pathlib.Path("/var/cache/adaptdl-tests")
    base = os.environ.get("XDG_CACHE_HOME")
    return (pathlib.Path(base) if base else pathlib.Path.home() / ".cache") / "adaptdl-tests"


def venv(name, requirements, system_site_packages=False, python=sys.executable):
    """Returns the Python interpreter of a virtual environment with these requirements.

    A requirement has pip's format. If it begins with "--no-deps ", it is installed without its dependencies. Each
    list of requirements has its own environment. Raises unittest.SkipTest, with the reason, if the environment cannot be
    created.
    """
    recipe = repr((list(requirements), system_site_packages, os.path.realpath(python), sys.version))
    home = cache_directory() / f"{name}-{hashlib.sha256(recipe.encode()).hexdigest()[:12]}"
    peer = home / "bin" / "python"
    try:
        home.parent.mkdir(parents=True, exist_ok=True)
        with open(f"{home}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # if two tests need the environment, only one creates it
            complete = home / "complete"  # created last, so that an interrupted installation is not used
            if not complete.exists():
                _make(home, peer, requirements, system_site_packages, python)
            complete.touch()  # also records when the environment was last used
        _remove_unused(home.parent, name)
    except OSError as error:
        raise unittest.SkipTest(f"no Python environment \"{name}\": {error}") from None
    return str(peer)


def _remove_unused(cache, name):
    """Removes the environments of this name that no test has used for UNUSED, so that outdated ones do not accumulate."""
    for complete in cache.glob(f"{name}-????????????/complete"):
        if time.time() - complete.stat().st_mtime > UNUSED:
            shutil.rmtree(complete.parent, ignore_errors=True)
            pathlib.Path(f"{complete.parent}.lock").unlink(missing_ok=True)


def _make(home, peer, requirements, system_site_packages, python):
    shutil.rmtree(home, ignore_errors=True)
    _call(home.name, [python, "-m", "venv", *["--system-site-packages"][: system_site_packages], home])
    alone = [each.removeprefix("--no-deps ") for each in requirements if each.startswith("--no-deps ")]
    others = [each for each in requirements if not each.startswith("--no-deps ")]
    pip = [peer, "-m", "pip", "--quiet", "--disable-pip-version-check", "--no-input", "install"]
    if others:
        _call(home.name, [*pip, *others])
    if alone:
        _call(home.name, [*pip, "--no-deps", *alone])


def _call(name, command):
    command = [str(each) for each in command]
    # The module paths of the caller's Python interpreter must not affect another interpreter.
    environment = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYTHONHOME")}
    try:
        done = subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            timeout=PATIENCE, encoding="utf-8", errors="replace"
        )
    except subprocess.TimeoutExpired:
        raise unittest.SkipTest(f"no Python environment \"{name}\": no end of \"{' '.join(command)}\" in {PATIENCE} s")
    if done.returncode != 0:
        lines = [line.strip() for line in done.stdout.splitlines() if line.strip()]
        printed = next((line for line in lines if line.startswith("ERROR")), lines[-1] if lines else "nothing")
        raise unittest.SkipTest(f"no Python environment \"{name}\": \"{' '.join(command)}\" says: {printed}")
    return done.stdout


def python_with_torch():
    """Returns a Python interpreter that has PyTorch: the system's, or else the one that is running this script."""
    for python in "/usr/bin/python3", sys.executable:
        command = [python, "-c", "import torch.distributed"]
        if os.path.exists(python) and subprocess.run(command, stderr=subprocess.DEVNULL).returncode == 0:
            return python
    raise unittest.SkipTest("no Python with PyTorch: install python3-torch")


def adaptdl_torch():
    """Returns the Python interpreter of an environment with PyTorch and the published package. Raises unittest.SkipTest if
    PyTorch is not installed."""
    return venv("adaptdl-torch", ADAPTDL_TORCH, system_site_packages=True, python=python_with_torch())


def venv_beside_torch(name, requirements):
    """Returns the Python interpreter of an environment with these requirements, and a PYTHONPATH with the PyTorch that
    tests/torch-wheel installs. Raises unittest.SkipTest if either cannot be installed."""
    script = pathlib.Path(__file__).resolve().parents[1] / "torch-wheel"
    wheel = pathlib.Path(_call("torch-wheel", [script]).splitlines()[-1])
    [packages] = wheel.glob("lib/python3*/site-packages")
    return venv(name, requirements, python=wheel / "bin" / "python"), str(packages)


def transformers():
    """Returns the result of venv_beside_torch() for Hugging Face's Trainer."""
    return venv_beside_torch("transformers", TRANSFORMERS)


def optuna(version):
    """Returns the Python interpreter of an environment with the given version of Optuna."""
    return venv(f"optuna-{version}", [*OPTUNA, f"--no-deps optuna=={version}"])


def main():
    """Runs unittest.main(), and exits with SKIPPED if all tests were skipped."""
    result = unittest.main(exit=False, verbosity=2).result
    if not result.wasSuccessful():
        sys.exit(1)
    # If a whole class is skipped, testsRun does not include its tests.
    skipped = sum(isinstance(test, unittest.TestCase) for test, _ in result.skipped)
    sys.exit(SKIPPED if result.skipped and skipped == result.testsRun else 0)
