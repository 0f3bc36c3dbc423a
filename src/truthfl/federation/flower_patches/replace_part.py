"""The one way to replace parts of Flower: by name, and a sentence where nothing has that name. Looks nowhere."""

from __future__ import annotations

from typing import Any


def replace_part(module: Any, name: str, value: Any) -> Any:
    """What stood there before."""
    if not hasattr(module, name):
        raise RuntimeError(f"{module.__name__} has no {name}: this is not the Flower that truthfl knows.")
    before = getattr(module, name)
    setattr(module, name, value)
    return before
