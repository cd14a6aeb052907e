import pytest
import torch
from torch import nn, optim

from neo.optim.schedule import factor_at, schedule
from neo.optim.spec import OptimConfig, ScheduleConfig, ScheduleSpec


def spec(config: ScheduleConfig) -> ScheduleSpec:
    assert config.validate() == []
    return OptimConfig(schedule=config).to_spec().schedule


@pytest.mark.parametrize(
    ("config", "factors"),
    [
        (ScheduleConfig(), [1, 1, 1]),
        (ScheduleConfig(warmup_steps=4), [0.25, 0.5, 0.75, 1, 1]),
        (ScheduleConfig(name="linear", decay_steps=4, final_factor=0.2), [1, 0.8, 0.6, 0.4, 0.2, 0.2]),
        (ScheduleConfig(name="linear", warmup_steps=2, decay_steps=2), [0.5, 1, 1, 0.5, 0, 0]),
        (ScheduleConfig(name="cosine", decay_steps=2, final_factor=0.5), [1, 0.75, 0.5, 0.5]),
        (ScheduleConfig(name="step", milestones=[1, 3], step_factor=0.5), [1, 0.5, 0.5, 0.25]),
    ],
)
def test_factors_by_step(config: ScheduleConfig, factors: list[float]) -> None:
    assert [factor_at(spec(config), step) for step in range(len(factors))] == pytest.approx(factors)


def test_every_group_follows() -> None:
    groups = [{"params": [nn.Parameter(torch.ones(1))], "lr": lr} for lr in (0.1, 2.0)]
    optimizer = optim.SGD(groups)
    scheduler = schedule(optimizer, spec(ScheduleConfig(name="step", milestones=[2], step_factor=0.5)))
    seen = []
    for _ in range(3):
        seen.append([group["lr"] for group in optimizer.param_groups])
        optimizer.step()
        scheduler.step()
    assert seen == [[0.1, 2.0], [0.1, 2.0], [0.05, 1.0]]
