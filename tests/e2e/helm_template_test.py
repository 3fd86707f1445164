"""Compares the objects of `adaptdl operator manifests` with the output of Helm's template engine for the chart.

$ADAPTDL_HELM_SEED is the seed of the random values (default: a random seed).
"""

import json
import os
import pathlib
import random
import secrets
import shutil
import subprocess
import sys
import tempfile
import unittest

ADAPTDL = os.environ["ADAPTDL_BIN"]
SOURCE = pathlib.Path(os.environ["SOURCE_ROOT"])
CHART = SOURCE / "share/adaptdl/chart"
GOPATH = "/usr/share/gocode"  # where Debian's packages install Go sources
SEED = int(os.environ.get("ADAPTDL_HELM_SEED", secrets.randbelow(1 << 32)))
SETS = 40

# Strings that YAML, Go's templates, Kubernetes or a shell might read as something else.
TEXTS = ["", "yes", "on", "null", "1", "1e3", "0x1f", "2026-11-25", "a: b", "- a", "# a", "'", '"', "\\", "{{ .Values.image }}", "$(NAME)", "$$",
         "<a&b>", "a\nb", "\ttab ", "ä→𝄞", "\u2028", "%", "@", "*a", "&a", "!a", "|", ">", "~", "[]", "{}"]  # fmt: skip


def text(choice):
    # Other control characters are left out, since Go does not escape all of them in JSON, and YAML does not allow them.
    letters = [chr(code) for code in range(32, 0x2FF) if not 0x7F <= code < 0xA0]
    return choice.choice([*TEXTS, "".join(choice.choices(letters, k=choice.randrange(12)))])


def value(choice, depth=2):
    # For other fractions, and for whole numbers like 1.0, the command and Go may write the same value in different ways.
    number = lambda: round(choice.randrange(1000) + choice.randrange(1, 100) / 100, 2)  # noqa: E731
    kinds = [lambda: text(choice), lambda: choice.randrange(-5, 1 << 40), number, lambda: choice.random() < 0.5]
    if depth:
        kinds += [lambda: mapping(choice, depth - 1), lambda: listing(choice, depth - 1)]
    return choice.choice(kinds)()


def mapping(choice, depth):
    return {text(choice) or "key": value(choice, depth) for _ in range(choice.randrange(4))}


def listing(choice, depth):
    return [value(choice, depth) for _ in range(choice.randrange(4))]


def like(default, choice):
    """Returns a value of the same type as the default."""
    if isinstance(default, str):
        return text(choice)
    if isinstance(default, bool):
        return choice.random() < 0.5
    if isinstance(default, list):
        return listing(choice, 2)
    if isinstance(default, dict):
        return mapping(choice, 2)
    return choice.randrange(9)


class HelmTemplateTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if not shutil.which("go") or not pathlib.Path(GOPATH, "src/gopkg.in/yaml.v3").is_dir():
            print("skipped: Go or its package yaml.v3 is missing; ./bootstrap packages test installs them", file=sys.stderr)
            sys.exit(77)
        directory = tempfile.TemporaryDirectory()
        cls.addClassCleanup(directory.cleanup)
        cls.program = os.path.join(directory.name, "helm_template")
        environment = {**os.environ, "GO111MODULE": "off", "GOPATH": GOPATH, "GOCACHE": os.path.join(directory.name, "cache"), "GOFLAGS": ""}
        source = SOURCE / "tests/e2e/helm_template.go"
        subprocess.run(["go", "build", "-o", cls.program, source], check=True, env=environment, timeout=300)

    def run_program(self, *arguments, **more):
        done = subprocess.run([self.program, *arguments], capture_output=True, text=True, timeout=60, **more)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def objects(self, namespace, values):
        """Returns the objects that the command prints, except those that Helm creates by other means."""
        options = [option for key, given in values.items() for option in ("--set", f"{key}={json.dumps(given, ensure_ascii=False)}")]
        done = subprocess.run([ADAPTDL, "operator", "manifests", "-n", namespace, *options], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        found = self.run_program(input=done.stdout)
        return [each for each in found if each["kind"] not in ("CustomResourceDefinition", "Namespace")]

    def assert_equal_objects(self, namespace, values):
        def by_name(objects):
            return sorted(objects, key=lambda each: (each["kind"], each["metadata"]["name"]))

        expected = self.run_program(str(CHART), namespace, json.dumps(values))
        self.assertEqual(by_name(self.objects(namespace, values)), by_name(expected), values)

    def test_the_command_and_helm_render_equal_objects_for_default_and_random_values(self):
        (type(self).defaults,) = self.run_program(input=(CHART / "values.yaml").read_text(encoding="utf-8"))
        self.assert_equal_objects("adaptdl", {})
        print(f"ADAPTDL_HELM_SEED={SEED}", flush=True)
        choice = random.Random(SEED)
        for _ in range(SETS):
            keys = choice.sample(sorted(self.defaults), choice.randrange(1, len(self.defaults)))
            values = {key: like(self.defaults[key], choice) for key in keys}
            self.assert_equal_objects(choice.choice(["adaptdl", "on", "n-1"]), values)

    def test_the_command_and_helm_render_equal_objects_for_the_values_in_share_deploy(self):
        files = list((SOURCE / "share/deploy").rglob("operator.yaml"))
        self.assertTrue(files)
        for file in files:
            (values,) = self.run_program(input=file.read_text(encoding="utf-8"))
            self.assert_equal_objects("adaptdl", values)


if __name__ == "__main__":
    unittest.main(verbosity=2)
