"""Tests that the files in share/deploy and the commands in docs/deploy.md match the command, its chart and each other."""

import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import tarfile
import tempfile
import textwrap
import unittest

ADAPTDL = os.environ["ADAPTDL_BIN"]
SOURCE = pathlib.Path(os.environ["SOURCE_ROOT"])
DEPLOY = SOURCE / "share/deploy"
DOCUMENT = SOURCE / "docs/deploy.md"
TEXT = DOCUMENT.read_text(encoding="utf-8")
FILES = sorted(path for path in DEPLOY.rglob("*") if path.is_file())
TOOLS = ("kind.x-k8s.io/", "eksctl.io/")  # configuration files of these tools have no stable API version
TEMPLATE_TAG = "k8s.io/cluster-autoscaler/node-template/"
SPOT_NOTICE = "aws-node-termination-handler/spot-itn"  # the taint that AWS Node Termination Handler sets

# Without a kubeconfig, no cluster is contacted.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name not in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST")}
ENVIRONMENT["HOME"] = "/nonexistent"


def adaptdl(*words):
    command = [ADAPTDL, *map(str, words)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, env=ENVIRONMENT)
    if done.returncode:
        raise AssertionError(f"{shlex.join(command)} failed: {done.stderr}")
    return done.stdout


def parse(text):
    """Parses a YAML document, which must be a map, with the command's own parser."""
    manifests = adaptdl("operator", "manifests", "--set", f"podPatch={text}")
    (argument,) = re.findall(r'(?m)^ +- --pod-patch\n +- (".*")$', manifests)
    return json.loads(json.loads(argument).replace("$$", "$"))


def documents(path):
    return [parse(text) for text in re.split(r"(?m)^---\n", path.read_text(encoding="utf-8"))]


def document(name):
    (found,) = documents(DEPLOY / name)
    return found


def commands():
    """Yields the words of each adaptdl command in the code blocks of the document."""
    for block in re.findall(r"(?ms)^ *```sh\n(.*?)^ *```$", TEXT):
        for line in textwrap.dedent(block).replace("\\\n", " ").splitlines():
            words = shlex.shlex(line, posix=True, punctuation_chars=True)
            words.whitespace_split = True
            call = []
            for word in [*words, ";"]:
                if not set(word) <= set("();<>|&"):
                    call.append(word)
                    continue
                if call[:1] == ["adaptdl"]:
                    yield call
                call = []


def verbs(listed):
    for verb in listed:
        yield verb
        yield from verbs(verb["commands"])


class FilesTest(unittest.TestCase):
    def test_all_files_are_yaml_and_use_stable_api_versions(self):
        self.assertTrue(FILES)
        for path in FILES:
            self.assertEqual(path.suffix, ".yaml", path)
            for found in documents(path):
                version = found.get("apiVersion")
                if version and not version.startswith(TOOLS):
                    self.assertRegex(version, r"\A(.*/)?v\d+\Z", path)
                    self.assertIn("kind", found)

    def test_the_document_names_all_files_and_no_others(self):
        named = set(re.findall(r"share/[\w/.-]+\.\w+", TEXT))
        self.assertEqual([name for name in named if not (SOURCE / name).exists()], [])
        self.assertEqual({str(path.relative_to(SOURCE)) for path in FILES} - named, set())

    def test_submit_accepts_the_example_jobs(self):
        for name in ("first-job.yaml", "first-gpu-job.yaml"):
            with tempfile.TemporaryDirectory() as project:
                dry_run = json.loads(adaptdl("submit", project, "--jobfile", DEPLOY / name, "--dry-run", "--output", "json"))
            job = next(item for item in dry_run["items"] if item["kind"] == "AdaptDLJob")
            self.assertEqual(job["spec"]["minReplicas"], job["spec"]["maxReplicas"])
            self.assertTrue(job["spec"]["template"]["spec"]["containers"][0]["image"])

    def test_the_registry_service_matches_submit_and_the_document(self):
        (service,) = [found for found in documents(DEPLOY / "registry.yaml") if found["kind"] == "Service"]
        self.assertEqual(service["metadata"]["namespace"], "adaptdl-registry")  # as in sched/kube/jobs/image_registry.cc
        self.assertEqual(service["metadata"]["labels"]["app"], "docker-registry")
        (port,) = service["spec"]["ports"]
        self.assertEqual(port["name"], "registry")
        self.assertIn(f"localhost:{port['nodePort']}/", TEXT)
        self.assertIn(f"{port['nodePort']}:{port['port']}", TEXT)

    def test_all_kind_nodes_mount_the_shared_directory(self):
        shared = json.loads(document("kind/shared-storage.yaml")["data"]["config.json"])["sharedFileSystemPath"]
        for node in document("kind/cluster.yaml")["nodes"]:
            self.assertEqual([mount["containerPath"] for mount in node["extraMounts"]], [shared])


