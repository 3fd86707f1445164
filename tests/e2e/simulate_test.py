"""Tests `adaptdl simulate`: its statistics, cycle files and plots, based on real measurements and on ones that are
created here."""

import csv
import json
import os
import pathlib
import pty
import re
import select
import shutil
import signal
import statistics
import subprocess
import tempfile
import time
import unittest
import xml.etree.ElementTree

ADAPTDL = os.environ["ADAPTDL_BIN"]
PAPER = pathlib.Path(os.environ["SOURCE_ROOT"]) / "share/adaptdl/osdi21"
KEYS = [
    "workload", "policy", "average_jct_s", "p50_jct_s", "p99_jct_s", "makespan_s", "restarts_per_job", "gpu_hours",
    "worst_ftf",
]  # fmt: skip
PATIENCE = 120


def simulate(*words, **options):
    command = [ADAPTDL, "simulate", *map(str, words)]
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE, **options)


class SimulateTest(unittest.TestCase):
    def setUp(self):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="adaptdl-e2e-"))
        self.addCleanup(shutil.rmtree, self.directory)

    def workload(self, name="small", jobs=6, source="load-1.0/workload-6.csv"):
        """Writes a workload with the first short jobs of one of the paper's workloads, and returns its path."""
        with open(PAPER / "workloads" / source) as file:
            rows = [row for row in csv.DictReader(file) if row["application"] in ("cifar10", "bert", "ncf")][:jobs]
        path = self.directory / f"{name}.csv"
        with open(path, "w", newline="") as file:
            writer = csv.DictWriter(file, rows[0])
            writer.writeheader()
            writer.writerows(rows)
        return path

    def succeed(self, *words, **options):
        done = simulate(*words, **options)
        self.assertEqual((done.returncode, done.stderr), (0, ""), words)
        return done.stdout

    def rows(self, *words, **options):
        return json.loads(self.succeed(*words, "--json", **options))

    def assert_refused(self, words, message, code=2):
        done = simulate(*words)
        self.assertEqual((done.returncode, done.stdout), (code, ""), (words, done.stderr))
        self.assertRegex(done.stderr, r"\Aadaptdl: error: [^\n]+\n\Z")
        self.assertIn(message, done.stderr)


