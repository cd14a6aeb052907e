from typing import Any

import lightning.pytorch as pl
import pytest
from lightning.pytorch.callbacks import GradientAccumulationScheduler

from neo.errors import UnsupportedError
from neo.strategy.trainer_check import check_trainer


def trainer(**options: Any) -> pl.Trainer:
    quiet: dict[str, Any] = {"logger": False, "enable_progress_bar": False, "enable_checkpointing": False}
    return pl.Trainer(accelerator="cpu", devices=1, **(quiet | options))


@pytest.mark.parametrize("options", [{}, {"precision": "bf16-mixed"}, {"gradient_clip_val": 0}])
def test_supported_options_pass(options: dict[str, Any]) -> None:
    check_trainer(trainer(**options))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"accumulate_grad_batches": 2}, "accumulate_grad_batches: 2 is refused: every micro-batch updates the tables"),
        ({"gradient_clip_val": 0.5}, "gradient_clip_val: 0.5 is refused: the tables are updated during the backward"),
        ({"precision": "bf16-true"}, "precision: 'bf16-true' is refused: half-precision weights lose small updates"),
        ({"precision": "64-true"}, "precision: '64-true' is refused: it was not tested against the reference"),
        (
            {"callbacks": [GradientAccumulationScheduler({0: 1, 4: 2})]},
            "callbacks: GradientAccumulationScheduler is refused",
        ),
    ],
)
def test_what_would_train_another_model_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UnsupportedError, match="NeoStrategy cannot train with these options") as error:
        check_trainer(trainer(**options))
    assert message in str(error.value)


def test_every_mistake_is_told_at_once() -> None:
    with pytest.raises(UnsupportedError) as error:
        check_trainer(trainer(accumulate_grad_batches=4, gradient_clip_val=1.0, precision="16-true"))
    assert str(error.value).count("is refused") == 3
