"""What is public, what importing costs, and which way the rooms look."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import truthfl

SOURCE = Path(truthfl.__file__).parent

ASKED_FOR = [
    "Clients",
    "Training",
    "Constants",
    "Strategies",
    "LossModel",
    "Contract",
    "paper_bound",
    "sound_bound",
    "labeling_floor",
    "optimal_batch_sizes",
    "lceme",
    "client_payoff",
    "server_payoff",
    "best_deviation",
    "is_truthful",
    "is_individually_rational",
]

MAY_LOOK_AT = {
    "mechanism": {"mechanism", "errors"},
    "learning": {"learning", "mechanism", "errors"},
    "studies": {"studies", "learning", "mechanism", "errors"},
    "job": {"learning", "mechanism", "errors"},
    "labeling": {"labeling", "learning", "ledger", "mechanism", "errors"},
    "ledger": {"ledger", "mechanism", "errors"},
    "federation": {"federation", "labeling", "ledger", "job", "studies", "learning", "mechanism", "errors"},
    "flower": {"federation", "ledger"},
    "cli": {
        "cli",
        "federation",
        "job",
        "labeling",
        "ledger",
        "studies",
        "learning",
        "mechanism",
        "errors",
        "__version__",
    },
}


def test_public_names():
    assert set(ASKED_FOR) <= set(truthfl.__all__)
    assert truthfl.__all__ == sorted(truthfl.__all__)
    assert all(hasattr(truthfl, name) for name in truthfl.__all__)
    assert set(truthfl.__all__) <= set(dir(truthfl))
    with pytest.raises(AttributeError, match="'truthfl' has no attribute 'nothing'"):
        _ = truthfl.nothing


def test_every_public_name_is_documented():
    undocumented = [name for name in truthfl.__all__ if not (getattr(truthfl, name).__doc__ or "").strip()]
    assert undocumented == []


def loaded_by(code):
    """Which packages, other than Python's own, are there after this."""
    code = f"import sys; {code}; print(*{{name.split('.')[0] for name in sys.modules}})"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(answer.stdout.split()) - set(sys.stdlib_module_names)


def test_the_public_names_load_nothing_heavier_than_numpy_and_scipy():
    alone = loaded_by("import numpy, statistics")
    assert loaded_by("from truthfl import *") - alone <= {"truthfl", "scipy"}


def test_the_commands_are_there_without_numpy():
    """So that a page opens, and help is shown, at once."""
    assert {"numpy", "rich", "starlette"} & loaded_by("import truthfl.cli.app") == set()


def test_a_page_of_pictures_is_served_before_what_it_may_never_need_is_loaded():
    page = "import truthfl.labeling.server, truthfl.labeling.serving, truthfl.labeling.folder"
    assert {"numpy", "rich", "PIL", "cryptography"} & loaded_by(page) == set()


def test_rooms_look_only_where_they_may():
    wrong = []
    for path in SOURCE.rglob("*.py"):
        room = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        if room not in MAY_LOOK_AT:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "truthfl":
                parts = node.module.split(".")
                seen = {parts[1]} if len(parts) > 1 else {alias.name for alias in node.names}
                wrong += [(str(path), other) for other in seen - MAY_LOOK_AT[room]]
    assert wrong == []


def test_files_stay_small():
    long = {str(path): n for path in SOURCE.rglob("*.py") if (n := len(path.read_text().splitlines())) > 320}
    assert long == {}
