from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch.callbacks import (
    EMAWeightAveraging,
    GradientAccumulationScheduler,
    ModelSummary,
    StochasticWeightAveraging,
)
from lightning.pytorch.plugins import MixedPrecision

from neo.errors import UnsupportedError
from neo.strategy.trainer_check import check_trainer


def trainer(**options: Any) -> pl.Trainer:
    quiet: dict[str, Any] = {"logger": False, "enable_progress_bar": False, "enable_checkpointing": False}
    return pl.Trainer(accelerator="cpu", devices=1, **(quiet | options))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"precision": "bf16-mixed"},
        {"gradient_clip_val": 0},
        {"accumulate_grad_batches": 1},
        {"callbacks": [GradientAccumulationScheduler({0: 1})]},
        {"callbacks": [ModelSummary()]},
    ],
    ids=["none", "bf16", "no clipping", "no accumulation", "accumulation of 1", "model summary"],
)
def test_supported_options_pass(options: dict[str, Any]) -> None:
    check_trainer(trainer(**options))


def _scaled() -> MixedPrecision:
    return MixedPrecision("16-mixed", "cpu", scaler=torch.amp.GradScaler("cpu"))


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    (
        "r14 accumulation",
        {"accumulate_grad_batches": 2},
        "accumulate_grad_batches: 2 is refused: every micro-batch updates the tables at once, which is not the step of "
        "the whole batch; use accumulate_grad_batches=1 and a larger batch",
    ),
    (
        "r14 accumulation that begins later",
        {"callbacks": [GradientAccumulationScheduler({0: 1, 4: 2})]},
        "callbacks: GradientAccumulationScheduler is refused: every micro-batch updates the tables at once, which is "
        "not the step of the whole batch; use accumulate_grad_batches=1 and a larger batch",
    ),
    (
        "r15 clipping by norm",
        {"gradient_clip_val": 0.5},
        "gradient_clip_val: 0.5 is refused: the tables are updated during the backward, before a norm over all "
        "gradients is known; use gradient_clip_val=None, and lower learning rates where gradients explode",
    ),
    (
        "r15 clipping by value",
        {"gradient_clip_val": 0.25, "gradient_clip_algorithm": "value"},
        "gradient_clip_val: 0.25 is refused: the tables are updated during the backward, with gradients that were not "
        "clipped; use gradient_clip_val=None, and lower learning rates where gradients explode",
    ),
    (
        "16-mixed",
        {"plugins": [_scaled()]},
        "precision: '16-mixed' is refused: its loss scaler would multiply the gradients that the fused sparse update "
        "consumes; use 32-true or bf16-mixed",
    ),
    (
        "16-true",
        {"precision": "16-true"},
        "precision: '16-true' is refused: half-precision weights lose small updates; use 32-true or bf16-mixed",
    ),
    (
        "bf16-true",
        {"precision": "bf16-true"},
        "precision: 'bf16-true' is refused: half-precision weights lose small updates; use 32-true or bf16-mixed",
    ),
    (
        "64-true",
        {"precision": "64-true"},
        "precision: '64-true' is refused: it was not tested against the reference; use 32-true or bf16-mixed",
    ),
    (
        "averaging at the end",
        {"callbacks": [StochasticWeightAveraging(swa_lrs=0.1)]},
        "callbacks: StochasticWeightAveraging is refused: it averages the dense part over the steps and leaves the "
        "tables as they are, so that the halves would not fit; leave it out",
    ),
    (
        "a moving average",
        {"callbacks": [EMAWeightAveraging()]},
        "callbacks: EMAWeightAveraging is refused: it averages the dense part over the steps and leaves the tables as "
        "they are, so that the halves would not fit; leave it out",
    ),
]


@pytest.mark.parametrize(("options", "message"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED])
def test_r14_r15_what_would_train_another_model_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UnsupportedError) as error:
        check_trainer(trainer(**options))
    assert str(error.value).splitlines() == ["NeoStrategy cannot train with these options:", f"  {message}"]


_TOGETHER: list[tuple[dict[str, Any], str]] = [
    ({"accumulate_grad_batches": 4}, "accumulate_grad_batches: 4"),
    ({"gradient_clip_val": 1.0}, "gradient_clip_val: 1.0"),
    ({"plugins": [_scaled()]}, "precision: '16-mixed'"),
]


@pytest.mark.parametrize("chosen", [(0, 1), (0, 2), (1, 2), (0, 1, 2)], ids=str)
def test_r14_r15_every_combination_is_refused_with_every_reason(chosen: tuple[int, ...]) -> None:
    """No option makes another one exact, so a combination is refused for each of its parts."""
    options = {name: value for index in chosen for name, value in _TOGETHER[index][0].items()}
    with pytest.raises(UnsupportedError) as error:
        check_trainer(trainer(**options))
    lines = str(error.value).splitlines()[1:]
    assert [line.strip().partition(" is refused")[0] for line in lines] == [_TOGETHER[index][1] for index in chosen]


def test_on_the_cpu_lightning_itself_replaces_16_mixed() -> None:
    """The Trainer then says bf16-mixed, which is supported; the user is warned by Lightning."""
    with pytest.warns(UserWarning, match="AMP with fp16 is not supported on CPU"):
        asked = trainer(precision="16-mixed")
    assert asked.precision == "bf16-mixed"
    check_trainer(asked)
