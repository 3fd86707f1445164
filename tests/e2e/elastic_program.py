#!/usr/bin/env python3
"""A job that follows generations and needs only the standard library.

Its replicas count steps together: in each step, every replica sends a word to rank 0, which sends the same answer to all
of them. Rank 0 asks for the next generation in the background and announces it at the end of a step. A replica that
loses the others reports its generation as broken and asks for the next one. With --cannot-join, new replicas report that
they cannot join the running replicas, and with --newcomers-exit N, they exit with code N. With --accuracy VALUE, the
job reports VALUE as its accuracy every ten steps, and with --scales-badly, it reports that more replicas make it slower.
With --until FILE, it ends as soon as FILE exists.

    elastic_program.py [--steps N] [--until FILE] [--pause SECONDS] [--save-every STEPS] [--cannot-join] [--newcomers-exit N]
                       [--accuracy VALUE] [--scales-badly]
"""

import argparse
import json
import os
import pathlib
import shutil
import signal
import socket
import sys
import threading
import time
import urllib.error
import urllib.request

ID = os.environ["ADAPTDL_REPLICA_ID"]
FIRST_GENERATION = int(os.environ["ADAPTDL_GENERATION"])
JOB = os.environ["ADAPTDL_SUPERVISOR_URL"], os.environ["ADAPTDL_JOB_ID"]
HINTS_OF_BAD_SCALING = {
    "initBatchSize": 1024,
    "gradParams": {"norm": 1, "var": 1},
    "perfParams": {"alpha_c": 1e-4, "beta_c": 1e-3, "alpha_n": 10, "beta_n": 0, "alpha_r": 10, "beta_r": 0, "gamma": 1},
}
FORM_TIMEOUT = 20  # seconds for a group to form: enough on a busy machine, and less than the grace period of a stop
TIMEOUT = float(os.environ.get("ADAPTDL_COLLECTIVE_TIMEOUT", "30000ms").removesuffix("ms")) / 1000


class Broken(Exception):
    """Raised when a replica has lost its group."""


def tell(**fields):
    os.write(int(os.environ["ADAPTDL_STATUS_FD"]), json.dumps(fields).encode() + b"\n")


def say(*words):
    print(*words, flush=True)


def request(path, method="GET", body=None):
    """Sends a request to the supervisor, and returns the answer, or None if there is none yet."""
    url, job = JOB
    header = {"Authorization": "Bearer " + os.environ["ADAPTDL_SUPERVISOR_TOKEN"]}
    try:
        with urllib.request.urlopen(
            urllib.request.Request(f"{url}/{path.format(job=job)}", body, header, method=method), timeout=60
        ) as answer:
            text = answer.read()
            return json.loads(text) if text.strip() else {}
    except urllib.error.HTTPError as error:
        if error.code == 408:
            return None
        raise


def next_generation(after, more=""):
    while True:
        answer = request(f"generation/{{job}}?after={after}&timeout=30{more}")
        if answer is not None:
            return answer


class Group:
    """The connected replicas of a generation."""

    def __init__(self, generation, step, newcomer, hints):
        self.number = generation["generation"]
        ids = [member["id"] for member in generation["replicas"]]
        self.rank, self.size = ids.index(ID), len(ids)
        self.coming = None  # the next generation, once rank 0 knows of it
        first = generation["replicas"][0]
        address = (first["address"], first["port"])
        self.peers = self.accept(address) if self.rank == 0 else [self.connect(address)]
        # The replica that has counted the most steps has the correct count: a step is done as soon as rank 0 has
        # answered any replica.
        mine = {"step": -1 if newcomer else step}
        self.step = self.exchange(mine, lambda words: {"step": max(word["step"] for word in words)})["step"]
        if self.rank == 0:
            request("hints/{job}", "PUT", json.dumps({"liveRescale": True, **hints}).encode())
            threading.Thread(target=self.watch, daemon=True).start()

    def watch(self):
        self.coming = next_generation(self.number)

    def accept(self, address):
        peers = []
        try:
            with socket.create_server(address) as server:
                server.settimeout(FORM_TIMEOUT)
                while len(peers) < self.size - 1:
                    peer, _ = server.accept()
                    peer.settimeout(TIMEOUT)
                    peers.append(peer.makefile("rw"))
        except OSError as error:
            raise Broken(error) from None
        return peers

    def connect(self, address):
        deadline = time.monotonic() + FORM_TIMEOUT
        while True:
            try:
                peer = socket.create_connection(address)
                peer.settimeout(TIMEOUT)
                return peer.makefile("rw")
            except OSError as error:
                if time.monotonic() > deadline:
                    raise Broken(error) from None
                time.sleep(0.01)

    def exchange(self, word, decide):
        """Sends the words of all replicas to rank 0, and returns rank 0's decision to every replica."""
        try:
            if self.rank == 0:
                answer = decide([word] + [json.loads(peer.readline()) for peer in self.peers])
                for peer in self.peers:
                    self.send(peer, answer)
                return answer
            self.send(self.peers[0], word)
            return json.loads(self.peers[0].readline())
        except (OSError, ValueError) as error:
            raise Broken(error) from None

    @staticmethod
    def send(peer, word):
        peer.write(json.dumps(word) + "\n")
        peer.flush()

    def close(self):
        for peer in self.peers:
            try:
                peer.close()
            except OSError:
                pass


