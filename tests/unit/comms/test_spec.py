"""``comms.*``: what is chosen, and the text of every mistake."""

import pytest

from neo.comms.spec import CommsConfig, CommsSpec, ExchangeMode


def test_codecs_of_the_two_ways_are_chosen_apart() -> None:
    config = CommsConfig(forward="bf16", backward="fp16", loss_scale=1024.0, exchange="flat")
    assert config.validate() == []
    assert config.to_spec() == CommsSpec("bf16", "fp16", 1024.0, ExchangeMode.FLAT)


@pytest.mark.parametrize(
    ("config", "finding"),
    [
        (CommsConfig(forward="fp8"), "forward: 'fp8' is not a codec; did you mean 'fp32'? Choices: bf16, fp16, fp32, "
         "int8"),
        (CommsConfig(backward="q"), "backward: 'q' is not a codec; Choices: bf16, fp16, fp32, int8"),
        (CommsConfig(exchange="ring"), "exchange: 'ring' is not an exchange; Choices: auto, flat, hierarchical"),
        (CommsConfig(loss_scale=-1.0), "loss_scale: -1.0 is outside [2^-32, 2^64], and is not null"),
        (CommsConfig(loss_scale=float("inf")), "loss_scale: inf is outside [2^-32, 2^64], and is not null"),
        (
            CommsConfig(backward="bf16", loss_scale=4.0),
            "loss_scale: 4.0 has no effect on gradients that travel in 'bf16'; leave it out, or use "
            "comms.backward=fp16",
        ),
        (CommsConfig(loss_scale=float("nan")), "loss_scale: nan is outside [2^-32, 2^64], and is not null"),
    ],
)  # fmt: skip
def test_every_mistake_is_named(config: CommsConfig, finding: str) -> None:
    assert [str(found) for found in config.validate()] == [finding]
