"""Tests the environment that `adaptdl run` provides for a program, and what it does with the program's output."""

import json
import os
import pathlib
import subprocess
import unittest

from local_network import leave_network
from run_support import ADAPTDL, PATIENCE, PRINT_DESCRIPTORS, REPLICA_PROGRAM, RunTest, stray_pipe

PRINT_ENVIRONMENT = """
import json, os
more = {"session": os.getsid(0) == os.getpid(), "stdin": os.readlink("/proc/self/fd/0")}
print(json.dumps({**os.environ, **more}), flush=True)
"""

# A Python job whose replicas find each other through the environment alone: rank 0 listens, and the others send it a number.
MEET = """
import os, socket, time
rank, size = int(os.environ["ADAPTDL_REPLICA_RANK"]), int(os.environ["ADAPTDL_NUM_REPLICAS"])
address = (os.environ["ADAPTDL_MASTER_ADDR"], int(os.environ["ADAPTDL_MASTER_PORT"]))
if rank == 0:
    with socket.socket() as listener:
        listener.bind(address)
        listener.listen()
        total = 0
        for _ in range(size - 1):
            peer, _ = listener.accept()
            with peer:
                total += int(peer.recv(16))
    print("sum", total)
else:
    for _ in range(2500):
        try:
            with socket.create_connection(address) as peer:
                peer.sendall(b"%d" % rank)
            break
        except ConnectionRefusedError:
            time.sleep(0.02)
    else:
        raise SystemExit("nobody listens")
"""


