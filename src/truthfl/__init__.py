"""truthfl: federated learning that pays people for honest work.

The public names come from `public`, which is loaded when the first of them is used, so a command that needs none of
them starts without NumPy. This module imports nothing, because until a command is at work, Ctrl+C prints Python's own
traceback.
"""

TYPE_CHECKING = False  # type checkers take it as true
if TYPE_CHECKING:
    from truthfl.public import *  # noqa: F403

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    from importlib import import_module

    public = import_module("truthfl.public")
    if name == "__all__" or name in public.__all__:
        return getattr(public, name)
    raise AttributeError(f"module 'truthfl' has no attribute {name!r}")


def __dir__() -> list[str]:
    from importlib import import_module

    return sorted([*globals(), *import_module("truthfl.public").__all__])
