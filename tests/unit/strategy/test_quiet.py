import logging
import warnings

import pytest

from neo.strategy.quiet import silence_lightning

NAME = "lightning.pytorch.utilities.rank_zero"


@pytest.fixture(autouse=True)
def _restored(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (NAME, "lightning.fabric.utilities.distributed", "lightning.pytorch"):
        monkeypatch.setattr(logging.getLogger(name), "filters", [])
        for handler in logging.getLogger(name).handlers:
            monkeypatch.setattr(handler, "filters", [])


def passes(text: str) -> bool:
    record = logging.LogRecord(NAME, logging.INFO, "f", 1, text, None, None)
    return bool(logging.getLogger(NAME).filter(record))


def test_hints_are_dropped_and_the_rest_stays() -> None:
    assert passes("GPU available: False, used: False")
    with warnings.catch_warnings():
        silence_lightning()
    assert not passes("GPU available: False, used: False")
    assert not passes("💡 Tip: For seamless cloud logging, try this")
    assert not passes("-" * 100 + "\n")
    assert passes("Detected KeyboardInterrupt, attempting graceful shutdown ...")


def test_only_hints_are_taken_out_of_the_warnings() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        silence_lightning()
        warnings.warn(
            "The 'train_dataloader' does not have many workers which may be a bottleneck. Consider", stacklevel=1
        )
        warnings.warn("something that matters", stacklevel=1)
    assert [str(warning.message) for warning in caught] == ["something that matters"]
