"""Tests that the real TensorBoard shows what the event writer logs, with its default Rust loader and with its Python loader."""

import json
import os
import pathlib
import re
import resource
import signal
import subprocess
import tempfile
import threading
import time
import unittest
import urllib.error
import urllib.parse
import urllib.request

import python_peer

EVENTS_PROGRAM = os.environ["EVENTS_PROGRAM"]
PATIENCE = 120
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("ADAPTDL_")}


class TensorBoard:
    """A TensorBoard server on a free loopback port."""

    def __init__(self, python, logdir, load_fast):
        command = [python, "-m", "tensorboard.main", "--logdir", logdir, "--host", "127.0.0.1", "--port", "0", "--reload_interval", "1"]
        command += ["--samples_per_plugin", "text=1000"]  # by default it shows a random sample of 10
        self.process = subprocess.Popen(
            [*map(str, command), "--load_fast", "true" if load_fast else "false"],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=ENVIRONMENT
        )
        self.lines = []
        self.url = None
        self.ready = threading.Event()
        self.reader = threading.Thread(target=self._read)
        self.reader.start()
        self.ready.wait(PATIENCE)
        if self.url is None:
            self.end()
            raise AssertionError("TensorBoard did not start:\n" + "".join(self.lines))

    def _read(self):
        for line in self.process.stdout:
            self.lines.append(line)
            if found := re.search(r"http://127\.0\.0\.1:\d+", line):
                self.url = found[0]
                self.ready.set()
        self.ready.set()

    def ask(self, path, post=None, **query):
        """Returns the answer of the data API, or None if the requested data does not exist yet."""
        url = f"{self.url}/data/{path}?{urllib.parse.urlencode(query)}"
        data = None if post is None else json.dumps(post).encode()
        request = urllib.request.Request(url, data, {"Content-Type": "application/json"} if data else {})
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                return json.load(answer) if answer.headers.get_content_type() == "application/json" else answer.read()
        except urllib.error.HTTPError as error:
            if error.code in (400, 404):
                return None
            raise

    def await_answer(self, enough, path, post=None, **query):
        """Asks until `enough(answer)` holds, because TensorBoard loads data in the background. Returns the last answer."""
        deadline = time.monotonic() + PATIENCE
        while True:
            answer = self.ask(path, post, **query)
            if answer is not None and enough(answer) or time.monotonic() > deadline:
                return answer
            time.sleep(0.2)

    def scalars(self, tag, enough, run="job"):
        points = self.await_answer(lambda points: enough([step for _, step, _ in points]), "plugin/scalars/scalars", run=run, tag=tag)
        return {step: value for _, step, value in points or []}, len(points or [])

    def end(self):
        self.process.terminate()
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.reader.join(PATIENCE)
        self.process.stdout.close()


