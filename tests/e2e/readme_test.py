"""Tests what the README promises: its smallest program builds against an installed adaptdl, with pkg-config and with CMake, and
trains.
"""
import os
import re
import shlex
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from run_support import eventually  # in this directory

SOURCE = Path(os.environ["SOURCE_ROOT"])
BUILD = Path(os.environ["BUILD_ROOT"])
README = (SOURCE / "README.md").read_text()


class SmallestProgramTest(unittest.TestCase):
    """Builds in empty directories, against an installation that is not at its configured prefix."""

    @classmethod
    def setUpClass(cls):
        cls.root = Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        subprocess.run(["meson", "install", "-C", BUILD, "--no-rebuild", "--quiet", "--destdir", cls.root], check=True)
        (cls.package,) = cls.root.rglob("adaptdl.pc")
        (cls.adaptdl,) = cls.root.rglob("bin/adaptdl")
        cls.prefix = cls.adaptdl.parent.parent

    def setUp(self):
        self.directory = self.root / self._testMethodName
        self.directory.mkdir()
        (self.directory / "smallest.cc").write_text(re.search(r"```cpp\n(.*?)```", README, re.DOTALL).group(1))

    def check_losses(self, output, prefix):
        losses = [float(loss) for loss in re.findall(rf"^{prefix}epoch \d+ loss (\S+)$", output, re.MULTILINE)]
        self.assertEqual(len(losses), 10, output)
        self.assertLess(losses[-1], losses[0] / 100)

    def test_the_smallest_program_builds_with_pkg_config_and_trains_on_two_replicas(self):
        flags = subprocess.run(["pkg-config", "--cflags", "--libs", "adaptdl"], check=True, capture_output=True, text=True,
                               env={**os.environ, "PKG_CONFIG_PATH": str(self.package.parent)}).stdout
        subprocess.run(["g++", "smallest.cc", "-o", "smallest", *shlex.split(flags)], cwd=self.directory, check=True)
        # Builds with -Ddefault_library=shared need LD_LIBRARY_PATH.
        environment = {**os.environ, "XDG_RUNTIME_DIR": str(self.root), "LD_LIBRARY_PATH": str(self.package.parent.parent)}
        run = subprocess.run([self.adaptdl, "run", "--replicas", "2", "--no-checkpoint", "--", "./smallest"],
                             cwd=self.directory, capture_output=True, text=True, timeout=60, env=environment)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.check_losses(run.stdout, r"\[0\] ")
        # The program catches no exceptions, so this shows how an uncaught one is reported.
        wrong = subprocess.run(["./smallest"], cwd=self.directory, capture_output=True, text=True, timeout=60,
                               env={**environment, "ADAPTDL_NUM_REPLICAS": "two"})
        self.assertEqual((wrong.returncode, wrong.stdout), (2, ""))
        self.assertRegex(wrong.stderr, r"\Aerror: .*ADAPTDL_NUM_REPLICAS.*\n\Z")

    def test_the_smallest_program_builds_with_cmake_and_trains_on_one_replica(self):
        self.assertTrue(shutil.which("cmake"), "cmake is missing; ./bootstrap packages test installs it")
        lists = re.search(r"```cmake\n(.*?)```", README, re.DOTALL).group(1)

        def configure(text, *options):
            (self.directory / "CMakeLists.txt").write_text(text)
            done = subprocess.run(["cmake", "-G", "Ninja", "-B", "build", f"-DCMAKE_PREFIX_PATH={self.prefix}", *options],
                                  cwd=self.directory, capture_output=True, text=True)
            return done.returncode, " ".join(done.stderr.split())

        self.assertEqual(configure(lists), (0, ""))
        subprocess.run(["cmake", "--build", "build"], cwd=self.directory, check=True)
        run = subprocess.run(["build/smallest"], cwd=self.directory, capture_output=True, text=True, timeout=60)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.check_losses(run.stdout, "")

        for version, compatible in {"0.1": True, "0.1.0 EXACT": True, "0.1.99": False, "0.2": False, "1.1": False}.items():
            code, errors = configure(lists.replace("(adaptdl ", f"(adaptdl {version} "))
            self.assertEqual(code == 0, compatible, f"{version}: {errors}")
        code, errors = configure(lists, "-DPKG_CONFIG_EXECUTABLE=/nonexistent")
        self.assertNotEqual(code, 0)
        self.assertIn("pkg-config not found; install it, or set PKG_CONFIG_EXECUTABLE to its path", errors)


class ReadmeTest(unittest.TestCase):
    def test_the_commands_for_a_detached_run_succeed(self):
        commands = re.search(r"```sh\n(adaptdl run --detach.*?)```", README, re.DOTALL).group(1)
        with tempfile.TemporaryDirectory() as directory:
            (Path(directory) / "build").symlink_to(BUILD)
            environment = {**os.environ, "PATH": f"{BUILD / 'cli'}:{os.environ['PATH']}", "XDG_RUNTIME_DIR": directory,
                           "XDG_STATE_HOME": directory}

            def bash(script):
                done = subprocess.run(["bash", "-euxc", script], cwd=directory, capture_output=True, text=True,
                                      timeout=120, env=environment)
                self.assertEqual(done.returncode, 0, done.stderr)
                return done.stdout

            try:
                start, listing, rest = commands.split("\n", 2)
                self.assertRegex(bash(f"{start}\n{listing}"), r"digits +local +(starting|running)")
                # Before this line appears, a program that takes longer than 5 s to start cannot be asked for a checkpoint.
                self.assertTrue(eventually(lambda: "starting at epoch 0" in bash("adaptdl logs digits")))
                shown = bash(rest)
                self.assertIn("checkpoint-0", shown)
                self.assertIn("starting at epoch 0", shown)
            finally:
                subprocess.run([BUILD / "cli" / "adaptdl", "delete", "--now", "digits"], capture_output=True, env=environment)

    def test_the_linked_documents_exist(self):
        links = re.findall(r"\]\((?!http)([^)#]+)\)", README)
        self.assertGreater(len(links), 8)
        for link in links:
            self.assertTrue((SOURCE / link).exists(), link)


if __name__ == "__main__":
    unittest.main()
