"""Runs jobs on this machine to compare a program that uses our trainer with one that uses Python's
torch.distributed."""

import json
import os
import subprocess
import unittest

from local_network import free_port

PATIENCE = 60


def environment(**more):
    foreign = "ADAPTDL_", "PYTHONHOME", "PYTHONPATH"
    kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    return {**kept, "OMP_NUM_THREADS": "1", **more}


def our_environments(replicas):
    """Returns the environment of each replica of a program that uses our trainer."""
    port = str(free_port())
    job = dict(ADAPTDL_NUM_REPLICAS=str(replicas), ADAPTDL_MASTER_ADDR="127.0.0.1", ADAPTDL_MASTER_PORT=port)
    return [environment(**job, ADAPTDL_REPLICA_RANK=str(rank)) for rank in range(replicas)]


def python_environments(replicas):
    return [environment(GLOO_SOCKET_IFNAME="lo")] * replicas


class Job:
    """A job whose replicas answer questions. Each question is a JSON object on one line, and all replicas receive it.
    The replicas end when the `with` statement of the job ends."""

    def __init__(self, commands, environments):
        pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8")
        self.replicas = [subprocess.Popen(command, env=env, **pipes) for command, env in zip(commands, environments)]

    @classmethod
    def ours(cls, program, replicas):
        return cls([[program]] * replicas, our_environments(replicas))

    @classmethod
    def of_python(cls, python, program, replicas, store):
        """Starts a job that runs a Python program. `store` is a file that must not exist yet, through which the
        replicas find each other."""
        commands = [[python, program, str(rank), str(replicas), store] for rank in range(replicas)]
        return cls(commands, python_environments(replicas))

    def ask(self, **question):
        """Asks all replicas the question, and returns their answers in the order of their ranks."""
        for replica in self.replicas:
            replica.stdin.write(json.dumps(question) + "\n")
            replica.stdin.flush()
        answers = [replica.stdout.readline() for replica in self.replicas]
        if not all(answers):
            raise AssertionError(f"a replica of {self.replicas[0].args} ended at {question}")
        return [json.loads(answer) for answer in answers]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for replica in self.replicas:
            replica.stdin.close()
        try:
            for replica in self.replicas:
                replica.wait(PATIENCE)
        finally:
            for replica in self.replicas:
                replica.kill()
                replica.wait()
                replica.stdout.close()


def require_same_torch(*jobs):
    """Raises unittest.SkipTest if the jobs do not use the same LibTorch."""
    if len({job.ask(what="config")[0] for job in jobs}) > 1:
        raise unittest.SkipTest("Python's PyTorch is not the LibTorch of this build; see -Dtorch_prefix")