class EnvironmentTest(RunTest):
    def environments(self, *arguments, **more):
        program = self.python("show", PRINT_ENVIRONMENT)
        run = self.run_to_end(*arguments, program, **more)
        shown = {int(line[1 : line.index("]")]): json.loads(line.split(" ", 1)[1]) for line in run.out}
        return [shown[rank] for rank in sorted(shown)]

    def test_each_replica_gets_all_adaptdl_environment_variables(self):
        first, second = self.environments(
            "-n",
            2,
            "--checkpoint",
            "c",
            "--share",
            "s",
            "--checkpoint-every",
            "90s",
            "--checkpoint-keep",
            3,
            "--backend",
            "gloo",
            "--name",
            "job",
            "--env",
            "A=b=c",
            ADAPTDL_REPLICA_RANK="7",
            ADAPTDL_SUPERVISOR_URL="http://elsewhere",
            ADAPTDL_STATUS_FD="99",
        )
        port = int(first["ADAPTDL_MASTER_PORT"])
        low, high = map(int, pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
        self.assertTrue(10000 <= port <= 65535 and not low <= port <= high, port)
        for rank, environment in enumerate((first, second)):
            contract = {
                name: value
                for name, value in environment.items()
                if name.startswith("ADAPTDL_") and name != "ADAPTDL_STATUS_FD"
            }
            self.assertRegex(contract.pop("ADAPTDL_SUPERVISOR_URL"), r"^http://127\.0\.0\.1:\d+$")
            self.assertRegex(contract.pop("ADAPTDL_SUPERVISOR_TOKEN"), "^[0-9a-f]{32}$")
            self.assertEqual(
                contract,
                {
                    "ADAPTDL_CHECKPOINT_PATH": str(self.directory / "c"),
                    "ADAPTDL_SHARE_PATH": str(self.directory / "s"),
                    "ADAPTDL_CHECKPOINT_EVERY": "90s",
                    "ADAPTDL_CHECKPOINT_KEEP": "3",
                    "ADAPTDL_BACKEND": "gloo",
                    "ADAPTDL_JOB_ID": "local/job",
                    "ADAPTDL_MASTER_ADDR": "127.0.0.1",
                    "ADAPTDL_MASTER_PORT": str(port),
                    "ADAPTDL_REPLICA_RANK": str(rank),
                    "ADAPTDL_NUM_NODES": "1",
                    "ADAPTDL_NUM_REPLICAS": "2",
                    "ADAPTDL_NUM_RESTARTS": "0",
                    "ADAPTDL_REPLICA_ID": f"0-{rank}",
                    "ADAPTDL_GENERATION": "0",
                    "ADAPTDL_SCHED_VERSION": "0.0.0",
                },
            )
            self.assertNotEqual(environment["ADAPTDL_STATUS_FD"], "99")
            self.assertTrue(1 <= int(environment["OMP_NUM_THREADS"]) <= max(1, len(os.sched_getaffinity(0)) // 2))
            self.assertEqual(environment["A"], "b=c")
            self.assertTrue(environment["session"])
            self.assertEqual(environment["stdin"], "/dev/null")

    def test_variables_that_are_already_set_are_kept(self):
        [environment] = self.environments(
            "-n", 1, OMP_NUM_THREADS="3", ADAPTDL_CHECKPOINT_EVERY="7m", ADAPTDL_SHARE_PATH="/s"
        )
        self.assertEqual(
            [environment[name] for name in ("OMP_NUM_THREADS", "ADAPTDL_CHECKPOINT_EVERY", "ADAPTDL_SHARE_PATH")],
            ["3", "7m", "/s"],
        )

    def test_no_checkpoint_path_is_set_without_checkpoints(self):
        [environment] = self.environments("--no-checkpoint", "-n", 1, ADAPTDL_CHECKPOINT_PATH="/of/another/job")
        self.assertNotIn("ADAPTDL_CHECKPOINT_PATH", environment)
        self.assertEqual(self.own_checkpoints(), [])

    def test_replicas_get_one_gpu_each_and_share_gpus_only_with_gloo(self):
        environments = self.environments(CUDA_VISIBLE_DEVICES="3,GPU-7,5")
        self.assertEqual([environment["CUDA_VISIBLE_DEVICES"] for environment in environments], ["3", "GPU-7", "5"])
        self.assertIn("4 replicas need 4 GPUs", self.refused("-n", 4, "true", CUDA_VISIBLE_DEVICES="3,GPU-7,5"))
        shared = self.environments("-n", 3, "--backend", "gloo", CUDA_VISIBLE_DEVICES="0,1")
        self.assertEqual([environment["CUDA_VISIBLE_DEVICES"] for environment in shared], ["0", "1", "0"])

    def test_the_default_checkpoint_directory_is_removed_after_success(self):
        [environment] = self.environments("-n", 1)
        path = environment["ADAPTDL_CHECKPOINT_PATH"]
        self.assertRegex(path, f"^{self.runs}/show-20[0-9-]+/checkpoints$")
        self.assertEqual(environment["ADAPTDL_JOB_ID"], "local/" + path.split("/")[-2])
        self.assertEqual(self.own_checkpoints(), [])

    def test_a_run_without_a_home_directory_is_rejected_only_if_it_saves_checkpoints(self):
        run = self.run_to_end("-n", 1, "--no-checkpoint", "echo", "text", HOME=None)
        self.assertEqual(run.out, ["[0] text"])
        self.assertIn("adaptdl: warning: `adaptdl ls` will not find this run: no home directory", run.err[0])
        self.assertIn("no home directory", self.refused("-n", 1, "echo", "text", HOME=None))

    def test_a_python_program_finds_its_peers(self):
        run = self.run_to_end("-n", 4, self.python("meet", MEET))
        self.assertEqual(run.out, ["[0] sum 6"])

    def test_a_program_that_uses_the_runtime_finds_its_peers(self):
        run = self.run_to_end("-n", 3, REPLICA_PROGRAM, "--steps", 3)
        self.assertEqual(
            sorted(line for line in run.out if "done" in line), [f"[{rank}] done at step 3" for rank in range(3)]
        )


    def test_a_replica_has_only_its_standard_descriptors_and_the_status_pipe(self):
        program = self.python("show", PRINT_DESCRIPTORS)
        for options in ([], ["--devices", "2", "--device-kind", "cpu"], ["--logs", "logs"]):
            with self.subTest(options), stray_pipe():
                process = subprocess.run(
                    [ADAPTDL, "run", "-n", "2", *options, program], cwd=self.directory, env=self.environment,
                    capture_output=True, text=True, close_fds=False, timeout=PATIENCE,
                )
                self.assertEqual(process.returncode, 0, process.stderr)
                for line in process.stdout.splitlines():
                    self.assert_own_descriptors(json.loads(line.split(" ", 1)[1]))


class OutputTest(RunTest):
    def test_lines_of_several_replicas_do_not_mix_and_keep_their_order(self):
        program = self.python(
            "talk",
            "import os, sys\nfor i in range(2000):\n"
            "    print(os.environ['ADAPTDL_REPLICA_RANK'] * 60, i)\n    print('err', i, file=sys.stderr)\n",
        )
        run = self.run_to_end("-n", 4, program)
        for rank in range(4):
            mine = [line for line in run.out if line.startswith(f"[{rank}] ")]
            self.assertEqual(mine, [f"[{rank}] {str(rank) * 60} {i}" for i in range(2000)])
            errors = [line for line in run.err if line.startswith(f"[{rank}] ")]
            self.assertEqual(errors, [f"[{rank}] err {i}" for i in range(2000)])
        self.assertEqual(len(run.out), 8000)

    def test_long_lines_unfinished_lines_and_arbitrary_bytes_are_passed_through(self):
        program = self.python(
            "bytes", "import os\nos.write(1, b'x' * 500000 + b'\\n' + bytes(set(range(256)) - {10}))\n"
        )
        run = self.run_to_end("-n", 2, program)
        everything = bytes(set(range(256)) - {10}).decode(errors="surrogateescape")
        for rank in range(2):
            self.assertEqual(
                [line for line in run.out if line.startswith(f"[{rank}] ")],
                [f"[{rank}] " + "x" * 500000, f"[{rank}] {everything}"],
            )

    def test_an_endless_line_is_split_into_parts_of_bounded_size(self):
        program = self.python("endless", "import os\nfor _ in range(48):\n    os.write(1, b'x' * (1 << 20))\n")
        run = self.run_to_end("-n", 1, program)
        self.assertEqual(sum(len(line) - len("[0] ") for line in run.out), 48 << 20)
        self.assertLessEqual(max(map(len, run.out)), (1 << 20) + len("[0] "))

    def test_logs_contain_both_streams_of_a_rank_and_are_appended_to(self):
        program = self.script("talk", "#!/bin/sh\necho out $ADAPTDL_REPLICA_RANK\necho err >&2\nprintf unfinished\n")
        for _ in range(2):
            self.run_to_end("-n", 2, "--logs", "logs/here", "--name", "job", program)
        for rank in range(2):
            lines = (self.directory / "logs" / "here" / f"rank-{rank}.log").read_text().splitlines()
            self.assertEqual(len(lines), 8)
            for start in (lines[:4], lines[4:]):
                self.assertRegex(
                    start[0], rf"^=== local/job rank {rank}, start 0, \d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d [+-]\d{{4}} ===$"
                )
                self.assertEqual(sorted(start[1:]), ["err", f"out {rank}", "unfinished"])

    def shell(self, command):
        """Runs a line of bash, in which $ADAPTDL is the adaptdl command. Returns its standard output and standard error."""
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.directory,
            env={**self.environment, "ADAPTDL": ADAPTDL},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        return done.stdout, done.stderr

    def test_a_slow_reader_receives_the_whole_output(self):
        program = self.python("much", "for i in range(300000):\n    print(i, 'x' * 50)\n")
        reader = self.python("slow", "import sys, time\ntime.sleep(1)\nprint(len(sys.stdin.read().splitlines()))\n")
        out, _ = self.shell(f"$ADAPTDL run -n 1 {program} | {reader}; echo ${{PIPESTATUS[0]}}")
        self.assertEqual(out, "300000\n0\n")

    def test_closing_the_output_pipe_makes_the_run_save_a_checkpoint_and_stop(self):
        program = self.script(
            "chatter", f"#!/bin/sh\nwhile sleep 0.05; do echo tick; done &\nexec {REPLICA_PROGRAM} --steps 100000\n"
        )
        out, err = self.shell(f"$ADAPTDL run -n 2 --checkpoint c {program} | head -n 5; echo ${{PIPESTATUS[0]}}")
        self.assertEqual(out.splitlines()[5:], ["143"], err)
        self.assertIn("standard output was closed", err)
        self.assertIn("stopped with checkpoint", err)

    def test_a_run_succeeds_with_closed_standard_descriptors(self):
        out, err = self.shell(f"$ADAPTDL run -n 2 --checkpoint c {REPLICA_PROGRAM} --steps 5 <&- >&-; echo $? >&2")
        self.assertEqual((out, err.splitlines()[-1]), ("", "0"), err)
        out, err = self.shell(f"$ADAPTDL run -n 2 --checkpoint c {REPLICA_PROGRAM} --steps 10 <&- 2>&-; echo $?")
        self.assertEqual(out.splitlines()[-1], "0", out)

    def test_a_failed_write_of_the_output_does_not_end_the_run(self):
        _, err = self.shell(f"$ADAPTDL run -n 1 --checkpoint c {REPLICA_PROGRAM} --steps 5 >/dev/full; echo $? >&2")
        self.assertEqual(err.splitlines()[-1], "0", err)

    def test_the_status_pipe_does_not_block_and_ignores_invalid_reports(self):
        program = self.python(
            "report",
            "import os\nfd = int(os.environ['ADAPTDL_STATUS_FD'])\nassert not os.get_blocking(fd)\n"
            "for i in range(100):\n    os.write(fd, b'{\"step\": %d}\\n' % i)\n"
            "os.write(fd, b'no json\\n[1]\\n\"x\"\\n')\n",
        )
        run = self.run_to_end("-n", 1, program)
        self.assertEqual(run.out, [])
        self.assertEqual(len(run.err), 1, run.text())  # only the opening line: there is no status line in a pipe


if __name__ == "__main__":
    leave_network()
    unittest.main(verbosity=2)
