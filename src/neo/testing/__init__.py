"""What we test with and ship to plugin authors: the dense reference, in-process ranks, conformance suites."""
