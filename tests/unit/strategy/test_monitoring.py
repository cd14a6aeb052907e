"""Step times, progress and summary, without a trainer's loop."""

import io
import json
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from rich.console import Console

from neo.data.synthetic import Attainable
from neo.errors import DivergedError
from neo.metrics.binary import BinaryReport, NoAuc
from neo.strategy.callbacks import StepMeter, Throughput, TrainLog
from neo.strategy.lightning_module import RecommendationModule
from neo.strategy.progress_bar import ProgressBar, total_steps
from neo.strategy.progress_file import ProgressFile
from neo.strategy.summary import CommsUsed, RunOutcome, print_summary, write_summary
from neo.strategy.traffic import TrafficPerStep

OUTCOME = RunOutcome(
    world_size=2,
    steps=10,
    samples=20_480,
    throughput=Throughput(125_000.0, 0.016, 0.015, 0.02),
    train_loss=0.51,
    val=BinaryReport(0.8371, 1e-5, 0.45, 0.7258, 0.787, 1.01, 100_000),
    attainable=Attainable(0.8436, 0.7131),
    planned_for="2 ZionEX accelerators",
    executed_on="2 CPU processes (gloo)",
    plan_fingerprint="p",
    config_fingerprint="c",
    fallbacks=("table a: reference instead of fbgemm",),
    out_of_range={"a": 0, "b": 3},
    comms=CommsUsed("fp32", "fp32", "flat", None),
    optimizer="sgd",
    weights_dtype="fp32",
    column_wise_semantics="per_shard",
)


def fake_trainer(step: int, **options: Any) -> Any:
    known = {"max_epochs": 2, "max_steps": -1, "num_training_batches": 10, "is_global_zero": True, "global_step": step}
    known |= {"world_size": 1, "global_rank": 0}
    return SimpleNamespace(**(known | options))


def fake_module(monkeypatch: pytest.MonkeyPatch, samples: int = 64) -> Any:
    monkeypatch.setattr(RecommendationModule, "last_global_samples", samples)
    module = object.__new__(RecommendationModule)
    torch.nn.Module.__init__(module)
    module._device = torch.device("cpu")
    module.last_loss_sum, module.last_samples = torch.tensor(16.0), 32
    module.dense_names, module.last_dense = ("price",), torch.zeros(32, 1)
    return module


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    return now


def run_steps(meter: StepMeter, module: Any, clock: list[float], times_s: list[float]) -> None:
    meter.on_train_epoch_start(fake_trainer(0), module)
    for step, step_s in enumerate(times_s, start=1):
        clock[0] += step_s
        meter.on_train_batch_end(fake_trainer(step), module, None, None, 0)


def test_throughput_is_the_median_after_the_warm_up(monkeypatch: pytest.MonkeyPatch, clock: list[float]) -> None:
    meter = StepMeter(warmup_steps=2)
    run_steps(meter, fake_module(monkeypatch), clock, [9.0, 9.0, 1.0, 2.0, 4.0])
    assert meter.throughput() == Throughput(32.0, 2.0, 1.0, 4.0)
    assert meter.samples == 5 * 64
    assert meter.recent_samples_per_s() == pytest.approx(3 * 64 / 7)


def test_a_validation_belongs_to_no_step(monkeypatch: pytest.MonkeyPatch, clock: list[float]) -> None:
    meter, module = StepMeter(warmup_steps=0), fake_module(monkeypatch)
    run_steps(meter, module, clock, [1.0])
    clock[0] += 0.25
    meter.on_validation_start(fake_trainer(1), module)
    clock[0] += 100.0
    meter.on_validation_end(fake_trainer(1), module)
    clock[0] += 0.5
    meter.on_train_batch_end(fake_trainer(2), module, None, None, 0)
    assert meter.recent_step_s() == pytest.approx((1.0 + 0.75) / 2)


def test_many_fallbacks_are_counted() -> None:
    lines = printed(replace(OUTCOME, fallbacks=tuple(f"f{n}" for n in range(15)))).splitlines()
    assert lines[-2:] == ["fallback: f11", "3 more fallbacks; summary.json lists them all"]


def test_no_step_after_the_warm_up_is_no_number() -> None:
    assert StepMeter(warmup_steps=5).throughput() == Throughput(None, None, None, None)
    assert StepMeter(warmup_steps=5).recent_samples_per_s() is None


@pytest.mark.parametrize(
    ("options", "total"),
    [
        ({}, 20),
        ({"max_steps": 7}, 7),
        ({"max_epochs": -1, "max_steps": 7}, 7),
        ({"num_training_batches": float("inf"), "max_steps": 7}, 7),
        ({"num_training_batches": float("inf")}, float("inf")),
    ],
)
def test_total_steps(options: dict[str, Any], total: float) -> None:
    assert total_steps(fake_trainer(0, **options)) == total


