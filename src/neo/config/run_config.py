"""A run's configuration as one frozen object: what every part of neo below the command line sees."""

import dataclasses
import hashlib
import json
from dataclasses import dataclass

from neo.checkpoint.spec import CheckpointSpec
from neo.comms.spec import CommsSpec
from neo.data.spec import DataSpec
from neo.hardware.spec import HardwareSpec
from neo.launch.spec import LaunchSpec
from neo.models.spec import ModelSpec
from neo.ops.spec import OpsSpec
from neo.optim.spec import OptimSpec
from neo.planner.spec import ShardingSpec
from neo.strategy.spec import CallbacksSpec, LoggerSpec, TrainerSpec


@dataclass(frozen=True)
class RunConfig:
    """The spec of every group, the seed, and whether a fallback is an error (``strict``)."""

    seed: int
    strict: bool
    hardware: HardwareSpec
    data: DataSpec
    model: ModelSpec
    sharding: ShardingSpec
    ops: OpsSpec
    optim: OptimSpec
    comms: CommsSpec
    trainer: TrainerSpec
    logger: LoggerSpec
    callbacks: CallbacksSpec
    checkpoint: CheckpointSpec
    launch: LaunchSpec

    def fingerprint(self) -> str:
        """Return a hash of everything that can change what is trained.

        Left out are ``launch``, what only watches (``logger``, the profiler, ``strict``, …), reads ahead or saves, and
        ``hardware``: the machine acts through the plan, which has a fingerprint of its own, and ``hardware=local`` may
        be detected differently on each node.
        """
        content = dataclasses.asdict(self)
        for key in ("launch", "hardware", "logger", "strict"):
            del content[key]
        for key in ("learning_rate_monitor", "profiler", "assert_trained"):
            del content["callbacks"][key]
        content["weights_from"] = content.pop("checkpoint")["weights_from"]
        for key in ("progress_bar", "log_every_n_steps"):
            del content["trainer"][key]
        del content["data"]["num_workers"]
        return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()[:16]
