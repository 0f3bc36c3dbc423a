"""Which mechanisms there are, by their kind. Imports `contract` and `baselines`, whose mechanisms come along.

A mechanism of one's own is registered by `register`, or found in an installed package that names it under the entry
point group `truthfl.mechanisms`. An offer names a kind and never code.
"""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import TypeVar

from truthfl.errors import InputError
from truthfl.mechanism.baselines import FlatPay, LeaveOneOutPay, PayPerClaimedSample, ShapleySharePay
from truthfl.mechanism.contract import Contract
from truthfl.mechanism.mechanism import Mechanism

ENTRY_POINTS = "truthfl.mechanisms"
_BUILT_IN: tuple[type[Mechanism], ...] = (Contract, FlatPay, PayPerClaimedSample, LeaveOneOutPay, ShapleySharePay)
_REGISTERED: dict[str, type[Mechanism]] = {mechanism.kind: mechanism for mechanism in _BUILT_IN}

Kind = TypeVar("Kind", bound=type[Mechanism])


def register(mechanism: Kind) -> Kind:
    """Make a mechanism known by its kind; usable as a decorator."""
    there = _REGISTERED.setdefault(mechanism.kind, mechanism)
    if there is not mechanism:
        raise InputError(f"a mechanism {mechanism.kind!r} is registered already; choose another kind.")
    return mechanism


def unregister(kind: str) -> None:
    """Forget a mechanism that was registered."""
    _REGISTERED.pop(kind, None)


def find_mechanism(kind: str) -> type[Mechanism]:
    """The mechanism of this kind."""
    if kind not in _REGISTERED:
        for point in entry_points(group=ENTRY_POINTS, name=kind):
            register(point.load())
    if kind not in _REGISTERED:
        raise InputError(f"there is no contract of kind {kind!r}; it must be one of: {', '.join(mechanism_kinds())}.")
    return _REGISTERED[kind]


def mechanism_kinds() -> list[str]:
    """All kinds that are known here."""
    return [*_REGISTERED, *(name for name in entry_points(group=ENTRY_POINTS).names if name not in _REGISTERED)]