class FiguresTest(SimulateTest):
    def test_the_table_has_a_row_per_workload_and_policy_and_the_means(self):
        first, second = self.workload("first"), self.workload("second", source="load-1.0/workload-1.csv")
        lines = self.succeed(first, second, "--policy", "fifo,tiresias", "--policy", "fifo").splitlines()
        self.assertEqual(
            re.split(r"  +", lines[0]),
            ["WORKLOAD", "POLICY", "AVERAGE JCT", "MEDIAN JCT", "P99 JCT", "MAKESPAN", "RESTARTS/JOB", "GPU-HOURS",
             "WORST FTF"],
        )  # fmt: skip
        cells = [re.split(r"  +", line) for line in lines[1:]]
        self.assertEqual(
            [row[:2] for row in cells],
            [["first", "fifo"], ["first", "tiresias"], ["second", "fifo"], ["second", "tiresias"], ["mean", "fifo"],
             ["mean", "tiresias"]],
        )  # fmt: skip
        average = {(row[0], row[1]): int(row[2].removesuffix(" s").replace(",", "")) for row in cells}
        mean = (average["first", "fifo"] + average["second", "fifo"]) / 2
        self.assertAlmostEqual(average["mean", "fifo"], mean, delta=1)

    def test_json_has_the_rows_of_the_table_with_fixed_keys(self):
        rows = self.rows(self.workload(), "--policy", "adaptive,sia")
        self.assertEqual([list(row) for row in rows], [KEYS, KEYS])
        self.assertEqual([(row["workload"], row["policy"]) for row in rows], [("small", "adaptive"), ("small", "sia")])
        for row in rows:
            self.assertLess(0, row["p50_jct_s"])
            self.assertLessEqual(row["p50_jct_s"], row["p99_jct_s"])
            self.assertLessEqual(row["p99_jct_s"], row["makespan_s"])

    def test_the_default_policy_is_the_first_listed_in_the_help(self):
        described = json.loads(subprocess.run([ADAPTDL, "help", "--dump-json"], capture_output=True).stdout)
        command = next(command for command in described if command["name"] == "simulate")
        names = next(option["value"] for option in command["options"] if option["names"] == ["--policy"]).split("|")
        rows = self.rows(self.workload(jobs=2))
        self.assertEqual([row["policy"] for row in rows], names[:1])
        everything = self.rows(self.workload(jobs=2), "--policy", "all")
        self.assertEqual([row["policy"] for row in everything], names[:-1])

    def test_all_files_of_a_directory_are_simulated_under_unique_names(self):
        for load in ("light", "heavy"):
            (self.directory / load).mkdir()
            shutil.copy(self.workload(jobs=1), self.directory / load / "workload-2.csv")
            shutil.copy(self.workload(jobs=1), self.directory / load / "workload-10.csv")
        (self.directory / "small.csv").unlink()
        names = [row["workload"] for row in self.rows(self.directory, "--policy", "fifo")]
        self.assertEqual(names, ["heavy/workload-2", "heavy/workload-10", "light/workload-2", "light/workload-10"])
        names = [row["workload"] for row in self.rows(self.directory / "light", "--policy", "fifo")]
        self.assertEqual(names, ["workload-2", "workload-10"])

    def test_statistics_match_the_job_completion_times(self):
        out = self.directory / "cycles.jsonl"
        [row] = self.rows(self.workload(), "--policy", "tiresias", "--output", out)
        times = {}
        for line in out.read_text().splitlines():
            for job in json.loads(line)["jobs"]:
                if job["state"] == "completed":
                    self.assertNotIn(job["name"], times)
                    times[job["name"]] = job["completion_time"] - job["submission_time"]
        self.assertEqual(len(times), 6)
        self.assertAlmostEqual(row["average_jct_s"], statistics.mean(times.values()), places=6)
        self.assertAlmostEqual(row["p99_jct_s"], max(times.values()), places=6)

    def test_options_change_the_results_as_documented(self):
        workload = self.workload()
        base = self.rows(workload)[0]
        self.assertLess(self.rows(workload, "--restart-cost", "1s")[0]["average_jct_s"], base["average_jct_s"])
        self.assertGreater(self.rows(workload, "--nodes", 1, "--gpus", 1)[0]["average_jct_s"], base["average_jct_s"])
        group = ("--policy", "sia", "--node-group", "t4:8:4:1", "--node-group", "a100:8:4:4")
        slow = ("--policy", "sia", "--node-group", "t4:16:4:1")
        self.assertLess(self.rows(workload, *group)[0]["average_jct_s"], self.rows(workload, *slow)[0]["average_jct_s"])

    def test_the_size_of_the_cluster_follows_the_policy(self):
        out = self.directory / "cycles.jsonl"
        table = self.succeed(self.workload(jobs=12), "--policy", "pollux-released", "--autoscale", "2:8", "--output", out)
        self.assertIn("NODE-HOURS", table)
        sizes = {len(json.loads(line)["nodes"]) for line in out.read_text().splitlines()}
        self.assertEqual(min(sizes), 2)
        self.assertGreater(max(sizes), 2)
        self.assertLessEqual(max(sizes), 8)

    def test_results_are_identical_on_any_number_of_threads(self):
        words = [self.workload("a"), self.workload("b", source="load-1.0/workload-3.csv"), "--policy", "pollux,sia"]
        results = []
        for name, options in {"one": ["--threads", 1], "four": ["--threads", 4]}.items():
            out = self.directory / name
            results.append((self.succeed(*words, "--seed", 7, "--output", out, *options), out.read_bytes()))
        self.assertEqual(*results)
        self.assertNotEqual(self.succeed(*words, "--seed", 8, "--output", self.directory / "other"), "")
        self.assertNotEqual((self.directory / "other").read_bytes(), results[0][1])

    def test_custom_traces_and_workloads_are_simulated(self):
        traces = self.directory / "traces"
        shutil.copytree(PAPER / "traces/cifar10", traces / "mine")
        workload = self.directory / "own.csv"
        workload.write_text("name,time,application,num_replicas,batch_size\na,0,mine,1,128\nb,60,mine,2,256\n")
        [row] = self.rows(workload, "--traces", traces)
        self.assertEqual(row["workload"], "own")
        self.assertGreater(row["average_jct_s"], 0)


