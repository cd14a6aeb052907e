"""neo's conformance suites for what this package adds: ``pytest suites.py``."""

from collections.abc import Sequence

from acme_neo.plugin import plugin

from neo.testing.codec_suite import CodecSuite
from neo.testing.op_suite import OpSuite

plugin()


class TestAcmeLookup(OpSuite):
    backend = "acme"


class TestAcmeFp64(CodecSuite):
    codec = "acme_fp64"

    def wire_bytes(self, widths: Sequence[int]) -> int:
        return 8 * sum(widths)
