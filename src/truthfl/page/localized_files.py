"""The page's files that have sentences: HTML pages, and the script of each with the catalogue in it.

Imports `catalogue`, `script_bundle` and `static_files`.
"""

from __future__ import annotations

import html
import json
import re
from functools import cache

from truthfl.page.catalogue import strings
from truthfl.page.script_bundle import bundled
from truthfl.page.static_files import StaticFile, static_file, static_files

KEY = re.compile(r"\{\{([a-z_.]+)\}\}")
CATALOGUE = "strings.js"


@cache
def localized_file(name: str, language: str) -> StaticFile:
    """An HTML page, or the script of one, in a language."""
    if name.endswith(".html"):
        return static_file(name, filled_in(_text(name), language))
    modules = {file.removesuffix(".js"): _text(file) for file in static_files() if file.endswith(".js")}
    catalogue = catalogue_file(language).content.decode()
    return static_file(name, bundled(name.removesuffix(".js"), modules | {CATALOGUE.removesuffix(".js"): catalogue}))


def _text(name: str) -> str:
    return static_files()[name].content.decode()


def catalogue_file(language: str) -> StaticFile:
    """The module that has the strings of a language for the scripts."""
    values = {"language": language, "strings": dict(strings(language))}
    lines = [f"export const {name} = {json.dumps(value, ensure_ascii=False)};\n" for name, value in values.items()]
    return static_file(CATALOGUE, "".join(lines))


def filled_in(template: str, language: str) -> str:
    """An HTML page with its texts: {{key}} stands for a text, {{language}} for the language."""
    texts = {**strings(language), "language": language}
    return KEY.sub(lambda match: html.escape(texts[match[1]]), template)
