"""Lightning's hints and advertisements, kept off the screen; its warnings that matter stay."""

import logging
import warnings

_CHATTER = (
    "GPU available",
    "Using bfloat16 Automatic Mixed Precision",
    "TPU available",
    "HPU available",
    "IPU available",
    "💡 Tip",
    "Tip: ",
    "`Trainer.fit` stopped",
    "Restored all states",
    "Loaded model weights",
    "LOCAL_RANK",
    "Initializing distributed",
    "All distributed processes registered",
    "distributed_backend",
    "Your model can run with static graph",
    "was configured so",
    "You defined a `validation_step` but have no `val_dataloader`",
)
_WARNINGS = (
    ".*does not have many workers which may be a bottleneck.*",
    ".*You defined a `validation_step` but have no `val_dataloader`.*",
    ".*Experiment logs directory .* exists and is not empty.*",
    ".*`max_epochs` was not set.*",
    ".*TreeSpec.* is deprecated.*",
    ".*resuming from a checkpoint that ended before the epoch ended.*",  # Ours goes on at the sample.
    ".*callbacks used to create the checkpoint need to be provided.*",  # Those that matter are always there.
)


class _WithoutChatter(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        return not any(part in text for part in _CHATTER) and set(text) - set("-\n ") != set()


def silence_lightning() -> None:
    """Drop what Lightning says that helps nobody who trains with neo. Call it before the ``Trainer`` is made."""
    for name in (
        "lightning.pytorch.utilities.rank_zero",
        "lightning.fabric.utilities.distributed",
        "lightning.pytorch",
    ):
        logger = logging.getLogger(name)
        for target in (logger, *logger.handlers):
            target.addFilter(_WithoutChatter())
    for message in _WARNINGS:
        warnings.filterwarnings("ignore", message=message)
