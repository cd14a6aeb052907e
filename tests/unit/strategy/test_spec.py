"""R14, R15: what would make another model is refused when the configuration is read, with the reason."""

import pytest

from neo.config.check import check_command_line
from neo.config.composition import ConfigSource
from neo.config.purpose import Purpose
from neo.config.store import register

ACCUMULATION = (
    "accumulation is refused: the sparse optimizers update at every batch, so the result would differ from that of the "
    "larger batch; raise data.global_batch_size"
)
CLIPPING = (
    "clipping is refused: the fused sparse update is done before a gradient norm is known; "
    "lower optim.sparse.lr and optim.dense.lr"
)
SCALER = (
    "'16-mixed' is refused: its loss scaler would multiply the gradients that the fused sparse optimizers consume; "
    "use bf16-mixed or 32-true"
)


def findings(*overrides: str) -> list[str]:
    register()
    found = check_command_line(overrides, ConfigSource(), purpose=Purpose.TRAIN, multirun=False)
    return [str(finding) for finding in found]


@pytest.mark.parametrize("prefix", ["", "+", "++"])
@pytest.mark.parametrize(
    ("override", "reason"),
    [
        ("trainer.accumulate_grad_batches=2", ACCUMULATION),
        ("trainer.gradient_accumulation_steps=2", ACCUMULATION),
        ("trainer.gradient_clip_val=0.5", CLIPPING),
        ("trainer.gradient_clip_algorithm=value", CLIPPING),
        ("optim.dense.max_grad_norm=1", CLIPPING),
        ("optim.sparse.max_gradient=1", CLIPPING),
    ],
)
def test_r14_r15_accumulation_and_clipping_are_refused(prefix: str, override: str, reason: str) -> None:
    assert findings(prefix + override) == [f"{override.partition('=')[0]}: {reason}"]


@pytest.mark.parametrize(
    ("override", "value"),
    [
        ("trainer.accumulate_grad_batches=1", "1"),
        ("+trainer.gradient_accumulation_steps=null", "null"),
        ("trainer.gradient_clip_val=0", "0"),
        ("trainer.gradient_clip_val=0.0", "0.0"),
        ("++trainer.gradient_clip_val=null", "null"),
        ("trainer.gradient_clip_algorithm=null", "null"),
        ("optim.dense.max_grad_norm=0", "0"),
    ],
)
def test_r14_r15_what_asks_for_nothing_is_only_left_out(override: str, value: str) -> None:
    key = override.partition("=")[0].lstrip("+")
    assert findings(override) == [
        f"{key}: {value} is what neo always does, and there is no such key; leave the key out"
    ]


@pytest.mark.parametrize("value", ["gradient_clip_val=true", "accumulate_grad_batches=0", "gradient_clip_val=-1"])
def test_r14_r15_other_values_ask_for_something(value: str) -> None:
    assert " is refused: " in findings(f"trainer.{value}")[0]


@pytest.mark.parametrize("precision", ["16-true", "bf16-true"])
def test_half_precision_weights_are_refused_with_the_reason(precision: str) -> None:
    assert findings(f"trainer.precision={precision}") == [
        f"trainer.precision: '{precision}' is refused: half-precision weights lose small updates; "
        "use bf16-mixed or 32-true"
    ]


@pytest.mark.parametrize("purpose", list(Purpose))
def test_16_mixed_is_refused(purpose: Purpose) -> None:
    register()
    overrides = ["trainer.precision=16-mixed"]
    found = check_command_line(overrides, ConfigSource(), purpose=purpose, multirun=False)
    assert [str(finding) for finding in found] == [f"trainer.precision: {SCALER}"]


def test_r14_r15_a_combination_is_refused_for_each_of_its_parts() -> None:
    asked = ("trainer.accumulate_grad_batches=2", "trainer.gradient_clip_val=0.5", "trainer.precision=16-mixed")
    assert findings(*asked) == [
        f"trainer.accumulate_grad_batches: {ACCUMULATION}",
        f"trainer.gradient_clip_val: {CLIPPING}",
        f"trainer.precision: {SCALER}",
    ]
