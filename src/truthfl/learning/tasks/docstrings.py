"""Docstrings of Python's standard library by what they describe: texts that come along.

The set depends on the version of Python: other versions have other docstrings.
"""

from __future__ import annotations

import ast
import sysconfig
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import numpy as np

from truthfl.errors import InputError
from truthfl.learning.draws import Purpose, generator
from truthfl.learning.task import ReadSamples

MOST_OF_A_KIND = 1000
KINDS: dict[type[ast.AST], str] = {ast.Module: "module", ast.ClassDef: "class"}
LEFT_OUT = {"site-packages", "dist-packages", "test", "tests", "idle_test", "__pycache__"}


@lru_cache(maxsize=1)
def docstrings() -> ReadSamples:
    """Docstrings of the standard library of this Python."""
    return docstrings_in(Path(sysconfig.get_path("stdlib")))


def docstrings_in(folder: Path, most: int = MOST_OF_A_KIND) -> ReadSamples:
    """Docstrings of modules, classes, functions and methods, at most so many of each, none of them twice."""
    found: dict[str, tuple[str, str]] = {}  # text: kind and place
    for path in sorted(folder.rglob("*.py")):
        name = path.relative_to(folder)
        if not LEFT_OUT & set(name.parts):
            for kind, line, text in _docstrings_of(path):
                found.setdefault(text, (kind, f"line {line} of {name}"))
    if not found:
        raise InputError(f"{folder} has no Python files with docstrings.")
    draws = generator(0, Purpose.SPLIT)
    texts, kinds = list(found), np.array([kind for kind, _ in found.values()])
    kept: list[int] = []
    for kind in sorted(set(kinds.tolist())):
        positions = np.flatnonzero(kinds == kind)
        kept += sorted(draws.permutation(positions)[:most].tolist())
    raw = np.empty(len(kept), dtype=object)
    raw[:] = [texts[k] for k in sorted(kept)]
    chosen = [found[text] for text in raw]
    return ReadSamples(
        raw, tuple(kind for kind, _ in chosen), file="docstrings", places=tuple(place for _, place in chosen)
    )


def _docstrings_of(path: Path) -> Iterator[tuple[str, int, str]]:
    """Kind, line and text of each docstring in a file; none if it cannot be read."""
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return
    yield from _within(tree, "function")


def _within(node: ast.AST, inner: str) -> Iterator[tuple[str, int, str]]:
    """The docstring of this node, and those of all definitions in it; a function in it is an `inner` one."""
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        kind = KINDS.get(type(node), inner)
        text = (ast.get_docstring(node) or "").strip()
        if text:
            yield kind, getattr(node, "lineno", 1), text
        inner = "method" if isinstance(node, ast.ClassDef) else "function"
    for child in ast.iter_child_nodes(node):
        yield from _within(child, inner)