class BuildContextTest(unittest.TestCase):
    def test_meson_setup_succeeds_in_the_build_contexts_of_the_dockerfiles(self):
        for dockerfile in "dockerfiles/operator.Dockerfile", "examples/digits/Dockerfile":
            with self.subTest(dockerfile), tempfile.TemporaryDirectory() as directory:
                root = pathlib.Path(directory)
                (root / "Dockerfile").write_text("FROM scratch\nCOPY . /\n")
                shutil.copy(SOURCE / f"share/adaptdl/{dockerfile}.dockerignore", root / "Dockerfile.dockerignore")
                command = [ADAPTDL, "build", "--file", root / "Dockerfile", "--output", f"oci:{root / 'image'}", SOURCE]
                done = subprocess.run(command, capture_output=True, text=True, timeout=120, env={**ENVIRONMENT, "ADAPTDL_BUILD_CACHE": str(root / "cache")})
                self.assertEqual(done.returncode, 0, done.stderr)
                layer = max((root / "image/blobs/sha256").iterdir(), key=lambda blob: blob.stat().st_size)
                with tarfile.open(layer) as archive:
                    archive.extractall(root / "source")
                done = subprocess.run(["meson", "setup", root / "build", root / "source", "-Dtrainer=disabled"], capture_output=True, text=True, timeout=300)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


class EksTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = document("eks/cluster.yaml")
        cls.values = document("eks/operator.yaml")
        cls.autoscaler = document("eks/cluster-autoscaler.yaml")
        cls.handler = document("eks/node-termination-handler.yaml")

    def test_the_chart_accepts_the_operators_values(self):
        options = [word for key, value in self.values.items() for word in ("--set", f"{key}={json.dumps(value)}")]
        self.assertIn("name: adaptdl-placeholder", adaptdl("operator", "manifests", *options))

    def test_nodes_of_all_gpu_groups_match_the_placeholders(self):
        tolerated = {(each["key"], each["effect"]) for each in self.values["placeholderTolerations"]}
        wanted = dict(self.values["placeholderNodeSelector"])
        instance_type = wanted.pop("node.kubernetes.io/instance-type")
        self.assertEqual(len(self.cluster["nodeGroups"]), 2)
        for group in self.cluster["nodeGroups"]:
            types = group.get("instancesDistribution", {}).get("instanceTypes", [group.get("instanceType")])
            self.assertEqual(types, [instance_type])
            self.assertLessEqual(wanted.items(), group["labels"].items())
            self.assertEqual({(taint["key"], taint["effect"]) for taint in group["taints"]}, tolerated)
            self.assertEqual((group["minSize"], group["desiredCapacity"]), (0, 0))
            self.assertGreaterEqual(group["maxSize"], self.values["maxNodes"])

    def test_node_group_tags_describe_the_groups_labels_and_taints_to_the_autoscaler(self):
        name = self.cluster["metadata"]["name"]
        self.assertEqual(self.autoscaler["autoDiscovery"]["clusterName"], name)
        for group in self.cluster["nodeGroups"]:
            expected = {"k8s.io/cluster-autoscaler/enabled": "true", f"k8s.io/cluster-autoscaler/{name}": "owned"}
            expected.update({f"{TEMPLATE_TAG}label/{key}": value for key, value in group["labels"].items()})
            expected.update({f"{TEMPLATE_TAG}taint/{each['key']}": f"{each['value']}:{each['effect']}" for each in group["taints"]})
            self.assertEqual(group["tags"], expected)

    def test_the_autoscaler_has_its_permissions_and_prefers_spot_instances(self):
        accounts = [each["serviceAccountName"] for each in self.cluster["iam"]["podIdentityAssociations"]]
        self.assertEqual(accounts, [self.autoscaler["rbac"]["serviceAccount"]["name"]])
        self.assertEqual(self.autoscaler["awsRegion"], self.cluster["metadata"]["region"])
        version = self.cluster["metadata"]["version"]
        self.assertTrue(self.autoscaler["image"]["tag"].startswith(f"v{version}."))
        priorities = {int(key): value for key, value in self.autoscaler["expanderPriorities"].items()}
        chosen = [
            group["labels"]["capacity"]
            for group in self.cluster["nodeGroups"]
            if any(re.search(pattern, f"eksctl-{group['name']}") for pattern in priorities[max(priorities)])
        ]
        self.assertEqual(chosen, ["spot"])

    def test_the_spot_interruption_taint_is_known_to_the_operator_and_the_autoscaler(self):
        self.assertTrue(self.handler["taintNode"] and self.handler["cordonOnly"])
        for group in self.cluster["nodeGroups"]:
            self.assertLessEqual(self.handler["daemonsetNodeSelector"].items(), group["labels"].items())
        chart = parse((SOURCE / "share/adaptdl/chart/values.yaml").read_text(encoding="utf-8"))
        taints = {**chart, **self.values}["drainTaints"]
        self.assertTrue(any(SPOT_NOTICE.startswith(taint) for taint in taints))
        self.assertEqual(self.autoscaler["extraArgs"]["status-taint"], SPOT_NOTICE)

    def test_every_node_has_a_price(self):
        selector = self.values["placeholderNodeSelector"]
        # As long as a group has no node, only the labels in the selector are known.
        for labels in (selector, *({**selector, **group["labels"]} for group in self.cluster["nodeGroups"])):
            fitting = [price for price in self.values["nodePrices"] if price["labels"].items() <= labels.items()]
            self.assertTrue(fitting, labels)
            self.assertLess(fitting[0]["perHour"], self.values["maxCostPerHour"])


class DocumentTest(unittest.TestCase):
    def test_commands_in_the_document_have_only_known_options(self):
        known = {verb["path"]: verb for verb in verbs(json.loads(adaptdl("help", "--dump-json")))}
        found = list(commands())
        self.assertGreater(len(found), 15)
        for words in found:
            paths = [path for path in known if [*path.split()] == words[1 : 1 + len(path.split())]]
            self.assertTrue(paths, words)
            verb = known[max(paths, key=len)]
            takes_value = {name: bool(option["value"]) for option in verb["options"] for name in option["names"]}
            rest, positional = words[1 + len(verb["path"].split()) :], []
            while rest:
                word = rest.pop(0)
                if not word.startswith("-"):
                    positional.append(word)
                    continue
                name, equals, _ = word.partition("=")
                self.assertIn(name, takes_value, words)
                if takes_value[name] and not equals:
                    self.assertTrue(rest, words)
                    rest.pop(0)
            required = [argument for argument in verb["arguments"] if argument["required"]]
            self.assertGreaterEqual(len(positional), len(required), words)
            self.assertTrue(verb["arguments"] or not positional, words)

    def test_the_manifests_commands_in_the_document_succeed(self):
        calls = [words for words in commands() if words[1:3] == ["operator", "manifests"]]
        self.assertTrue(calls)
        for words in calls:
            adaptdl(*words[1:])

    def test_links_point_to_existing_files_and_headings(self):
        for target, anchor in re.findall(r"\]\((?!http)([^)#]*)(?:#([^)]+))?\)", TEXT):
            path = DOCUMENT.parent / target if target else DOCUMENT
            self.assertTrue(path.exists(), target)
            if anchor:
                headings = re.findall(r"(?m)^#+ (.*)$", path.read_text(encoding="utf-8"))
                slugs = [re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings]
                self.assertIn(anchor, slugs, target)


if __name__ == "__main__":
    unittest.main(verbosity=2)
