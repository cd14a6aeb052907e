"""Blocks of logical tensors through torch.distributed.checkpoint: which rank writes what, and who reads which part."""

import io
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint.default_planner import create_default_global_save_plan
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import (
    LoadPlan,
    LoadPlanner,
    ReadItem,
    SavePlan,
    SavePlanner,
    TensorWriteData,
    WriteItem,
    WriteItemType,
)
from torch.distributed.checkpoint.planner_helpers import create_read_items_for_chunk_list

from neo.checkpoint.blocks import Block
from neo.errors import CheckpointError


class BlockSavePlanner(SavePlanner):
    """Write blocks, each as one chunk of its logical tensor.

    Args:
        blocks: This rank's.
    """

    def __init__(self, blocks: Sequence[Block]) -> None:
        self._blocks = {(block.name, torch.Size(block.offsets)): block for block in blocks}

    def set_up_planner(self, state_dict: Any, storage_meta: Any = None, is_coordinator: bool = False) -> None:
        """Do nothing: the blocks are known."""

    def create_local_plan(self) -> SavePlan:
        """Return an item for each block."""
        return SavePlan([_write_item(block) for block in self._blocks.values()])

    def create_global_plan(self, all_plans: list[SavePlan]) -> tuple[list[SavePlan], Metadata]:
        """Join the blocks of all ranks."""
        return create_default_global_save_plan(all_plans)

    def finish_plan(self, new_plan: SavePlan) -> SavePlan:
        """Return the plan as it is."""
        return new_plan

    def resolve_data(self, write_item: WriteItem) -> Tensor:
        """Return the memory of a block."""
        assert write_item.index.offset is not None
        return self._blocks[(write_item.index.fqn, write_item.index.offset)].tensor.detach()


class BlockLoadPlanner(LoadPlanner):
    """Read blocks in place, whatever chunks they were written in.

    Args:
        blocks: What this rank wants.
    """

    def __init__(self, blocks: Sequence[Block]) -> None:
        self._wanted: dict[str, list[Block]] = {}
        for block in blocks:
            self._wanted.setdefault(block.name, []).append(block)
        self._metadata: Metadata | None = None

    def set_up_planner(self, state_dict: Any, metadata: Metadata | None = None, is_coordinator: bool = False) -> None:
        """Take what the checkpoint holds."""
        self._metadata = metadata

    def create_local_plan(self) -> LoadPlan:
        """Return the parts of chunks that fill the blocks.

        Raises:
            CheckpointError: The checkpoint lacks a tensor, or a part of one.
        """
        assert self._metadata is not None
        items = []
        for name, blocks in self._wanted.items():
            held = self._metadata.state_dict_metadata.get(name)
            if not isinstance(held, TensorStorageMetadata) or tuple(held.size) != blocks[0].size:
                size = None if held is None else list(getattr(held, "size", ()))
                raise CheckpointError(
                    f"the checkpoint holds '{name}' with the shape {size}, not {list(blocks[0].size)}"
                )
            chunks = [ChunkStorageMetadata(torch.Size(block.offsets), block.tensor.size()) for block in blocks]
            found = create_read_items_for_chunk_list(name, held, chunks)
            read, asked = sum(math.prod(item.lengths) for item in found), sum(block.tensor.numel() for block in blocks)
            if read != asked:
                raise CheckpointError(f"the checkpoint holds {read} of {asked} wanted elements of '{name}'")
            items += found
        return LoadPlan(items)

    def create_global_plan(self, global_plan: list[LoadPlan]) -> list[LoadPlan]:
        """Return the plans as they are."""
        return global_plan

    def finish_plan(self, central_plan: LoadPlan) -> LoadPlan:
        """Return the plan as it is."""
        return central_plan

    def load_bytes(self, read_item: ReadItem, value: io.BytesIO) -> None:
        """Refuse: blocks are tensors."""
        raise AssertionError(f"'{read_item.dest_index.fqn}' is no tensor")

    def resolve_tensor(self, read_item: ReadItem) -> Tensor:
        """Return the memory that a part is read into."""
        index = read_item.dest_index.index
        assert index is not None
        target = self._wanted[read_item.dest_index.fqn][index].tensor.detach()
        for dimension, (begin, length) in enumerate(zip(read_item.dest_offsets, read_item.lengths, strict=True)):
            target = target.narrow(dimension, begin, length)
        return target

    def commit_tensor(self, read_item: ReadItem, tensor: Tensor) -> None:
        """Do nothing: the part was read in place."""


def _write_item(block: Block) -> WriteItem:
    offsets = torch.Size(block.offsets)
    return WriteItem(
        index=MetadataIndex(block.name, offsets),
        type=WriteItemType.SHARD,
        tensor_data=TensorWriteData(
            chunk=ChunkStorageMetadata(offsets=offsets, sizes=block.tensor.size()),
            properties=TensorProperties(dtype=block.tensor.dtype),
            size=torch.Size(block.size),
        ),
    )
