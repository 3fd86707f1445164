"""What the README promises: its smallest program builds against an installed adaptdl, with the flags it names, and trains."""
import os
import re
import shlex
import subprocess
import tempfile
import unittest
from pathlib import Path

SOURCE = Path(os.environ["SOURCE_ROOT"])
BUILD = Path(os.environ["BUILD_ROOT"])
README = (SOURCE / "README.md").read_text()


class ReadmeTest(unittest.TestCase):
    def test_the_smallest_program_builds_with_pkg_config_and_trains_on_two_replicas(self):
        program = re.search(r"```cpp\n(.*?)```", README, re.DOTALL).group(1)
        with tempfile.TemporaryDirectory() as directory:
            root = Path(directory)
            subprocess.run(["meson", "install", "-C", BUILD, "--no-rebuild", "--quiet", "--destdir", root], check=True)
            (package,) = root.rglob("adaptdl.pc")
            prefix = re.search(r"^prefix=(.*)$", package.read_text(), re.MULTILINE).group(1)
            flags = subprocess.run(
                ["pkg-config", f"--define-variable=prefix={root}{prefix}", "--cflags", "--libs", "adaptdl"], check=True,
                capture_output=True, text=True, env={**os.environ, "PKG_CONFIG_PATH": str(package.parent)}).stdout
            (root / "smallest.cc").write_text(program)
            subprocess.run(["g++", "smallest.cc", "-o", "smallest", *shlex.split(flags)], cwd=root, check=True)
            (adaptdl,) = root.rglob("bin/adaptdl")
            run = subprocess.run([adaptdl, "run", "--replicas", "2", "--no-checkpoint", "--", "./smallest"], cwd=root,
                                 capture_output=True, text=True, timeout=60,
                                 env={**os.environ, "XDG_RUNTIME_DIR": str(root)})
            self.assertEqual(run.returncode, 0, run.stderr)
            losses = [float(loss) for loss in re.findall(r"^\[0\] epoch \d+ loss (\S+)$", run.stdout, re.MULTILINE)]
            self.assertEqual(len(losses), 10)
            self.assertLess(losses[-1], losses[0] / 100)
            # It catches nothing.
            wrong = subprocess.run(["./smallest"], cwd=root, capture_output=True, text=True, timeout=60,
                                   env={**os.environ, "ADAPTDL_NUM_REPLICAS": "two"})
            self.assertEqual((wrong.returncode, wrong.stdout), (2, ""))
            self.assertRegex(wrong.stderr, r"\Aerror: .*ADAPTDL_NUM_REPLICAS.*\n\Z")

    def test_a_run_left_alone_is_listed_resized_saved_shown_and_deleted_by_the_commands_it_gives(self):
        commands = re.search(r"```sh\n(adaptdl run --detach.*?)```", README, re.DOTALL).group(1)
        with tempfile.TemporaryDirectory() as directory:
            (Path(directory) / "build").symlink_to(BUILD)
            environment = {**os.environ, "PATH": f"{BUILD / 'cli'}:{os.environ['PATH']}", "XDG_RUNTIME_DIR": directory,
                           "XDG_STATE_HOME": directory}
            try:
                done = subprocess.run(["bash", "-euxc", commands], cwd=directory, capture_output=True, text=True,
                                      timeout=120, env=environment)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertRegex(done.stdout, r"digits +(starting|running)")
                self.assertIn("checkpoint-0", done.stdout)
                self.assertIn("starting at epoch 0", done.stdout)
            finally:
                subprocess.run([BUILD / "cli" / "adaptdl", "delete", "--now", "digits"], capture_output=True, env=environment)

    def test_every_document_it_leads_to_exists(self):
        links = re.findall(r"\]\((?!http)([^)#]+)\)", README)
        self.assertGreater(len(links), 8)
        for link in links:
            self.assertTrue((SOURCE / link).exists(), link)


if __name__ == "__main__":
    unittest.main()
