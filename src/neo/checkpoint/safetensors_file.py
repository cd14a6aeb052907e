"""Writing a safetensors file whose tensors are larger than memory: block by block, in the order of the header.

The format: https://huggingface.co/docs/safetensors — 8 bytes with the length of a JSON header, the header with type,
shape and place of each tensor, then their bytes.
"""

import json
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path

import torch
from torch import Tensor

_TYPES = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.float64: "F64", torch.int64: "I64"}
_ALIGNMENT = 8


@dataclass(frozen=True)
class StoredTensor:
    """A tensor of the file.

    Attributes:
        name: Its name.
        dtype: Its type in the file.
        shape: Its shape.
        blocks: Gives its rows, in order, in blocks of any size; called once.
    """

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    blocks: Callable[[], Iterable[Tensor]]

    @classmethod
    def of(cls, name: str, tensor: Tensor) -> "StoredTensor":
        """Return a tensor that is in memory already."""
        return cls(name, tensor.dtype, tuple(tensor.shape), lambda: (tensor,))

    @property
    def num_bytes(self) -> int:
        """Its size in the file."""
        return prod(self.shape) * self.dtype.itemsize


def write_safetensors(
    path: Path,
    tensors: Sequence[StoredTensor],
    *,
    metadata: Mapping[str, str] | None = None,
    written: Callable[[int], None] = lambda num_bytes: None,
) -> None:
    """Write the file; at any time one block is held.

    Args:
        path: The file.
        tensors: What it holds; names are unique.
        metadata: More texts for the header.
        written: Told how many bytes each block had.
    """
    header: dict[str, object] = {"__metadata__": dict(metadata)} if metadata else {}
    end = 0
    for tensor in tensors:
        begin, end = end, end + tensor.num_bytes
        header[tensor.name] = {
            "dtype": _TYPES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [begin, end],
        }
    text = json.dumps(header, ensure_ascii=False).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)))
        file.write(text)
        for tensor in tensors:
            num_bytes = 0
            for block in tensor.blocks():
                flat = block.detach().to(tensor.dtype).contiguous().flatten().cpu().view(torch.uint8)
                file.write(flat.numpy().data)
                num_bytes += flat.numel()
                written(flat.numel())
            assert num_bytes == tensor.num_bytes, f"{tensor.name}: {num_bytes} of {tensor.num_bytes} bytes"
