"""Configuration files that the plugin adds to the groups."""
