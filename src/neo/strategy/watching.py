"""From ``callbacks.*`` and ``strict`` to the callbacks of a run."""

from pathlib import Path

from lightning.pytorch.callbacks import Callback, LearningRateMonitor
from rich.console import Console

from neo.config.run_config import RunConfig
from neo.errors import ConfigError, Finding
from neo.strategy.fallbacks import RefuseFallbacks
from neo.strategy.spec import CALLBACKS, CallbacksSpec
from neo.strategy.step_trace import StepTrace
from neo.strategy.stopping import EarlyStopping, StopAt
from neo.strategy.trained import AssertTrained


def watching_callbacks(config: RunConfig, run_dir: Path, console: Console) -> list[Callback]:
    """Return the callbacks that a run was asked for.

    Raises:
        ConfigError: One of another package cannot be made; names it and says why.
    """
    spec = config.callbacks
    found: list[Callback] = [RefuseFallbacks()] if config.strict else []
    if spec.learning_rate_monitor:
        found.append(LearningRateMonitor(logging_interval="step"))
    if spec.early_stopping is not None:
        found.append(EarlyStopping(spec.early_stopping, console))
    if spec.stop_at:
        found.append(StopAt(spec.stop_at, console))
    if spec.assert_trained:
        found.append(AssertTrained())
    found += [_own(name, spec) for name in spec.own]
    if spec.profiler is not None:
        found.append(StepTrace(spec.profiler, run_dir, console))  # the last, so that no other stands in its trace
    return found


def _own(name: str, spec: CallbacksSpec) -> Callback:
    options = spec.options.get(name, {})
    try:
        made = CALLBACKS.get(name)(**options)
    except Exception as error:
        key = f"callbacks.options.{name}" if options else "callbacks.own"
        problem = f"the callback '{name}' cannot be made: {error}"
        raise ConfigError([Finding(key, problem, "correct its options, or leave it out of callbacks.own")]) from error
    if not isinstance(made, Callback):
        problem = f"'{name}' made a {type(made).__name__}, not a lightning.pytorch.Callback"
        raise ConfigError([Finding("callbacks.own", problem, "repair or uninstall the package that registered it")])
    return made
