"""The scripts of a page as one file, so that a browser asks once instead of for each module.

Each module becomes a function that is called once, after those it imports; what it exports is what the function
returns. The modules keep to the forms that `IMPORT` and `EXPORT` describe, one on a line.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

IMPORT = re.compile(r'import \{ (.+) \} from "\./(\w+)\.js";')
EXPORT = re.compile(r"export (?:async )?(?:function|const|class) (\w+)")


class _Module(NamedTuple):
    """A module as the body of a function, and the names of the modules that it imports."""

    body: str
    imported: tuple[str, ...]


def bundled(entry: str, modules: Mapping[str, str]) -> str:
    """The source of one module that does what the module `entry` does.

    modules  sources by name, without .js
    """
    bodies: dict[str, str] = {}
    _add_after_imported(entry, modules, bodies, ())
    return "".join(f"const ${name} = await (async () => {{\n{body}}})();\n" for name, body in bodies.items())


def _add_after_imported(
    name: str, modules: Mapping[str, str], bodies: dict[str, str], importers: tuple[str, ...]
) -> None:
    """Add the body of a module, after those of all that it imports."""
    if name in importers:
        raise ValueError(f"modules import each other: {' → '.join((*importers, name))}")
    if name in bodies:
        return
    module = _module(modules[name])
    for imported in module.imported:
        _add_after_imported(imported, modules, bodies, (*importers, name))
    bodies[name] = module.body


def _module(source: str) -> _Module:
    lines = source.splitlines()
    imported: list[str] = []
    exported: list[str] = []
    for k, line in enumerate(lines):
        if line.startswith("import "):
            names, module = _parts(IMPORT.fullmatch(line), line)
            lines[k] = f"const {{ {names.replace(' as ', ': ')} }} = ${module};"
            imported.append(module)
        elif "import(" in line:
            raise ValueError(f"an import at a later time cannot be bundled: {line}")
        elif line.startswith("export "):
            exported += _parts(EXPORT.match(line), line)
            lines[k] = line.removeprefix("export ")
    return _Module("\n".join([*lines, f"return {{ {', '.join(exported)} }};", ""]), tuple(imported))


def _parts(match: re.Match[str] | None, line: str) -> tuple[str, ...]:
    if match is None:
        raise ValueError(f"a form of import or export that cannot be bundled: {line}")
    return match.groups()
