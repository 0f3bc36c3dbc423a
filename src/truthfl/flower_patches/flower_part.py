"""`flower_part` and `replace_part`: attributes of Flower that its documented interface lacks."""

from __future__ import annotations

from functools import reduce
from importlib import import_module
from typing import Any

from truthfl.errors import ServiceError


def flower_part(module: str, name: str) -> Any:
    """Import the attribute, or with dots in the name an attribute's attribute; raise ServiceError if there is none."""
    try:
        return reduce(getattr, name.split("."), import_module(module))
    except (ImportError, AttributeError):
        raise missing_part(f"{module}.{name}") from None


def replace_part(module: str, name: str, value: Any) -> Any:
    """Set an existing attribute of a module; return its previous value. Raise ServiceError if there is none."""
    previous = flower_part(module, name)
    setattr(import_module(module), name, value)
    return previous


def missing_part(part: str) -> ServiceError:
    """The error, with a sentence, that this version of Flower does not have a part."""
    import flwr

    return ServiceError(
        f"Flower {flwr.__version__} has no {part}; truthfl needs Flower 1.41: pip install 'flwr==1.41.*'."
    )
