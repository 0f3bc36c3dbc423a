"""How property tests run (repeatable in `make test`, at length in `make fuzz`), and the order of all tests."""

import os
import signal
import sys

from hypothesis import HealthCheck, settings

pytest_plugins = ["helpers.databases"]

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's `&` has it ignored, here and in what tests start

QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large]
settings.register_profile("repeatable", derandomize=True, deadline=None, max_examples=60, suppress_health_check=QUIET)
settings.register_profile("fuzz", deadline=None, max_examples=2000, suppress_health_check=QUIET, print_blob=True)
settings.load_profile("repeatable")

# approximate seconds by module, all its tests together; modules that take less are left out
LONGEST = {
    "test_soak": 155,
    "test_own_task_guide": 143,
    "test_verification": 130,
    "test_docs": 126,
    "test_cluster": 91,
    "test_federation_guide": 90,
    "test_labeling_page": 85,
    "test_page_state": 83,
    "test_run": 76,
    "test_served_page": 70,
    "test_audition_deployed": 67,
    "test_kills": 66,
    "test_audition_protocol": 65,
    "test_operator_page": 65,
    "test_backup": 60,
    "test_economics": 59,
    "test_deviation": 53,
    "test_page_in_firefox": 47,
    "test_reproduce": 44,
    "test_ledger_outage": 39,
    "test_whole_job": 35,
}


def pytest_collection_modifyitems(items):
    """Each process begins with its share of the tests that take longest, so that none is left with one at the end.

    The plugin gives each process as many tests as the others, in their order.
    """
    shares = [[] for _ in range(int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")))]
    seconds = [0] * len(shares)
    for module, duration in sorted(LONGEST.items(), key=lambda pair: -pair[1]):
        least = seconds.index(min(seconds))
        seconds[least] += duration
        shares[least] += [item for item in items if item.path.stem == module]
    others = [item for item in items if item.path.stem not in LONGEST]
    total = len(items)
    items.clear()
    for number, share in enumerate(shares, 1):
        room = max(0, total * number // len(shares) - len(items) - len(share))
        items += [*share, *others[:room]]
        del others[:room]
    items += others


def pytest_sessionfinish():
    """Close the browser, if one was opened."""
    if "helpers.browsers" in sys.modules:
        sys.modules["helpers.browsers"].OPENED.close()
