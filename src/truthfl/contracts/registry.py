"""The registry of contracts by kind.

Other contracts are registered with `register`, or by an installed package under the entry point group
`truthfl.contracts`. Offers contain a kind and never code.
"""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import TypeVar

from truthfl.contracts.audition.pay import Audition
from truthfl.contracts.baselines import FlatPay, LeaveOneOutPay, PayPerClaimedSample, ShapleySharePay
from truthfl.contracts.contract import Contract
from truthfl.contracts.lceme.contract import LCEME
from truthfl.errors import InputError

ENTRY_POINTS = "truthfl.contracts"
_BUILT_IN: tuple[type[Contract], ...] = (
    Audition,
    LCEME,
    FlatPay,
    PayPerClaimedSample,
    LeaveOneOutPay,
    ShapleySharePay,
)
_REGISTERED: dict[str, type[Contract]] = {contract.kind: contract for contract in _BUILT_IN}

Kind = TypeVar("Kind", bound=type[Contract])


def register(contract: Kind) -> Kind:
    """Register a contract under its kind; usable as a decorator."""
    registered = _REGISTERED.setdefault(contract.kind, contract)
    if registered is not contract:
        raise InputError(f"a contract {contract.kind!r} is registered already; choose another kind.")
    return contract


def unregister(kind: str) -> None:
    """Remove a contract from the registry."""
    _REGISTERED.pop(kind, None)


def find_contract(kind: str) -> type[Contract]:
    """The contract of this kind."""
    if kind not in _REGISTERED:
        for point in entry_points(group=ENTRY_POINTS, name=kind):
            register(point.load())
    if kind not in _REGISTERED:
        raise InputError(f"there is no contract of kind {kind!r}; it must be one of: {', '.join(contract_kinds())}.")
    return _REGISTERED[kind]


def contract_kinds() -> list[str]:
    """All kinds that are registered or available by entry points."""
    return [*_REGISTERED, *(name for name in entry_points(group=ENTRY_POINTS).names if name not in _REGISTERED)]
