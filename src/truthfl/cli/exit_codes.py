"""The exit codes of all commands."""

FAILED = 1  # a job failed, or a check found a fault
BAD_INPUT = 2
SERVICE_FAILED = 3  # network, disk, a port in use, a crashed process
INTERRUPTED = 130
