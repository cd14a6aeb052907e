"""One rank of neo's side: a plain LightningModule under ``Trainer(strategy=NeoStrategy(...))``; started by torchrun."""

import argparse
import logging
import warnings

import lightning.pytorch as pl
import torch
from torch import Tensor, nn
from workload import CASES, NUM_DENSE, Clock, Inputs, Workload, make_inputs, run_rank

import neo
from neo import NeoStrategy, SparseFeatures, SparseOptimizerSpec, TableSpec
from neo.models.dlrm import DLRM
from neo.sharded.embedding_bag_collection import EmbeddingBagCollection

Sample = tuple[Tensor, SparseFeatures, Tensor]


class Module(pl.LightningModule):
    """The benchmark's DLRM with a clock at the end of every step."""

    def __init__(self, case: Workload, clock: Clock) -> None:
        super().__init__()
        tables = [TableSpec(f"t{i}", case.rows, case.dim, (f"f{i}",)) for i in range(case.num_tables)]
        embeddings = EmbeddingBagCollection(tables, optimizer=SparseOptimizerSpec("rowwise_adagrad", lr=0.01))
        self.model = DLRM(embeddings, num_dense=NUM_DENSE, bottom_mlp=case.bottom_mlp, top_mlp=case.top_mlp)
        self._clock = clock

    def training_step(self, batch: Sample, batch_idx: int) -> Tensor:
        dense, sparse, labels = batch
        return nn.functional.binary_cross_entropy_with_logits(self.model(dense, sparse), labels)

    def on_train_batch_end(self, *args: object) -> None:
        self._clock.tick()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD([{"params": self.parameters()}, self.model.embeddings.sparse_parameter_group()], lr=0.01)


class Repeated:
    """The prepared batches in turn, ``steps`` of them, with the lengths and ids checked as for any batch."""

    def __init__(self, inputs: list[Inputs], case: Workload, steps: int) -> None:
        self._inputs, self._steps = inputs, steps
        self._keys = [f"f{i}" for i in range(case.num_tables)]

    def __len__(self) -> int:
        return self._steps

    def __iter__(self):  # type: ignore[no-untyped-def]
        for step in range(self._steps):
            batch = self._inputs[step % len(self._inputs)]
            yield batch.dense, SparseFeatures(self._keys, batch.lengths, batch.values), batch.labels


def train(arguments: argparse.Namespace, rank: int, world_size: int) -> None:
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore")
    case, clock = CASES[arguments.case], Clock(arguments.warmup)
    steps = arguments.steps + arguments.warmup
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=world_size,
        strategy=NeoStrategy(
            sharding="table_wise", backend="fbgemm", forward_sync_buffers=False, gradient_as_bucket_view=True
        ),
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
    )
    trainer.fit(Module(case, clock), Repeated(make_inputs(case, rank, world_size), case, steps))
    if rank == 0:
        clock.report(f"neo {neo.__version__}, torch {torch.__version__}")
    trainer.strategy.barrier()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    run_rank(train)