def test_without_a_terminal_there_are_few_lines(monkeypatch: pytest.MonkeyPatch, clock: list[float]) -> None:
    output = io.StringIO()
    meter = StepMeter(warmup_steps=0)
    bar = ProgressBar(meter, console=Console(file=output, width=100))
    module = fake_module(monkeypatch)
    run_steps(meter, module, clock, [0.5] * 19)
    bar.on_train_start(fake_trainer(0), module)
    for step in range(1, 21):
        bar.on_train_batch_end(fake_trainer(step), module, None, None, 0)
    assert output.getvalue() == "step 20/20  loss 0.5000  128 samples/s\n"


@pytest.mark.parametrize(("world_size", "loss"), [(1, "loss 0.5000"), (2, "loss 0.5000 (rank 0)")])
def test_the_loss_of_one_rank_is_named_so(
    world_size: int, loss: str, monkeypatch: pytest.MonkeyPatch, clock: list[float]
) -> None:
    output = io.StringIO()
    meter = StepMeter(warmup_steps=0)
    module = fake_module(monkeypatch)
    run_steps(meter, module, clock, [0.5] * 10)
    bar = ProgressBar(meter, console=Console(file=output, width=100))
    bar.on_train_batch_end(fake_trainer(10, world_size=world_size), module, None, None, 0)
    assert output.getvalue() == f"step 10/20  {loss}  128 samples/s  0:00:05 left\n"


@pytest.mark.parametrize("loss", [float("nan"), float("inf")])
def test_a_loss_that_is_not_finite_ends_the_run(loss: float, monkeypatch: pytest.MonkeyPatch) -> None:
    log = TrainLog(StepMeter(warmup_steps=0), every_n_steps=10)
    module = fake_module(monkeypatch)
    module.last_loss_sum = torch.tensor(loss)
    log.on_train_batch_end(fake_trainer(9), module, None, None, 0)  # not looked at: no exchange at every step
    expected = (
        r"^the training loss of step 10 is not finite \(rank 0\): the training has diverged at this step or before it; "
        r"now stage dense forward: every input, table and parameter is finite, so the dense part has computed a number "
        r"beyond its type; "
        r"lower optim\.sparse\.lr or optim\.dense\.lr, or check the data$"
    )
    with pytest.raises(DivergedError, match=expected):
        log.on_train_batch_end(fake_trainer(10), module, None, None, 0)
    with pytest.raises(DivergedError, match=expected):
        log.on_train_end(fake_trainer(10), module)
    with pytest.raises(DivergedError, match=expected):
        log.on_validation_start(fake_trainer(10, state=SimpleNamespace(fn="fit")), module)
    log.on_validation_start(fake_trainer(10, state=SimpleNamespace(fn="validate")), module)


def test_on_a_terminal_there_is_a_bar(monkeypatch: pytest.MonkeyPatch, clock: list[float]) -> None:
    output = io.StringIO()
    meter = StepMeter(warmup_steps=0)
    bar = ProgressBar(meter, console=Console(file=output, width=100, force_terminal=True))
    module = fake_module(monkeypatch)
    bar.on_train_start(fake_trainer(0), module)
    bar.on_validation_start(fake_trainer(20), module)
    bar.on_train_batch_end(fake_trainer(20), module, None, None, 0)
    bar.on_train_end(fake_trainer(20), module)
    bar.on_exception(fake_trainer(20), module, ValueError())
    assert "20/20" in output.getvalue()
    assert "validating" in output.getvalue()


def test_a_validation_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    output = io.StringIO()
    module = fake_module(monkeypatch)
    module.report = OUTCOME.val
    ProgressBar(StepMeter(warmup_steps=0), console=Console(file=output, width=100)).on_validation_end(
        fake_trainer(20), module
    )
    assert output.getvalue() == "validated after step 20  AUC 0.8371  normalized entropy 0.7258  log loss 0.4500\n"


def test_other_ranks_show_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    output = io.StringIO()
    bar = ProgressBar(StepMeter(warmup_steps=0), console=Console(file=output))
    bar.on_train_batch_end(fake_trainer(20, is_global_zero=False), fake_module(monkeypatch), None, None, 0)
    assert output.getvalue() == ""


def test_the_summary_holds_the_contract(tmp_path: Path) -> None:
    summary = OUTCOME.to_dict({"torch": "2.13"})
    write_summary(tmp_path / "summary.json", summary)
    written = json.loads((tmp_path / "summary.json").read_text())
    assert written == summary
    assert written["step_time_s"] == {"median": 0.016, "p10": 0.015, "p90": 0.02}
    assert written["val"]["auc"] == 0.8371
    assert written["data"] == {"out_of_range": {"b": 3}, "attainable_auc": 0.8436, "attainable_ne": 0.7131}
    expected = "status world_size steps samples samples_per_s train_loss planned_for executed_on fallbacks versions"
    assert set(expected.split()) < set(written)
    assert replace(OUTCOME, val=None, attainable=None).to_dict({})["val"] is None


