"""Configuration groups, packaged as `neo.conf`."""
