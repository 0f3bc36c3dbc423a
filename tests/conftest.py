"""How property tests run: repeatable in `make test`, at length with fresh examples in `make fuzz`."""

import signal

from hypothesis import HealthCheck, settings

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's `&` has it ignored, here and in what tests start

QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large]
settings.register_profile("repeatable", derandomize=True, deadline=None, max_examples=60, suppress_health_check=QUIET)
settings.register_profile("fuzz", deadline=None, max_examples=2000, suppress_health_check=QUIET, print_blob=True)
settings.load_profile("repeatable")
