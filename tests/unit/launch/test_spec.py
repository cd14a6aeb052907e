"""``trainer.*`` and ``launch.*``."""

from neo.launch.spec import LaunchConfig
from neo.ops.spec import Device
from neo.strategy.spec import TrainerConfig, executed_on


def test_launch_limits() -> None:
    found = [str(finding) for finding in LaunchConfig(threads_per_worker=0, shutdown_timeout_s=90).validate()]
    assert found == [
        "threads_per_worker: 0 is below the limit 1; write 1 to 1024",
        "shutdown_timeout_s: 90 is outside [3, 45]",
    ]


def test_trainer_reports_all_mistakes() -> None:
    config = TrainerConfig(devices="all", max_steps=0, precision="16-mixed", pipeline="x", throughput_warmup_steps=-1)
    assert [finding.key for finding in config.validate()] == [
        "devices",
        "max_steps",
        "throughput_warmup_steps",
        "precision",
        "pipeline",
    ]


def test_devices_are_a_number_or_auto() -> None:
    assert TrainerConfig().to_spec().devices is None
    assert TrainerConfig(devices=4).to_spec().devices == 4


def test_executed_on_in_words() -> None:
    assert executed_on(Device.CPU, 2) == "2 CPU processes (gloo)"
    assert executed_on(Device.CPU, 1) == "1 CPU process (gloo)"
    assert executed_on(Device.CUDA, 8) == "8 CUDA GPUs (nccl)"
