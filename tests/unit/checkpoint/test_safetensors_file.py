"""What is written block by block is what the library reads."""

from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file

from neo.checkpoint.safetensors_file import StoredTensor, write_safetensors


def test_the_library_reads_what_was_written_block_by_block(tmp_path: Path) -> None:
    table = torch.randn(1000, 3)
    tensors = {
        "embeddings.users": table,
        "half": torch.randn(5, 2).half(),
        "brain": torch.randn(7).bfloat16(),
        "ids": torch.arange(4) * 2**40,
        "empty": torch.empty(0, 4),
        "one": torch.tensor(3.5),
        "turned": torch.randn(3, 2).T,
    }
    stored = [StoredTensor.of(name, tensor) for name, tensor in tensors.items()]
    stored[0] = StoredTensor("embeddings.users", table.dtype, (1000, 3), lambda: table.split(301))
    counted: list[int] = []
    write_safetensors(tmp_path / "all", stored, metadata={"step": "7"}, written=counted.append)
    found = load_file(tmp_path / "all")
    assert set(found) == set(tensors)
    for name, tensor in tensors.items():
        assert found[name].dtype is tensor.dtype
        assert torch.equal(found[name], tensor)
    assert sum(counted) == sum(tensor.nbytes for tensor in tensors.values())
    with safe_open(tmp_path / "all", framework="pt") as file:
        assert file.metadata() == {"step": "7"}


def test_blocks_are_converted(tmp_path: Path) -> None:
    table = torch.randn(10, 2)
    write_safetensors(tmp_path / "all", [StoredTensor("t", torch.float16, (10, 2), lambda: table.split(4))])
    assert torch.equal(load_file(tmp_path / "all")["t"], table.half())