class TensorBoardTest(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        # TensorBoard imports pkg_resources, which later versions of setuptools do not contain.
        cls.python = python_peer.venv("tensorboard", ["tensorboard==2.21.0", "setuptools==80.10.2"])

    def setUp(self):
        self.logdir = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="adaptdl-e2e-")))
        self.run_directory = self.logdir / "job"

    def on_each_loader(self, check):
        for load_fast in (True, False):
            with self.subTest(load_fast=load_fast):
                board = TensorBoard(self.python, self.logdir, load_fast)
                try:
                    check(board)
                finally:
                    board.end()

    def log(self, first, last, purge=None, limit=None):
        """Logs steps with a program that is then killed, and returns its standard error. `limit` is the maximum size of its file in
        bytes; a write beyond it fails, as on a full disk."""
        def set_limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

        arguments = [EVENTS_PROGRAM, "steps", self.run_directory, first, last, *([] if purge is None else [purge])]
        # Python ignores SIGXFSZ, and the program inherits that, so that write(2) fails instead.
        program = subprocess.Popen(
            list(map(str, arguments)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT, restore_signals=False,
            preexec_fn=set_limit if limit else None
        )
        try:
            self.assertEqual(program.stdout.readline(), "logged\n")
        finally:
            program.kill()
            errors = program.communicate()[1]
        self.assertEqual(program.returncode, -signal.SIGKILL)
        return errors

    def test_tensorboard_shows_all_logged_data(self):
        subprocess.run([EVENTS_PROGRAM, "all", self.run_directory], check=True, timeout=PATIENCE, env=ENVIRONMENT)

        def check(board):
            self.check_scalars(board)
            self.check_histogram(board)
            self.check_text(board)
            self.check_hparams(board)
            self.check_images(board)
            self.check_runs(board)
            self.check_pr_curves(board)
            self.check_graph(board)

        self.on_each_loader(check)
        self.check_trace()

    def check_scalars(self, board):
        losses, count = board.scalars("loss/train", lambda steps: len(steps) == 10)
        self.assertEqual((list(losses), count), ([100 * step for step in range(10)], 10))
        for step in range(10):
            self.assertAlmostEqual(losses[100 * step], 1 / (step + 1), places=6)
        odd, _ = board.scalars("odd", lambda steps: len(steps) == 3)
        self.assertEqual(odd, {1: "NaN", 2: "Infinity", 1 << 40: -1.5})

    def check_histogram(self, board):
        points = board.await_answer(lambda points: len(points) == 2, "plugin/histograms/histograms", run="job", tag="weights")
        (_, step, buckets), (_, empty_step, none) = points
        self.assertEqual((step, empty_step, none), (3, 4, []))
        # A bucket contains as many of the values -5.00, -4.99, ..., 4.99 as lie between its limits, give or take its ends.
        self.assertEqual(sum(count for _, _, count in buckets), 1000)
        self.assertAlmostEqual(buckets[0][0], -5, places=5)
        self.assertAlmostEqual(buckets[-1][1], 4.99, places=5)
        for left, right, count in buckets:
            self.assertLessEqual(abs((right - left) * 100 - count), 1.01)
        for (_, right, _), (left, _, _) in zip(buckets, buckets[1:]):
            self.assertEqual(left, right)

    def check_text(self, board):
        texts = board.await_answer(lambda texts: len(texts) == 2, "plugin/text/text", run="job", tag="notes")
        self.assertEqual([text["step"] for text in texts], [5, 6])
        self.assertIn("<p>a <em>Markdown</em> text, grüß</p>", texts[0]["text"])
        self.assertIn("not \ufffd UTF-8", texts[1]["text"])

    def check_hparams(self, board):
        experiment = board.await_answer(lambda answer: answer.get("hparamInfos"), "plugin/hparams/experiment", post={"experimentName": ""})
        types = {info["name"]: info["type"] for info in experiment["hparamInfos"]}
        number = "DATA_TYPE_FLOAT64"
        self.assertEqual(types, {"lr": number, "layers": number, "nesterov": "DATA_TYPE_BOOL", "optimizer": "DATA_TYPE_STRING"})
        question = {"experimentName": "", "sliceSize": 10, "allowedStatuses": ["STATUS_SUCCESS"], "colParams": [{"hparam": name} for name in types]}
        metric = {"group": "", "tag": "hparam/accuracy"}
        question["colParams"].append({"metric": metric})
        groups = board.await_answer(lambda answer: answer.get("sessionGroups"), "plugin/hparams/session_groups", post=question)["sessionGroups"]
        self.assertEqual([group["hparams"] for group in groups], [{"lr": 0.1, "layers": 3, "nesterov": True, "optimizer": "SGD"}])
        [value] = [each for each in groups[0]["metricValues"] if each["name"]["tag"] == "hparam/accuracy"]
        self.assertEqual((value["value"], value["trainingStep"]), (0.75, 900))
        self.assertEqual(groups[0]["sessions"][0]["status"], "STATUS_SUCCESS")

    def pixels(self, board, tag):
        """Returns the step, the size, the mode and the bytes of the only image of a tag."""
        [image] = board.await_answer(lambda images: len(images) == 1, "plugin/images/images", run="job", tag=tag, sample=0)
        png = board.ask("plugin/images/individualImage", **dict(urllib.parse.parse_qsl(image["query"])))
        decode = "import io, json, sys; from PIL import Image; image = Image.open(io.BytesIO(sys.stdin.buffer.read()));" \
                 "print(json.dumps([image.size, image.mode, list(image.tobytes())]))"
        decoded = subprocess.run([self.python, "-c", decode], input=png, stdout=subprocess.PIPE, check=True, timeout=PATIENCE)
        return image["step"], *json.loads(decoded.stdout)

    def check_images(self, board):
        self.assertEqual(self.pixels(board, "image"), (7, [3, 2], "RGB", [byte for i in range(6) for byte in (51 * i, 255, 0)]))
        rows = [[image for image in range(8) for _ in range(3)], [8] * 3 + [0] * 21]
        self.assertEqual(self.pixels(board, "images"), (7, [24, 4], "L", [*rows[0] * 2, *rows[1] * 2]))

    def check_runs(self, board):
        for run, value in {"job/loss_both_train": 0.5, "job/loss_both_test": 0.75}.items():
            points, count = board.scalars("loss/both", lambda steps: len(steps) == 1, run=run)
            self.assertEqual((points, count), ({8: value}, 1))

    def check_pr_curves(self, board):
        answer = board.await_answer(lambda runs: runs.get("job"), "plugin/pr_curves/pr_curves", run="job", tag="pr")
        [curve] = answer["job"]
        self.assertEqual((curve["step"], curve["thresholds"]), (9, [0, 0.5, 1]))
        counts = [curve[name] for name in ("true_positives", "false_positives", "true_negatives", "false_negatives")]
        self.assertEqual(counts, [[2, 1, 1], [2, 1, 0], [0, 1, 2], [0, 1, 1]])
        self.assertEqual((curve["precision"], curve["recall"]), ([0.5, 0.5, 1], [1, 0.5, 0.5]))
        answer = board.await_answer(lambda runs: runs.get("job"), "plugin/pr_curves/pr_curves", run="job", tag="pr/many")
        [curve] = answer["job"]
        self.assertEqual((len(curve["thresholds"]), len(curve["precision"])), (1000, 1000))

    def check_graph(self, board):
        info = board.await_answer(lambda runs: runs.get("job", {}).get("run_graph"), "plugin/graphs/info")
        self.assertEqual(info["job"]["tags"], {})
        text = board.ask("plugin/graphs/graph", run="job", conceptual="false")
        # The answer is the text format of TensorBoard's protocol buffers.
        to_json = "import sys; from google.protobuf import json_format, text_format; from tensorboard.compat.proto.graph_pb2 import GraphDef;" \
                  "print(json_format.MessageToJson(text_format.Parse(sys.stdin.read(), GraphDef())))"
        parsed = subprocess.run([self.python, "-c", to_json], input=text, stdout=subprocess.PIPE, check=True, timeout=PATIENCE)
        nodes = {node["name"]: node for node in json.loads(parsed.stdout)["node"]}

        def shape(name):
            [only] = nodes[name]["attr"]["_output_shapes"]["list"]["shape"]
            return [int(size["size"]) for size in only["dim"]]

        parameters = {name for name, node in nodes.items() if node["op"] == "Parameter"}
        self.assertEqual(parameters, {f"{module}/{name}" for module in ("hidden/0", "hidden/1", "last") for name in ("weight", "bias")})
        self.assertEqual((nodes["input"]["op"], shape("input")), ("Input", [3, 4]))
        self.assertEqual((shape("last/weight"), shape("output")), ([2, 8], [3, 2]))
        reached = set()

        def reach(name):
            if name not in reached:
                reached.add(name)
                for source in nodes[name].get("input", []):
                    reach(source.split(":")[0])

        reach("output")
        self.assertEqual(reached, set(nodes))
        self.assertLess(parameters | {"input", "relu"}, reached)
        [relu_input] = nodes["relu"]["input"]
        self.assertEqual(relu_input.rsplit("/", 1)[0], "hidden/1")

    def check_trace(self):
        """Checks that Perfetto and chrome://tracing can read the trace: the complete events of each thread are disjoint or nested."""
        [file] = self.run_directory.glob("*.pt.trace.json")
        self.assertRegex(file.name, r"^\S+_\d+\.\d+\.pt\.trace\.json$")
        events = json.loads(file.read_text())["traceEvents"]
        threads = {}
        for event in events:
            self.assertLessEqual({"ph", "name", "pid", "tid"}, set(event))
            if event["ph"] == "X":
                threads.setdefault(event["tid"], []).append((round(1000 * event["ts"]), -round(1000 * event["dur"]), event["name"]))
        for spans in threads.values():
            open_until = []
            for begin, minus_duration, _ in sorted(spans):
                while open_until and open_until[-1] <= begin:
                    open_until.pop()
                if open_until:
                    self.assertLessEqual(begin - minus_duration, open_until[-1])
                open_until.append(begin - minus_duration)
        names = {event["name"] for event in events if event["ph"] == "X"}
        self.assertLess({"ProfilerStep#5", "forward", "aten::relu", "ReluBackward0"}, names)

    def check_steps(self, board, last):
        """Checks that each step up to `last` is shown exactly once."""
        values, count = board.scalars("step", lambda steps: steps == list(range(last + 1)))
        self.assertEqual((values, count), ({step: step for step in range(last + 1)}, last + 1))

    def test_a_resumed_run_replaces_the_logged_steps_from_the_step_at_which_it_resumed(self):
        self.log(0, 20)
        self.log(6, 9, purge=6)

        def check(board):
            self.check_steps(board, 9)
            texts = board.await_answer(lambda texts: len(texts) == 10, "plugin/text/text", run="job", tag="note")
            self.assertEqual([text["step"] for text in texts], list(range(10)))

        self.on_each_loader(check)

    def test_a_file_with_a_truncated_record_is_read_and_continued_by_a_resumed_run(self):
        self.assertIn("training continues", self.log(0, 200, limit=5003))
        [file] = self.run_directory.iterdir()
        whole, steps = self.whole_records(file)
        self.assertLess(whole, 5003)
        self.assertEqual(file.stat().st_size, 5003)
        self.assertGreater(steps, 20)
        self.on_each_loader(lambda board: self.check_steps(board, steps - 1))
        self.log(steps - 2, steps + 5, purge=steps - 2)
        self.on_each_loader(lambda board: self.check_steps(board, steps + 5))

    @staticmethod
    def whole_records(file):
        """Returns the total size of the complete records in a file, in bytes, and how many of them are scalars."""
        data, end, scalars = file.read_bytes(), 0, 0
        while end + 12 <= len(data):
            next_end = end + 16 + int.from_bytes(data[end : end + 8], "little")
            if next_end > len(data):
                break
            scalars += b"\x0a\x04step" in data[end:next_end]
            end = next_end
        return end, scalars


if __name__ == "__main__":
    python_peer.main()
