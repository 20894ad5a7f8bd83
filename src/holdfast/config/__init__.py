"""The command line as data: what a command takes, how results are written, what the shell completes."""
