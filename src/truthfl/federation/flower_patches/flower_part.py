"""`flower_part`: an attribute of a Flower module that is not in Flower's documented interface. Imports `errors`."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from truthfl.errors import ServiceError


def flower_part(module: str, name: str) -> Any:
    """Import the attribute; raise ServiceError with a sentence if this version of Flower does not have it."""
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError):
        import flwr

        raise ServiceError(
            f"Flower {flwr.__version__} has no {module}.{name}; truthfl needs Flower 1.41: pip install 'flwr==1.41.*'."
        ) from None
