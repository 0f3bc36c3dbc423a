"""How property tests run: repeatable in `make test`, at length with fresh examples in `make fuzz`. What comes first."""

import signal
import sys

from hypothesis import HealthCheck, settings

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's `&` has it ignored, here and in what tests start

QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large]
settings.register_profile("repeatable", derandomize=True, deadline=None, max_examples=60, suppress_health_check=QUIET)
settings.register_profile("fuzz", deadline=None, max_examples=2000, suppress_health_check=QUIET, print_blob=True)
settings.load_profile("repeatable")

LONGEST = {
    *("test_soak", "test_cluster", "test_whole_job", "test_federation_guide", "test_served_page", "test_kills"),
    *("test_docs", "test_ledger_outage", "test_backup", "test_audition_deployed", "test_verification"),
    *("test_on_superlink", "test_reproduce", "test_deployment"),
}


def pytest_collection_modifyitems(items):
    """Those that take longest first, so that no process is left with one of them at the end."""
    items.sort(key=lambda item: item.path.stem not in LONGEST)


def pytest_sessionfinish():
    """Close the browser, if one was opened."""
    if "browsers" in sys.modules:
        sys.modules["browsers"].OPENED.close()
