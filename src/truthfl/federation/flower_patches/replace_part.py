"""`replace_part`: replace an attribute of a Flower module, or fail if it does not exist. Imports nothing."""

from __future__ import annotations

from typing import Any


def replace_part(module: Any, name: str, value: Any) -> Any:
    """Set an existing attribute of a module; return its previous value."""
    if not hasattr(module, name):
        raise RuntimeError(f"{module.__name__} has no {name}: truthfl does not support this version of Flower.")
    previous = getattr(module, name)
    setattr(module, name, value)
    return previous
