"""Reads checkpoints with only the standard library, as a tool in any language could."""
import json
import struct


def read_tensors(path):
    """Returns the tensors of a safetensors file as {name: (dtype, shape, bytes)}."""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    body = data[8 + length :]
    return {name: (info["dtype"], tuple(info["shape"]), body[slice(*info["data_offsets"])])
            for name, info in header.items() if name != "__metadata__"}


def parameters(checkpoints):
    """Returns the model's tensors from the newest checkpoint in the directory, as read_tensors() returns them."""
    newest = max(checkpoints.glob("checkpoint-*"), key=lambda path: int(path.name.split("-")[1]))
    tensors = read_tensors(newest / "adaptdl-dataparallel.safetensors")
    return {name: tensor for name, tensor in tensors.items() if name.startswith("model/")}


def largest_difference(one, other):
    """Returns the largest relative difference between two sets of 32-bit float tensors. Other tensors must be equal."""
    if one.keys() != other.keys():
        raise AssertionError(f"other tensors: {one.keys() ^ other.keys()}")
    largest = 0.0
    for name, tensor in one.items():
        if tensor == other[name]:
            continue
        if tensor[:2] != other[name][:2] or tensor[0] != "F32":
            raise AssertionError(f"{name} differs")
        pairs = zip(*(struct.unpack(f"<{len(data) // 4}f", data) for data in (tensor[2], other[name][2])))
        largest = max(largest, max(abs(a - b) / max(abs(b), 1e-12) for a, b in pairs))
    return largest
