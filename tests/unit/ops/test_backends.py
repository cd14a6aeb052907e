"""Our own backends under the suite that authors of others use, and the suite under backends with a mistake."""

from neo.testing.op_suite import OpSuite


class TestReference(OpSuite):
    backend = "reference"


class TestFbgemm(OpSuite):
    backend = "fbgemm"
