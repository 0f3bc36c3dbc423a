"""Attackers' changes to their own truthfl: by name, functions that change a module after its import."""

from importlib import import_module

PLACES = ("reports", "auditions", "descriptions", "operator", "masks", "diaries", "nodes")


def changes_of(name):
    """The functions that change modules for this attack, by module."""
    for place in PLACES:
        found = import_module(f"dishonest.{place}").CHANGES.get(name)
        if found is not None:
            return found
    raise KeyError(name)
