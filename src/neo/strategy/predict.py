"""The worker's side of ``neo predict``: each rank writes the scores of its samples into a Parquet file of its own."""

from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from lightning.pytorch.callbacks import Callback
from typing_extensions import override

from neo.checkpoint.job import Job
from neo.config.run_config import RunConfig
from neo.data.batch import Batch
from neo.data.scores import SCORES, part_name
from neo.strategy.scoring import make_scoring

_ROWS_HELD = 65_536


def run_prediction(config: RunConfig, job: Job, *, run_dir: Path) -> None:
    """Score the validation samples as one rank, into a part in the folder ``job.out``.

    Raises:
        NeoError: Data, plan or checkpoint are wrong; the message says what to change.
    """
    writer = PartWriter(job.out, config.data.training_batch_size)
    scoring = make_scoring(config, run_dir=run_dir, checkpoint=job.checkpoint, doing="predicting", callbacks=(writer,))
    scoring.trainer.predict(scoring.module, scoring.loader, return_predictions=False)


class PartWriter(Callback):
    """Write this rank's logits and probabilities with the number of each sample in the data.

    Args:
        folder: Where the parts go.
        global_batch_size: Samples of a batch over all ranks.
    """

    def __init__(self, folder: Path, global_batch_size: int) -> None:
        self._folder = folder
        self._global_batch_size = global_batch_size
        self._writer: pq.ParquetWriter | None = None
        self._held: list[Any] = []
        self._num_held = 0

    @override
    def on_predict_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Open the file."""
        self._writer = pq.ParquetWriter(self._folder / part_name(trainer.global_rank), SCORES)

    @override
    def on_predict_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:  # fmt: skip
        """Keep the scores of a batch, and write when there are enough."""
        assert isinstance(batch, Batch)
        logits = outputs.float().cpu().numpy()
        first = batch.index * self._global_batch_size + batch.first_sample
        with np.errstate(over="ignore"):
            probabilities = 1.0 / (1.0 + np.exp(-logits.astype(np.float64)))
        columns = [np.arange(first, first + logits.size), logits, probabilities.astype(np.float32)]
        self._held.append(pa.record_batch(columns, schema=SCORES))
        self._num_held += logits.size
        if self._num_held >= _ROWS_HELD:
            self._write()

    @override
    def on_predict_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Write the rest and close the file."""
        self._write()
        assert self._writer is not None
        self._writer.close()

    def _write(self) -> None:
        assert self._writer is not None
        if self._held:
            self._writer.write_table(pa.Table.from_batches(self._held).combine_chunks())
        self._held, self._num_held = [], 0
