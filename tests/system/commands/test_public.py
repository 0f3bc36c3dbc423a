"""What is public, what importing costs, and which way the rooms look."""

import ast
import re
import subprocess
import sys
from collections import defaultdict
from importlib import import_module
from pathlib import Path

import pytest

import truthfl
import truthfl.ledger
from truthfl import contract_kinds, find_contract

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

FOR_ALL = {"amounts", "certificates", "coded_text", "custom_code", "errors", "files", "instructions", "texts"}
MAY_IMPORT = {
    "contracts": {"learning"},
    "flower_patches": set(),
    "learning": {"contracts", "flower_patches"},
    "adversary": {"contracts", "learning"},
    "reporting": set(),
    "simulate": {"contracts", "federation", "job", "learning", "samples", "studies"},
    "studies": {"adversary", "contracts", "job", "learning", "reporting"},
    "job": {"contracts", "learning"},
    "ledger": {"contracts"},
    "home": {"ledger"},
    "samples": {"learning"},
    "page": {"contracts", "home", "learning", "ledger", "samples"},
    "federation": {
        "adversary",
        "contracts",
        "flower_patches",
        "home",
        "job",
        "learning",
        "ledger",
        "reporting",
        "samples",
    },
    "console": {"federation", "ledger", "page"},
    "files": set(),
    "flower": {"federation", "ledger"},
    "cli": {
        "__version__",
        "adversary",
        "console",
        "contracts",
        "federation",
        "home",
        "job",
        "learning",
        "ledger",
        "page",
        "reporting",
        "samples",
        "studies",
    },
}

INSIDE_FEDERATION = {
    "protocol": {"masking", "operator", "participant"},
    "masking": {"participant", "protocol"},
    "operator": {"protocol"},
    "participant": {"masking", "protocol"},
    "simulated": {"masking", "operator", "participant", "protocol"},
    "deployed": {"operator", "participant", "protocol"},
}

MEASURE_ON_DATA = {
    "pilot",
    "planning",
    "rounds",
}  # the modules of contracts that train; all others are formulas on arrays
WHAT_LEARNING_SEES = {("contracts", "setting"), ("contracts", "formulas")}


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


def test_the_ledgers_public_names():
    assert truthfl.ledger.__all__ == sorted(truthfl.ledger.__all__)
    assert all((getattr(truthfl.ledger, name).__doc__ or "").strip() for name in truthfl.ledger.__all__)
    assert set(truthfl.ledger.__all__) <= set(dir(truthfl.ledger))
    modules = {path.stem for path in (SOURCE / "ledger").iterdir()}
    assert modules & set(truthfl.ledger.__all__) == set()  # importing a module would hide the name
    with pytest.raises(AttributeError, match=r"'truthfl.ledger' has no attribute 'nothing'"):
        _ = truthfl.ledger.nothing


def test_the_ledger_is_loaded_when_it_is_asked_for():
    assert loaded_by("import truthfl.ledger") - loaded_by("pass") == {"truthfl"}
    assert "sqlalchemy" in loaded_by("from truthfl.ledger import open_ledger")
    code = "from truthfl.ledger import *; import truthfl.ledger.payments; payments_of, settle, truthfl.ledger.check"
    assert "sqlalchemy" in loaded_by(code)


def test_the_public_names_load_nothing_heavier_than_numpy_and_scipy():
    alone = loaded_by("import numpy, statistics")
    assert loaded_by("from truthfl import *") - alone <= {"truthfl", "scipy"}


def test_the_commands_are_there_without_numpy():
    """So that a page opens, and help is shown, at once."""
    assert {"numpy", "rich", "starlette", "flwr"} & loaded_by("import truthfl.cli.app") == set()


def test_a_page_of_pictures_is_served_before_what_it_may_never_need_is_loaded():
    page = "import truthfl.page.application, truthfl.page.serving, truthfl.samples.folder, truthfl.samples.label_store"
    assert {"numpy", "rich", "PIL", "cryptography", "flwr"} & loaded_by(page) == set()


def test_documents_are_listed_without_numpy():
    assert "numpy" not in loaded_by("import truthfl.page.documents")


def test_a_node_loads_nothing_that_only_the_operator_needs():
    """A participant's computer, which may be small, has no database, plots or web server in memory: join, receipts."""
    node = (
        "import truthfl.cli.participant.join, truthfl.cli.participant.participation, "
        "truthfl.federation.deployed.node, truthfl.home.record, "
        "truthfl.ledger.receipts, truthfl.page.receipt_check"
    )
    heavy = {"sqlalchemy", "scipy", "matplotlib", "sklearn", "starlette", "uvicorn"}
    assert heavy & loaded_by(node) == set()


def imports():
    """Every module of the package with each module of the package that it imports, both as tuples of names."""
    for path in SOURCE.rglob("*.py"):
        module = path.relative_to(SOURCE).with_suffix("").parts
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "truthfl":
                parts = tuple(node.module.split(".")[1:])
                yield from ((module, parts) for _ in [0]) if parts else ((module, (a.name,)) for a in node.names)


def test_rooms_import_only_what_they_may():
    wrong = [
        (module, other)
        for module, other in imports()
        if module[0] in MAY_IMPORT and other[0] not in MAY_IMPORT[module[0]] | {module[0]} | FOR_ALL
    ]
    assert wrong == []


def test_contracts_are_formulas_except_where_they_measure_and_learning_knows_none_of_them():
    wrong = [
        (module, other)
        for module, other in imports()
        if (module[0] == "contracts" and other[0] == "learning" and module[-1] not in MEASURE_ON_DATA)
        or (module[0] == "learning" and other[0] == "contracts" and other[:2] not in WHAT_LEARNING_SEES)
    ]
    assert wrong == []


