"""The registry of contracts by kind.

Other contracts are registered with `register`, by name from a file or module, or by an installed package under the
entry point group `truthfl.contracts`. Offers contain a kind and never code.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Any, TypeVar

from truthfl.contracts.audition.joint import JointAudition
from truthfl.contracts.audition.pay import Audition
from truthfl.contracts.baselines import FlatPay, LeaveOneOutPay, PayPerClaimedSample, ShapleySharePay
from truthfl.contracts.contract import Contract
from truthfl.contracts.lceme.contract import LCEME
from truthfl.custom_code import class_named, digest_of_module
from truthfl.errors import InputError
from truthfl.texts import plain, plain_name

ENTRY_POINTS = "truthfl.contracts"
_BUILT_IN: tuple[type[Contract], ...] = (
    Audition,
    JointAudition,
    LCEME,
    FlatPay,
    PayPerClaimedSample,
    LeaveOneOutPay,
    ShapleySharePay,
    JointAudition,
)
_REGISTERED: dict[str, type[Contract]] = {contract.kind: contract for contract in _BUILT_IN}

Kind = TypeVar("Kind", bound=type[Contract])


def register(contract: Kind) -> Kind:
    """Register a contract under its kind; usable as a decorator."""
    registered = _REGISTERED.setdefault(contract.kind, contract)
    if registered is not contract:
        raise InputError(f"a contract {contract.kind!r} is registered already; choose another kind.")
    return contract


def register_named(use: str) -> type[Contract]:
    """Register the contract that "FILE.py:Class" or "module:Class" names."""
    made: type[Contract] = class_named(use, Contract, "contract")
    plain_name(f"{made.__name__}.kind", made.kind)
    return register(made)


def source_of(use: str) -> str:
    """The digest of the text of the file that defines a contract."""
    return _source(register_named(use))


def _source(made: type[Contract]) -> str:
    return digest_of_module(sys.modules[made.__module__])


def require_named(document: Mapping[str, Any], job: str) -> None:
    """Raise `InputError` unless the custom contract of a job's document is registered, from the same text.

    document  `kind`, `use` without the folder of the file, `source`
    """
    use, kind = plain(document["use"]), str(document["kind"])
    try:
        made = find_contract(kind)
    except InputError:
        raise InputError(f"job {job} is paid by the custom contract {plain(kind)!r}: say --contract {use}.") from None
    if _source(made) != document["source"]:
        raise InputError(f"job {job} is paid by {use}, of which this is another text; name the job's file.")


def unregister(kind: str) -> None:
    """Remove a contract from the registry."""
    _REGISTERED.pop(kind, None)


def find_contract(kind: str) -> type[Contract]:
    """The contract of this kind."""
    if kind not in _REGISTERED:
        for point in entry_points(group=ENTRY_POINTS, name=kind):
            register(point.load())
    if kind not in _REGISTERED:
        known = ", ".join(contract_kinds())
        raise InputError(
            f"there is no contract of kind {kind!r}; it must be one of: {known}; or custom, --contract FILE.py:Class."
        )
    return _REGISTERED[kind]


def contract_kinds() -> list[str]:
    """All kinds that are registered or available by entry points."""
    return [*_REGISTERED, *(name for name in entry_points(group=ENTRY_POINTS).names if name not in _REGISTERED)]
