"""How tests run: property tests repeatably, long tests in `make test-all` alone, those that take longest first."""

import os
import signal
import sys

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = ["helpers.databases"]

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's `&` has it ignored, here and in what tests start

QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large]
settings.register_profile("repeatable", derandomize=True, deadline=None, max_examples=60, suppress_health_check=QUIET)
settings.register_profile("fuzz", deadline=None, max_examples=2000, suppress_health_check=QUIET, print_blob=True)
settings.load_profile("repeatable")

# what `make test` leaves to `make test-all`: parts of the names of tests. Each has a shorter one that stays.
LONG = (
    "test_soak.py::test_two_minutes",
    "test_attacks.py::test_the_short_form",
    "test_kills.py::test_a_job_killed_without_warning",
    "test_federation_guide.py",
    "test_own_task_guide.py",
    "test_whole_job.py",
    "test_join_by_phone.py",
    "test_cluster.py",
    "test_kernel_build.py",
    "test_instruction_sets.py",
    "test_benchmarks.py",
    "test_benchmark_training.py",
    "test_page_in_firefox.py",
    "test_page_in_german.py",
    "test_looking_closely.py",
    "test_instructions_page.py",
    "test_picture_memory.py",
    "test_same_results.py::test_the_same_seed_gives_the_same_plan_model_and_pay[lceme]",
    "test_same_results.py::test_the_same_seed_gives_the_same_plan_model_and_pay[cnn]",
    "test_audition_deployed.py::test_deployed_as_in_one_process[False]",
    "test_economics.py::test_a_thousand",
    "test_reproduce.py::test_interrupted",
    "test_reproduce.py::test_killed",
    "test_verification.py::test_a_contract_of_the_package",
    "test_verification.py::test_many_clients",
    "test_figures.py::test_other_commands",
    "test_deploy.py::test_the_guides_backup",
)

# approximate seconds by module, of what stays; modules that take less than the last are left out
LONGEST = {
    "test_served_page": 40,
    "test_held_models": 40,
    "test_masked_rounds": 40,
    "test_audition_protocol": 40,
    "test_labeling_page": 40,
    "test_docs": 35,
    "test_operator_page": 35,
    "test_same_results": 30,
    "test_page_state": 25,
    "test_verification": 25,
    "test_job_ends": 25,
    "test_job_commands": 20,
    "test_repeated_rounds": 20,
    "test_ledger_at_once": 15,
    "test_backup": 15,
    "test_ledger_outage": 15,
    "test_audition_deployed": 15,
    "test_kills": 10,
}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Mark what is long; let each process begin with its share of the rest that takes longest.

    The plugin gives each process as many tests as the others, in their order.
    """
    for item in items:
        if any(part in item.nodeid for part in LONG):
            item.add_marker(pytest.mark.long)
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
