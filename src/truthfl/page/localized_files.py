"""The page's files that have sentences: HTML pages, and the catalogue for scripts.

Imports `catalogue` and `static_files`.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Mapping
from functools import cache

from truthfl.page.catalogue import strings
from truthfl.page.static_files import StaticFile, static_file, static_files

KEY = re.compile(r"\{\{([a-z_.]+)\}\}")
CATALOGUE = "strings.js"


@cache
def localized_files(language: str) -> Mapping[str, StaticFile]:
    """The HTML pages and `strings.js` in a language, by name."""
    pages = {name: file for name, file in static_files().items() if name.endswith(".html")}
    filled = {name: static_file(name, filled_in(file.content.decode(), language)) for name, file in pages.items()}
    return {**filled, CATALOGUE: catalogue_file(language)}


def catalogue_file(language: str) -> StaticFile:
    """The module that has the strings of a language for the scripts."""
    values = {"language": language, "strings": dict(strings(language))}
    lines = [f"export const {name} = {json.dumps(value, ensure_ascii=False)};\n" for name, value in values.items()]
    return static_file(CATALOGUE, "".join(lines))


def filled_in(template: str, language: str) -> str:
    """An HTML page with its texts: {{key}} stands for a text, {{language}} for the language."""
    texts = {**strings(language), "language": language}
    return KEY.sub(lambda match: html.escape(texts[match[1]]), template)