def test_the_summary_is_json_whatever_happened(tmp_path: Path) -> None:
    val = replace(cast(BinaryReport, OUTCOME.val), auc=None, log_loss=float("inf"), no_auc=NoAuc.NOT_FINITE)
    outcome = replace(OUTCOME, train_loss=float("nan"), val=val, throughput=Throughput(None, float("inf"), None, None))
    write_summary(tmp_path / "summary.json", outcome.to_dict({}))
    text = (tmp_path / "summary.json").read_text()
    assert "NaN" not in text and "Infinity" not in text
    written = json.loads(text)
    assert (written["train_loss"], written["val"]["log_loss"], written["step_time_s"]["median"]) == (None, None, None)
    assert written["val"]["no_auc"] == "logits are not finite"


def test_each_validation_leaves_what_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: list[float]
) -> None:
    path = tmp_path / "progress.json"
    meter = StepMeter(warmup_steps=0)
    log = TrainLog(meter, every_n_steps=100)
    module = fake_module(monkeypatch)
    module.report = OUTCOME.val
    run_steps(meter, module, clock, [0.5] * 10)
    log.on_validation_start(fake_trainer(10, state=SimpleNamespace(fn="fit")), module)
    progress = ProgressFile(path, meter=meter, log=log)
    progress.on_validation_end(fake_trainer(10, is_global_zero=False), module)
    assert not path.exists()
    progress.on_validation_end(fake_trainer(10), module)
    known = json.loads(path.read_text())
    assert (known["steps"], known["samples"], known["samples_per_s"], known["train_loss"]) == (10, 640, 128, 0.5)
    assert known["val"]["auc"] == 0.8371
    assert set(known) == {"steps", "samples", "samples_per_s", "step_time_s", "train_loss", "val"}


def printed(outcome: RunOutcome) -> str:
    output = io.StringIO()
    print_summary(outcome, Console(file=output, width=100))
    return output.getvalue()


def test_the_printed_summary_shows_what_was_attainable() -> None:
    lines = printed(OUTCOME).splitlines()
    assert lines[0].split() == ["reached", "attainable"]
    assert lines[1].split() == ["AUC", "0.8371", "0.8436"]
    assert "table b: 3 ids out of range were repaired" in lines
    assert lines[-1] == "fallback: table a: reference instead of fbgemm"
    assert "column shards keep their own row-wise optimizer state (column_wise_semantics: per_shard)" in lines


def test_what_was_sent_between_nodes_is_shown_and_written() -> None:
    assert "sent between nodes" not in printed(OUTCOME)
    assert OUTCOME.to_dict({})["traffic_bytes_per_step"] is None
    within = replace(OUTCOME, traffic=TrafficPerStep(3000.0, 0.0, 8.0))
    assert "sent between nodes" not in printed(within)
    between = replace(OUTCOME, traffic=TrafficPerStep(3000.0, 2048.5, 8.0))
    assert ["sent", "between", "nodes", "2.0", "KiB", "a", "step"] in [
        line.split() for line in printed(between).splitlines()
    ]
    assert between.to_dict({})["traffic_bytes_per_step"] == {
        "within_nodes": 3000.0,
        "between_nodes": 2048.5,
        "all_reduced": 8.0,
    }


def test_no_line_ends_in_blanks() -> None:
    for outcome in (OUTCOME, replace(OUTCOME, attainable=None)):
        assert [line for line in printed(outcome).splitlines() if line != line.rstrip()] == []


@pytest.mark.parametrize(
    ("why", "text"),
    [
        (NoAuc.ONE_CLASS, "no AUC: all validation samples are of one class"),
        (
            NoAuc.NOT_FINITE,
            "no AUC: the model's logits are not finite; lower optim.sparse.lr or optim.dense.lr, or check the data",
        ),
        (NoAuc.NO_SAMPLES, "no AUC: there are no validation samples"),
    ],
)
def test_why_there_is_no_auc_is_said(why: NoAuc, text: str) -> None:
    val = replace(cast(BinaryReport, OUTCOME.val), auc=None, no_auc=why)
    assert text in printed(replace(OUTCOME, val=val, attainable=None)).splitlines()


def test_the_summary_says_what_travelled_how() -> None:
    summary = OUTCOME.to_dict({})
    assert summary["comms"] == {"forward": "fp32", "backward": "fp32", "exchange": "flat", "loss_scale": None}
    assert summary["optimizer"] == {"sparse": "sgd", "weights_dtype": "fp32"}
    for used, line in (
        (CommsUsed("fp16", "bf16", "flat", None), "exchange flat, fp16 forward, bf16 backward"),
        (CommsUsed("fp32", "fp32", "hierarchical", None), "exchange hierarchical, fp32 forward, fp32 backward"),
        (CommsUsed("fp32", "fp32", "flat", None), ""),
        (CommsUsed(None, None, None, None), ""),
    ):
        printed = Console(file=io.StringIO(), width=100, color_system=None)
        print_summary(replace(OUTCOME, comms=used), printed)
        assert isinstance(printed.file, io.StringIO)
        lines = [" ".join(found.split()) for found in printed.file.getvalue().splitlines()]
        assert [found for found in lines if found.startswith("exchange")] == [line] * bool(line)