class Job:
    def __init__(self, options):
        self.options = options
        self.step = 0
        self.stopped = False
        self.directory = pathlib.Path(os.environ["ADAPTDL_CHECKPOINT_PATH"])
        signal.signal(signal.SIGTERM, self.stop)

    def stop(self, *_):
        self.stopped = True

    def checkpoints(self):
        return sorted(int(path.name.split("-")[1]) for path in self.directory.glob("checkpoint-*"))

    def load(self):
        if numbers := self.checkpoints():
            self.step = int((self.directory / f"checkpoint-{numbers[-1]}" / "step").read_text())

    def save(self):
        target = self.directory / f"checkpoint-{max(self.checkpoints(), default=-1) + 1}"
        shutil.rmtree(self.directory / "_writing", ignore_errors=True)
        (self.directory / "_writing").mkdir(parents=True)
        (self.directory / "_writing" / "step").write_text(str(self.step))
        (self.directory / "_writing").rename(target)
        tell(event="checkpoint", path=str(target))

    def first_group(self):
        newcomer = FIRST_GENERATION > 0
        after = FIRST_GENERATION - 1
        if not newcomer:
            self.load()
        elif self.options.cannot_join:
            tell(event="cannot_join", why="it meets its peers before its first step")
            sys.exit(1)
        elif self.options.newcomers_exit:
            sys.exit(self.options.newcomers_exit)
        while True:
            generation = next_generation(after, f"&replica={ID}")
            after = generation["generation"]
            if ID in [member["id"] for member in generation["replicas"]]:
                return generation, newcomer

    def run(self):
        generation, newcomer = self.first_group()
        while True:
            group = None
            try:
                group = Group(generation, self.step, newcomer, HINTS_OF_BAD_SCALING if self.options.scales_badly else {})
                newcomer, self.step = False, group.step
                # The test may kill the other replicas as soon as it reads the line that is printed below, so the launcher
                # must already know that this replica is training.
                tell(event="generation", generation=group.number, rank=group.rank, replicas=group.size)
                say(f"generation {group.number} rank {group.rank} of {group.size} at step {self.step} in {os.getpid()}")
                generation = self.train(group)
            except Broken as error:
                say(f"lost generation {generation['generation']}: {error}")
                generation = next_generation(generation["generation"], f"&replica={ID}&broken=1")
            finally:
                if group is not None:
                    group.close()
            if ID not in [member["id"] for member in generation["replicas"]]:
                say(f"leaves at step {self.step}")
                tell(event="left")
                return 0

    def is_done(self):
        return self.options.until is not None and os.path.exists(self.options.until)

    def train(self, group):
        """Trains until the next generation is announced, and returns that generation. Exits if the job is done or stopped."""
        while self.step < self.options.steps:
            time.sleep(self.options.pause)
            word = group.exchange(
                {"stop": self.stopped},
                lambda words: {"stop": any(word["stop"] for word in words), "coming": group.coming, "done": self.is_done()},
            )
            if word["stop"]:
                if group.rank == 0:
                    self.save()
                    say(f"saved step {self.step}")
                sys.exit(143)
            self.step += 1
            if group.rank == 0:
                tell(step=self.step)
                if self.options.accuracy is not None and self.step % 10 == 0:
                    say(json.dumps({"accuracy": self.options.accuracy, "step": self.step}))
                if self.options.save_every and self.step % self.options.save_every == 0:
                    self.save()
            if word["done"]:
                break
            if word["coming"] is not None:
                return word["coming"]
        group.exchange({}, lambda words: {})
        say(f"done at step {self.step}")
        sys.exit(0)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--until")
    parser.add_argument("--pause", type=float, default=0.02)
    parser.add_argument("--save-every", type=int, default=0)
    parser.add_argument("--cannot-join", action="store_true")
    parser.add_argument("--newcomers-exit", type=int, default=0)
    parser.add_argument("--accuracy", type=float)
    parser.add_argument("--scales-badly", action="store_true")
    sys.exit(Job(parser.parse_args()).run())


main()
