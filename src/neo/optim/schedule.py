"""Learning-rate schedules: one factor per step for every parameter group, sparse and dense alike."""

import math

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from neo.optim.spec import ScheduleName, ScheduleSpec


def schedule(optimizer: Optimizer, spec: ScheduleSpec) -> LambdaLR:
    """Return a scheduler that is to be stepped after every optimizer step."""
    return LambdaLR(optimizer, lambda step: factor_at(spec, step))


def factor_at(spec: ScheduleSpec, step: int) -> float:
    """Return what the learning rates are multiplied by at ``step``, counted from 0.

    During the warm-up step s has the factor (s + 1) / warmup_steps, so that no step is wasted on a rate of 0.
    """
    if step < spec.warmup_steps:
        return (step + 1) / spec.warmup_steps
    match spec.name:
        case ScheduleName.CONSTANT:
            return 1.0
        case ScheduleName.STEP:
            return spec.step_factor ** sum(step >= milestone for milestone in spec.milestones)
        case ScheduleName.LINEAR:
            return 1.0 - (1.0 - spec.final_factor) * _progress(spec, step)
        case ScheduleName.COSINE:
            cosine = (1.0 + math.cos(math.pi * _progress(spec, step))) / 2
            return spec.final_factor + (1.0 - spec.final_factor) * cosine


def _progress(spec: ScheduleSpec, step: int) -> float:
    return min(1.0, (step - spec.warmup_steps) / spec.decay_steps)
