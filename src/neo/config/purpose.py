"""What a configuration is read for."""

from enum import StrEnum


class Purpose(StrEnum):
    """Training checks against this host, planning against the named machine."""

    TRAIN = "train"
    PLAN = "plan"
