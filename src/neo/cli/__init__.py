"""Commands: ``neo train``, ``neo plan``, and their exit codes."""
