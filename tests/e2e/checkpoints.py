"""Reads checkpoints with nothing but the standard library, as any tool in any language can."""
import json
import struct


def read_tensors(path):
    """The tensors of a safetensors file: name -> (dtype, shape, bytes)."""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    body = data[8 + length :]
    return {name: (info["dtype"], tuple(info["shape"]), body[slice(*info["data_offsets"])])
            for name, info in header.items() if name != "__metadata__"}
