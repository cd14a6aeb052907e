"""Launch configuration, torch-free: how the workers of a run, and the runs of a sweep, are started and ended."""

from dataclasses import dataclass
from enum import StrEnum

from neo.errors import Finding, unknown_name
from neo.limits import outside_limits


@dataclass(frozen=True)
class LaunchSpec:
    """``launch.*``, resolved.

    Attributes:
        threads_per_worker: Threads of each worker's CPU kernels; None shares the cores evenly.
        shutdown_timeout_s: Seconds that workers get to end by themselves after another one failed.
        preemption_timeout_s: Seconds that workers get to save a checkpoint after SIGTERM.
    """

    threads_per_worker: int | None
    shutdown_timeout_s: int
    preemption_timeout_s: int = 600


@dataclass
class LaunchConfig:
    """``launch.*``."""

    threads_per_worker: int | None = None
    shutdown_timeout_s: int = 20
    preemption_timeout_s: int = 600

    def validate(self) -> list[Finding]:
        """Return every mistake, keys relative to ``launch``."""
        findings = outside_limits(self, {"threads_per_worker": (1, 1024), "preemption_timeout_s": (3, 86_400)})
        if not 3 <= self.shutdown_timeout_s <= 45:
            findings.append(Finding("shutdown_timeout_s", f"{self.shutdown_timeout_s} is outside [3, 45]"))
        return findings

    def to_spec(self) -> LaunchSpec:
        """Return the frozen form of a valid configuration."""
        return LaunchSpec(self.threads_per_worker, self.shutdown_timeout_s, self.preemption_timeout_s)


class OnFailure(StrEnum):
    """What a sweep does after a point that failed at run time."""

    CONTINUE = "continue"
    STOP = "stop"


@dataclass(frozen=True)
class SweepSpec:
    """``sweep.*``, resolved.

    Attributes:
        on_failure: What happens after a point that failed at run time.
        resume: Leave out the points that an earlier sweep in the same folder has done with the same configuration.
    """

    on_failure: OnFailure
    resume: bool


@dataclass
class SweepConfig:
    """``sweep.*``."""

    on_failure: str = OnFailure.CONTINUE.value
    resume: bool = False

    def validate(self) -> list[Finding]:
        """Return every mistake, keys relative to ``sweep``."""
        if self.on_failure in list(OnFailure):
            return []
        return [unknown_name("on_failure", self.on_failure, "way to go on", list(OnFailure))]

    def to_spec(self) -> SweepSpec:
        """Return the frozen form of a valid configuration."""
        return SweepSpec(OnFailure(self.on_failure), self.resume)