ABOUT_TWO_CONTRACTS = {("public",), ("studies", "reproduce"), ("studies", "size")}  # the facade; paper and sizes
PACKAGES_OF_CONTRACTS = {("contracts", "audition"), ("contracts", "lceme")}
MAY_IMPORT_THEM = ABOUT_TWO_CONTRACTS | {
    ("simulate",),  # a facade
    ("studies", "verify"),  # which compares with LCEME on several bounds
    ("job", "sections"),  # checks that a menu can be made of a distribution of costs
}
KINDS_OF_CONTRACTS = {find_contract(kind).__name__ for kind in contract_kinds()} | {"Contract"}
WHICH = re.compile(r"(contract|rule|planned|own)\.kind$|(job|terms|offer)\.contract$")


def asks_which_contract(tree):
    """The places of a module that name a contract's class, or compare a contract's class or kind."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("isinstance", "issubclass", "type"):
            if set(re.findall(r"\w+", ast.unparse(node))) & KINDS_OF_CONTRACTS:
                yield ast.unparse(node)
        elif isinstance(node, ast.Compare) and any(
            WHICH.search(ast.unparse(side)) for side in (node.left, *node.comparators)
        ):
            yield ast.unparse(node)
        elif isinstance(node, ast.alias | ast.Name) and "Audition" in (vars(node).get("name"), vars(node).get("id")):
            yield "Audition"


def test_nothing_outside_the_contracts_imports_one_of_them_but_by_the_registry():
    importing = {
        module[:2] for module, other in imports() if module[0] != "contracts" and other[:2] in PACKAGES_OF_CONTRACTS
    }
    assert importing == MAY_IMPORT_THEM


def test_nothing_outside_the_contracts_asks_which_contract_it_has():
    found = {
        str(path.relative_to(SOURCE)): places
        for path in SOURCE.rglob("*.py")
        for parts in [path.relative_to(SOURCE).with_suffix("").parts]
        if parts[0] != "contracts" and parts[:2] not in ABOUT_TWO_CONTRACTS
        if (places := list(asks_which_contract(ast.parse(path.read_text()))))
    }
    assert found == {}
    scripts = {path.name: path.read_text() for path in SOURCE.rglob("*.js")}
    assert [name for name, source in scripts.items() if re.search(r"\b(offer|job|terms)\.contract\b", source)] == []
    asked = (
        "isinstance(rule, FlatPay); contract.kind == 'lceme'; from truthfl import Audition; offer.job.contract in known"
    )
    assert len(list(asks_which_contract(ast.parse(asked)))) == 4


def test_no_folder_has_too_many_modules_and_no_package_is_empty():
    modules = {
        folder: len(list(folder.glob("*.py"))) for folder in SOURCE.rglob("*") if (folder / "__init__.py").exists()
    }
    assert {str(folder.relative_to(SOURCE)): count for folder, count in modules.items() if not 2 <= count <= 18} == {
        "federation": 1
    }
    assert [folder for folder in SOURCE.rglob("static") if len(list(folder.glob("*.js"))) > 20] == []


def test_the_parts_of_the_federation_import_only_what_they_may():
    wrong = [
        (module, other)
        for module, other in imports()
        if module[0] == other[0] == "federation" and len(module) > 2 and len(other) > 1
        if other[1] not in INSIDE_FEDERATION[module[1]] | {module[1]}
    ]
    assert wrong == []


def test_no_two_types_have_one_name():
    """A reader who meets a name knows which type it is."""
    where = defaultdict(list)
    for path in SOURCE.rglob("*.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef):
                where[node.name].append(str(path.relative_to(SOURCE)))
    assert {name: places for name, places in where.items() if len(places) > 1} == {}


FACADES = ("truthfl", "truthfl.simulate", "truthfl.flower", "truthfl.ledger")


@pytest.mark.parametrize("name", FACADES)
def test_every_name_of_a_facade_is_there_and_documented(name):
    facade = import_module(name)
    assert sorted(facade.__all__) == sorted(set(facade.__all__))
    for public in facade.__all__:
        found = getattr(facade, public)
        if callable(found):
            assert (found.__doc__ or "").strip(), public
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = facade.nothing


@pytest.mark.parametrize("name", ["simulate", "ledger"])
def test_type_checkers_see_every_name_of_a_lazy_facade(name):
    """The imports under TYPE_CHECKING name what is loaded when a name is first used."""
    facade = import_module(f"truthfl.{name}")
    tree = ast.parse(Path(facade.__file__).read_text())
    seen = {
        alias.asname or alias.name: getattr(import_module(node.module), alias.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("truthfl.")
        for alias in node.names
    }
    assert seen == {public: getattr(facade, public) for public in facade.__all__}


def test_docs_and_examples_import_facades_alone():
    root = SOURCE.parents[1]
    pages = [root / "README.md", *(root / "docs").glob("*.md"), *(root / "examples").rglob("*.md")]
    texts = {path: path.read_text() for path in [*pages, *(root / "examples").rglob("*.py")]}
    deeper = [
        (path.name, module)
        for path, text in texts.items()
        for module in re.findall(r"(?:from|import) (truthfl[\w.]*)", text)
        if module not in FACADES
    ]
    assert deeper == []


def test_the_facades_load_what_is_asked_for_and_no_more():
    assert {"numpy", "flwr", "sqlalchemy"} & loaded_by("import truthfl.simulate, truthfl.ledger") == set()
    assert {"flwr", "sqlalchemy"} & loaded_by("from truthfl.simulate import train, BEHAVIOURS, read_job") == set()
