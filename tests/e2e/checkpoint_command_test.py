"""Tests `adaptdl checkpoint`, and reads the files of checkpoints as a tool in another language would."""

import json
import os
import pathlib
import shutil
import struct
import subprocess
import tempfile
import unittest

ADAPTDL = os.environ["ADAPTDL_BIN"]
PROGRAM = os.environ["CHECKPOINT_PROGRAM"]

# Maps each safetensors dtype that the struct module supports to its format character.
LETTERS = {"BOOL": "?", "U8": "B", "I8": "b", "I16": "h", "U16": "H", "I32": "i", "U32": "I", "F32": "f", "F64": "d",
           "I64": "q", "U64": "Q", "F16": "e"}


def parse_safetensors(path):
    """Returns {name: (dtype, shape, values)}, after checking that the file meets the safetensors specification."""
    data = path.read_bytes()
    (length,) = struct.unpack_from("<Q", data)
    header_bytes = data[8:8 + length]
    assert len(header_bytes) == length and header_bytes[:1] == b"{"

    def no_duplicates(pairs):
        assert len({key for key, _ in pairs}) == len(pairs), "a key is there twice"
        return dict(pairs)

    header = json.loads(header_bytes, object_pairs_hook=no_duplicates)
    buffer = data[8 + length:]
    end = 0
    tensors = {}
    for name, info in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        begin, stop = info["data_offsets"]
        assert begin == end, "a hole or an overlap before " + name
        end = stop
        count = 1
        for size in info["shape"]:
            count *= size
        letter = LETTERS[info["dtype"]]
        assert stop - begin == count * struct.calcsize(letter)
        assert count == 0 or (8 + length + begin) % struct.calcsize(letter) == 0, name + " is not aligned"
        tensors[name] = (info["dtype"], info["shape"], list(struct.unpack_from(f"<{count}{letter}", buffer, begin)))
    assert end == len(buffer), "bytes that belong to no tensor"
    return tensors