class CyclesTest(SimulateTest):
    def test_each_cycle_is_a_consistent_json_line(self):
        out = self.directory / "cycles.jsonl"
        self.succeed(self.workload(), "--policy", "adaptive", "--nodes", 2, "--output", out)
        before = 0
        for line in out.read_text().splitlines():
            cycle = json.loads(line)
            self.assertEqual(list(cycle), ["workload", "policy", "time", "completed", "total", "nodes", "jobs"])
            self.assertGreater(cycle["time"], before)
            before = cycle["time"]
            free = {node["name"]: node["gpus"] for node in cycle["nodes"]}
            self.assertEqual(list(free.values()), [4, 4])
            for job in cycle["jobs"]:
                self.assertEqual(job["state"] in ("waiting", "completed"), job["allocation"] == [], job)
                self.assertTrue(job["reason"] or job["state"] == "completed", job)
                for node in job["allocation"]:
                    free[node] -= 1
            self.assertGreaterEqual(min(free.values()), 0)
        self.assertEqual(cycle["completed"], 6)

    def test_an_output_file_that_cannot_be_written_is_reported(self):
        workload = self.workload()
        self.assert_refused([workload, "--output", "/nowhere/x"], "cannot write '/nowhere/x': No such file or directory")
        self.assert_refused([workload, "--output", self.directory], "Is a directory")
        if os.access("/dev/full", os.W_OK):
            done = simulate(workload, "--policy", "fifo", "--output", "/dev/full")
            self.assertEqual(done.returncode, 1)
            self.assertIn("adaptdl: error: cannot write '/dev/full': No space left on device\n", done.stderr)

    def test_an_interrupt_stops_the_simulation_and_keeps_the_existing_file(self):
        out = self.directory / "cycles.jsonl"
        for number, code in {signal.SIGINT: 130, signal.SIGTERM: 143}.items():
            out.write_text("as it was")
            running = subprocess.Popen(
                [ADAPTDL, "simulate", PAPER / "workloads", "--policy", "pollux", "--output", out],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            deadline = time.monotonic() + PATIENCE
            while not list(self.directory.glob(".cycles.jsonl.*")):
                self.assertLess(time.monotonic(), deadline)
                time.sleep(0.01)
            running.send_signal(number)
            output, errors = running.communicate(timeout=PATIENCE)
            self.assertEqual((running.returncode, output), (code, ""))
            self.assertEqual(errors, f"adaptdl: interrupted; no results, and '{out}' is unchanged\n")
            self.assertEqual(out.read_text(), "as it was")
            self.assertEqual(list(self.directory.iterdir()), [out])

    def test_progress_is_shown_on_a_terminal(self):
        leader, follower = pty.openpty()
        environment = {**os.environ, "TERM": "xterm"}
        running = subprocess.Popen(
            [ADAPTDL, "simulate", self.workload(), "--policy", "fifo"],
            stdout=subprocess.PIPE,
            stderr=follower,
            env=environment,
        )
        os.close(follower)
        self.addCleanup(os.close, leader)
        seen = b""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            if not select.select([leader], [], [], 0.1)[0]:
                continue
            try:
                chunk = os.read(leader, 4096)
            except OSError:  # the other end is closed
                break
            if not chunk:
                break
            seen += chunk
        output = running.communicate(timeout=PATIENCE)[0]
        self.assertEqual(running.returncode, 0)
        self.assertIn(b"0/1 simulations  0/6 jobs", seen)
        self.assertIn(b"1/1 simulations  6/6 jobs", seen)
        self.assertTrue(seen.endswith(b"\r\x1b[K"), seen)
        self.assertNotIn(b"simulations", output)


class RefusalTest(SimulateTest):
    def test_invalid_arguments_fail_with_one_line_and_exit_code_2(self):
        workload = self.workload(jobs=1)
        empty = self.directory / "empty"
        empty.mkdir()
        for words, message in {
            (): "WORKLOAD is required",
            ("/nowhere",): "cannot read workload '/nowhere'",
            (empty,): f"no .csv file found in '{empty}'",
            (workload, "--policy", "best"): "unknown policy 'best': expected one of adaptive, pollux",
            (workload, "--policy", "fifo,"): "unknown policy '': expected one of",
            (workload, "--nodes", "0"): "--nodes must be an integer from 1",
            (workload, "--gpus", "4.5"): "--gpus must be an integer from 1",
            (workload, "--interval", "soon"): "--interval",
            (workload, "--interval", "0s"): "interval",
            (workload, "--restart-cost", "-1s"): "--restart-cost",
            (workload, "--interference", "2"): "--interference must be a number from 0 to 1",
            (workload, "--fairness", "nan"): "--fairness must be a number",
            (workload, "--autoscale", "4"): "--autoscale must be MIN:MAX",
            (workload, "--autoscale", "8:4"): "MAX in --autoscale must be an integer from 8",
            (workload, "--autoscale", "1:4", "--nodes", "2"): "--autoscale and --nodes cannot be used together",
            (workload, "--node-group", "a100:4:8"): "--node-group must be TYPE:NODES:GPUS:SPEED",
            (workload, "--node-group", "a100:4:8:0"): "SPEED in --node-group",
            (workload, "--node-group", "a100:4:8:1:-1"): "PRICE in --node-group",
            (workload, "--node-group", "a:1:1:1:1", "--node-price", "2"): "--node-group and --node-price cannot be used together",
            (workload, "--node-price", "free"): "--node-price",
            (workload, "--node-group", "a:1:1:1", "--gpus", "2"): "--node-group and --gpus cannot be used together",
            (workload, "--seed", "x"): "--seed must be an integer",
            (workload, "--threads", "0"): "--threads must be an integer from 1",
            (workload, "--traces", "/nowhere"): "/nowhere",
            (workload, "--nonsense",): "unknown option '--nonsense'",
        }.items():
            self.assert_refused(words, message)

    def test_the_error_for_an_invalid_file_names_the_line_and_column(self):
        header = "name,time,application,num_replicas,batch_size\n"
        workload = self.directory / "broken.csv"
        for text, place in {
            header + "a,0,cifar10,1,128\nb,soon,cifar10,1,128\n": ":3:3: ",
            header + "a,0,nothing,1,128\n": ":2:5: ",
            header + "a,0,cifar10,1,128\na,0,cifar10,1,128\n": ":3:1: ",
        }.items():
            workload.write_text(text)
            self.assert_refused([workload], f"{workload}{place}")
        traces = self.directory / "traces"
        shutil.copytree(PAPER / "traces", traces)
        file = traces / "bert/placements.csv"
        file.chmod(0o644)
        lines = file.read_text().splitlines()
        lines[2] = lines[2].replace(lines[2].split(",")[2], "fast")
        file.write_text("\n".join(lines))
        done = simulate(self.workload(), "--traces", traces)
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertRegex(done.stderr, rf"\Aadaptdl: error: {re.escape(str(file))}:3:\d+: [^\n]+\n\Z")


class PlotTest(SimulateTest):
    SVG = "{http://www.w3.org/2000/svg}"

    def cycles(self, *words):
        out = self.directory / "cycles.jsonl"
        self.succeed(self.workload(), "--output", out, *words)
        return out

    def picture(self, path):
        return xml.etree.ElementTree.parse(path).getroot()

    def test_the_plot_names_nodes_jobs_and_units(self):
        out = self.cycles("--policy", "adaptive", "--nodes", 3)
        printed = self.succeed("plot", out)
        self.assertTrue(printed.startswith(f"{out.with_suffix('.svg')}, "), printed)
        root = self.picture(out.with_suffix(".svg"))
        self.assertEqual(root.tag, self.SVG + "svg")
        text = [element.text for element in root.iter(self.SVG + "text")]
        for wanted in ("small under adaptive", "3 nodes, 12 GPUs", "cifar10", "jobs", "waiting", "time in "):
            self.assertTrue(any(wanted in line for line in text), (wanted, text))
        nodes = {node["name"] for node in json.loads(out.read_text().splitlines()[0])["nodes"]}
        self.assertLessEqual(nodes, set(text))
        jobs = {job["name"] for line in out.read_text().splitlines() for job in json.loads(line)["jobs"]}
        titles = {element.text for group in root.iter(self.SVG + "g") for element in group.iter(self.SVG + "title")}
        self.assertEqual(titles, jobs)

    def test_the_title_and_output_options_are_applied_to_the_plot(self):
        out = self.cycles("--policy", "fifo")
        svg = self.directory / "p.svg"
        self.succeed("plot", out, "-o", svg, "--title", "A & B <c>")
        self.assertEqual(next(self.picture(svg).iter(self.SVG + "title")).text, "A & B <c>")
        self.assertEqual(self.succeed("plot", out, "-o", "-", "--title", "A & B <c>"), svg.read_text())
        self.assert_refused(["plot", out, "-o", out], "would overwrite the cycle file")
        self.assert_refused(["plot", out, "-o", "/nowhere/p.svg"], "cannot write '/nowhere/p.svg'", code=1)

    def test_one_of_several_simulations_in_a_file_must_be_selected_for_the_plot(self):
        out = self.cycles("--policy", "fifo,sia")
        self.assert_refused(
            ["plot", out],
            "contains 2 simulations (small under fifo, small under sia); choose one with --workload and --policy",
        )
        self.assert_refused(["plot", out, "--policy", "x"], "contains no such simulation, only small under fifo, small under sia")
        self.succeed("plot", out, "--policy", "sia")
        self.assertIn("small under sia", out.with_suffix(".svg").read_text())

    def test_the_plot_of_a_long_simulation_is_less_than_a_fifth_as_large_as_its_cycle_file(self):
        file = self.directory / "long.jsonl"
        nodes = [{"name": f"n{i}", "gpus": 8} for i in range(64)]
        with open(file, "w") as lines:
            for cycle in range(3000):
                jobs = []
                for i, node in enumerate(nodes):
                    job = {"name": f"j{i}-{cycle // (7 + i % 5)}", "application": f"a{i % 6}", "state": "running",
                           "allocation": [node["name"]] * (1 + (cycle // 3 + i) % 8), "submission_time": 0,
                           "batch_size": 1, "accum_steps": 0, "epoch": 0, "progress": 0, "restarts": 0, "reason": "x"}  # fmt: skip
                    jobs.append(job)
                line = {"workload": "w", "policy": "p", "time": 60 * cycle, "completed": 0, "total": 9, "nodes": nodes,
                        "jobs": jobs}  # fmt: skip
                lines.write(json.dumps(line) + "\n")
        self.succeed("plot", file)
        self.picture(file.with_suffix(".svg"))
        self.assertLess(file.with_suffix(".svg").stat().st_size, file.stat().st_size / 5)

    def test_an_invalid_cycle_file_is_rejected_with_its_line(self):
        good = self.cycles("--policy", "fifo").read_text().splitlines()
        file = self.directory / "broken.jsonl"
        second = next(cycle for cycle in map(json.loads, good[1:]) if any(job["allocation"] for job in cycle["jobs"]))
        node = next(node for job in second["jobs"] for node in job["allocation"])
        for line, message in {
            "{": "invalid JSON",
            "[]": "the cycle must be an object, got array",
            "{}": "the cycle has no 'workload'",
            json.dumps({**second, "time": "late"}): "the cycle: 'time' must be a number, got string",
            json.dumps({**second, "time": -5}): "time must increase",
            json.dumps({**second, "jobs": [{}]}): "a job has no 'name'",
            json.dumps({**second, "nodes": []}): f"is on node '{node}', which does not exist",
            json.dumps({**second, "nodes": [{**node, "gpus": 0} for node in second["nodes"]]}): "more than its 0 GPUs",
        }.items():
            file.write_text("\n".join([good[0], line]))
            self.assert_refused(["plot", file], message)
            self.assert_refused(["plot", file], f"{file}:2: ")
        file.write_text("")
        self.assert_refused(["plot", file], f"{file}:1: file is empty")
        self.assert_refused(["plot", self.directory / "nothing"], "cannot read")
        self.assert_refused(["plot", self.directory], "is a directory")


if __name__ == "__main__":
    unittest.main(verbosity=2)
