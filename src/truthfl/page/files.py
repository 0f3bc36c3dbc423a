"""The page's files: static files, and the HTML, styles and scripts that are made on request, by language.

The scripts of a page become one. In it, each module is a function that is called once, after the modules it imports,
and returns its exports. The modules use only the forms that `IMPORT` and `EXPORT` describe, one per line.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from truthfl.page.catalogue import strings

PARTICIPANTS_PAGE = Path(__file__).parent
PAGES = ("offer", "label", "review", "receipt")
MEDIA_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}


class StaticFile(NamedTuple):
    """Content of a file, with its ETag for the browser's cache."""

    content: bytes
    media_type: str
    etag: str


@cache
def static_files(package: Path = PARTICIPANTS_PAGE) -> Mapping[str, StaticFile]:
    """All files in the folder `static` of a package, by name.

    The page serves only these, so a request cannot name a path.
    """
    files = (file for file in (package / "static").iterdir() if file.is_file())
    return {file.name: static_file(file.name, file.read_bytes()) for file in files if _suffix(file.name) in MEDIA_TYPES}


def static_file(name: str, content: bytes | str) -> StaticFile:
    """A file with this name and content."""
    raw = content.encode() if isinstance(content, str) else content
    return StaticFile(raw, MEDIA_TYPES[_suffix(name)], f'"{sha256(raw).hexdigest()[:16]}"')


def _suffix(name: str) -> str:
    return name.rsplit(".", 1)[-1]


KEY = re.compile(r"\{\{([a-z_.]+)\}\}")
STYLE = re.compile(r' *<link rel="stylesheet" href="static/(\w+\.css)">\n')


@cache
def localized_file(name: str, language: str, **keys: str) -> StaticFile:
    """An HTML page, `filled_in` with these keys, or the script of one, in a language."""
    if name.endswith(".html"):
        return static_file(name, filled_in(_with_one_style(name), language, **keys))
    return script(name, language, static_files())


def script(name: str, language: str, files: Mapping[str, StaticFile]) -> StaticFile:
    """The script of a page, with the modules among the files that it imports and the language's strings."""
    modules = {
        file.removesuffix(".js"): content.decode() for file, (content, *_) in files.items() if file.endswith(".js")
    }
    return static_file(name, bundled(name.removesuffix(".js"), modules | {"strings": _catalogue_module(language)}))


@cache
def page_style(page: str) -> StaticFile:
    """The style sheets that a page names, as one file, so that the browser makes one request."""
    return static_file(f"{page}.css", "".join(map(_text, STYLE.findall(_text(f"{page}.html")))))


def _with_one_style(name: str) -> str:
    """An HTML page that names one style sheet, `page_style`, instead of several."""
    link = iter([f'  <link rel="stylesheet" href="{style_path(name.removesuffix(".html"))}">\n'])
    return STYLE.sub(lambda _: next(link, ""), _text(name))


def style_path(page: str) -> str:
    return f"static/page_{page}.css"


def _text(name: str) -> str:
    return static_files()[name].content.decode()


def _catalogue_module(language: str) -> str:
    """The module with a language's strings for the scripts."""
    values = {"language": language, "strings": dict(strings(language))}
    lines = [f"export const {name} = {json.dumps(value, ensure_ascii=False)};\n" for name, value in values.items()]
    return "".join(lines)


def filled_in(template: str, language: str, **keys: str) -> str:
    """An HTML page with its texts: {{key}} stands for a text, {{language}} for the language.

    keys  of further texts, by the names that the page has for them
    """
    own = strings(language)
    texts = {**own, "language": language} | {name: own[key] for name, key in keys.items()}
    return KEY.sub(lambda match: html.escape(texts[match[1]]), template)


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
    """Add the body of a module, after the bodies of the modules that it imports."""
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