class CheckpointCommand(unittest.TestCase):
    def setUp(self):
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="adaptdl-checkpoint-"))
        self.addCleanup(shutil.rmtree, self.root)
        self.directory = self.root / "checkpoints"

    def save(self, count, keep=100, job="default/digits"):
        environment = {name: value for name, value in os.environ.items() if not name.startswith("ADAPTDL_")}
        environment.update(ADAPTDL_CHECKPOINT_PATH=str(self.directory), ADAPTDL_CHECKPOINT_KEEP=str(keep),
                           ADAPTDL_JOB_ID=job)
        subprocess.run([PROGRAM, str(count)], env=environment, check=True)

    def adaptdl(self, *words, code=0):
        result = subprocess.run([ADAPTDL, "checkpoint", *map(str, words)], capture_output=True, text=True, timeout=60)
        self.assertEqual(result.returncode, code, result.stderr)
        return result.stdout if code == 0 else result.stdout + result.stderr

    def json(self, *words, code=0):
        result = subprocess.run([ADAPTDL, "checkpoint", *map(str, words), "--json"], capture_output=True, text=True,
                                timeout=60)
        self.assertEqual(result.returncode, code, result.stderr)
        return json.loads(result.stdout)

    def damage(self, number, file):
        path = self.directory / f"checkpoint-{number}" / file
        data = bytearray(path.read_bytes())
        data[-2] ^= 1
        path.write_bytes(data)

    def test_the_files_of_a_checkpoint_are_valid_safetensors_and_json(self):
        self.save(1)
        checkpoint = self.directory / "checkpoint-0"
        self.assertEqual(sorted(path.name for path in checkpoint.iterdir()),
                         ["generator.rank0.safetensors", "manifest.json", "model.json", "model.safetensors",
                          "optimizer.safetensors"])
        tensors = parse_safetensors(checkpoint / "model.safetensors")
        self.assertEqual(tensors, {"flags": ("BOOL", [3], [True, False, True]),
                                   "layers.0.weight": ("F64", [2, 3], [0.5, 1.5, 2.5, 3.5, 4.5, 0.0]),
                                   "steps": ("I64", [], [0]), "nothing": ("F32", [0, 4], [])})
        self.assertEqual(json.loads((checkpoint / "model.json").read_text()),
                         {"settings": {"lr": 0.1, "names": ["a", "b"]}})
        manifest = json.loads((checkpoint / "manifest.json").read_text())
        self.assertEqual(manifest["progress"], {"epoch": 0, "loss": 0.125})
        for state in manifest["states"]:
            for file in state["files"]:
                self.assertEqual(file["size"], (checkpoint / file["name"]).stat().st_size)
                self.assertRegex(file["checksum"], "^[0-9a-f]{32}$")

    @unittest.skipUnless(shutil.which("xxhsum"), "xxhsum is not installed")
    def test_the_checksums_of_checkpoint_files_match_xxhsum(self):
        self.save(1)
        checkpoint = self.directory / "checkpoint-0"

        def xxhsum(data):
            return subprocess.run(["xxhsum", "-H2"], input=data, capture_output=True, check=True).stdout.split()[0].decode()

        text = (checkpoint / "manifest.json").read_bytes()
        manifest = json.loads(text)
        self.assertEqual(manifest["checksum"], xxhsum(text[:text.rindex(b'"checksum"')]))
        for state in manifest["states"]:
            for file in state["files"]:
                self.assertEqual(file["checksum"], xxhsum((checkpoint / file["name"]).read_bytes()))

    def test_ls_lists_the_newest_checkpoint_first(self):
        self.save(3)
        (self.directory / "checkpoint-1" / "optimizer.safetensors").unlink()
        lines = self.adaptdl("ls", self.directory).splitlines()
        self.assertEqual(len(lines), 4)
        self.assertEqual(lines[0].split(), ["NUMBER", "AGE", "PROGRESS", "STATES", "REPLICAS", "SIZE", "STATUS"])
        self.assertRegex(lines[1], r"^ +2 +\d+s +epoch 2, loss 0.125 +3 +1 +[\d.]+ \w+ +sizes match$")
        self.assertRegex(lines[2], r"damaged: .*optimizer.safetensors': No such file")
        self.assertRegex(lines[3], "sizes match$")
        entries = self.json("ls", self.directory)
        self.assertEqual([entry["number"] for entry in entries], [2, 1, 0])
        self.assertEqual([entry["complete"] for entry in entries], [True, False, True])
        self.assertEqual(entries[0]["job"], "default/digits")
        self.assertGreaterEqual(entries[0]["age_seconds"], 0)
        self.assertEqual(len(self.json("ls", self.directory / "checkpoint-0")), 1)

    def test_ls_reports_an_empty_directory_and_rejects_a_missing_one(self):
        self.directory.mkdir()
        self.assertIn("no checkpoint in", self.adaptdl("ls", self.directory))
        self.assertEqual(self.json("ls", self.directory), [])
        self.assertIn("No such file or directory", self.adaptdl("ls", self.root / "missing", code=1))
        self.assertIn("dir is required", self.adaptdl("ls", code=2).lower())

    def test_show_shows_a_checkpoint_or_the_newest_checkpoint_in_a_directory(self):
        self.save(2)
        shown = self.json("show", self.directory)
        self.assertEqual(shown["number"], 1)
        self.assertEqual([state["name"] for state in shown["states"]], ["generator", "model", "optimizer"])
        self.assertEqual(shown["size"], sum(state["size"] for state in shown["states"]))
        self.assertEqual(self.json("show", self.directory / "checkpoint-0")["number"], 0)
        shutil.copytree(self.directory / "checkpoint-0", self.root / "best")
        text = self.adaptdl("show", self.root / "best")
        for part in ("default/digits", "epoch 0, loss 0.125", "sizes match", "model.safetensors", "generator.rank0"):
            self.assertIn(part, text)

    def test_control_characters_in_job_and_directory_names_are_escaped(self):
        self.directory = self.root / "a\x1b[2J\u009b\u202e\nb"
        shown = r"a\x1b[2J\u009b\u202e\x0ab"
        self.save(1, job="default/\x1b]0;t\x07\n  status    complete\u2028")
        (self.directory / "checkpoint-1").write_text("no directory")
        self.assertIn(r"  job       default/\x1b]0;t\x07\x0a  status    complete\u2028" + "\n", self.adaptdl("show", self.directory / "checkpoint-0"))
        self.assertEqual(self.json("show", self.directory / "checkpoint-0")["job"], "default/\x1b]0;t\x07\n  status    complete\u2028")
        self.assertIn(f"{shown}/checkpoint-0: whole\n", self.adaptdl("verify", self.directory, code=1))
        self.assertRegex(self.adaptdl("ls", self.root / "a\x1b[2J", code=1), r"\Aadaptdl: error: [^\n\x1b]+\n\Z")

    def test_verify_reports_every_damaged_file(self):
        self.save(2)
        self.assertEqual(self.adaptdl("verify", self.directory).splitlines(),
                         [f"{self.directory}/checkpoint-1: whole", f"{self.directory}/checkpoint-0: whole"])
        self.damage(0, "model.safetensors")
        self.damage(0, "model.json")
        text = self.adaptdl("verify", self.directory, code=1)
        self.assertIn("checkpoint-0: damaged", text)
        self.assertIn("model.safetensors' is damaged: its checksum does not match", text)
        self.assertIn("model.json' is damaged", text)
        result = self.json("verify", self.directory, code=1)
        self.assertEqual([entry["whole"] for entry in result], [True, False])
        self.assertEqual(len(result[1]["problems"]), 2)
        self.adaptdl("verify", self.directory / "checkpoint-1")
        self.adaptdl("verify", self.directory / "checkpoint-0", code=1)

    def test_export_writes_valid_safetensors(self):
        self.save(2)
        out = self.root / "out.safetensors"
        self.adaptdl("export", self.directory, "-o", out)
        tensors = parse_safetensors(out)
        self.assertEqual(set(tensors), {"model/flags", "model/layers.0.weight", "model/steps", "model/nothing",
                                        "optimizer/momentum"})
        self.assertEqual(tensors["model/steps"], ("I64", [], [1]))
        self.assertEqual(tensors["optimizer/momentum"], ("I16", [2], [-1, 7]))
        self.json("export", self.directory / "checkpoint-0", "--state", "model", "--output", out)
        self.assertEqual(parse_safetensors(out)["steps"], ("I64", [], [0]))
        self.assertIn("has no state 'other'", self.adaptdl("export", self.directory, "-o", out, "--state", "other", code=1))
        self.damage(1, "model.safetensors")
        self.assertIn("damaged", self.adaptdl("export", self.directory, "-o", out, code=1))
        self.assertEqual(parse_safetensors(out)["steps"], ("I64", [], [0]))

    def test_prune_keeps_the_newest_undamaged_checkpoints(self):
        self.save(4)
        self.damage(3, "model.json")
        (self.directory / ".saving-9-1-dead").mkdir()
        names = [".saving-9-1-dead", "checkpoint-3", "checkpoint-0"]
        text = self.adaptdl("prune", self.directory, "--dry-run")
        self.assertEqual(text.splitlines(), [f"would delete {self.directory}/{name}" for name in names])
        self.assertEqual(len(list(self.directory.iterdir())), 5)
        result = self.json("prune", self.directory)
        self.assertEqual(result, {"deleted": [f"{self.directory}/{name}" for name in names], "dry_run": False})
        self.assertIn("nothing to delete", self.adaptdl("prune", self.directory))
        self.adaptdl("prune", self.directory, "--keep", "1")
        self.assertEqual([path.name for path in self.directory.iterdir()], ["checkpoint-2"])
        self.assertIn("must be at least 1, got 0", self.adaptdl("prune", self.directory, "--keep", "0", code=2))
        self.assertIn("is a checkpoint", self.adaptdl("prune", self.directory / "checkpoint-2", code=2))

    def test_a_checkpoint_in_a_newer_format_is_rejected_with_an_upgrade_hint(self):
        self.save(1)
        (self.directory / "checkpoint-0" / "manifest.json").write_text('{"format": 99}')
        for verb in ("verify", "show"):
            self.assertIn("written by a newer adaptdl, or is damaged; upgrade", self.adaptdl(verb, self.directory, code=1))


if __name__ == "__main__":
    unittest.main()
