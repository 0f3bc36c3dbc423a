"""The page's files that are made when asked for: HTML pages, the style of each, and its script with the catalogue."""

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
STYLE = re.compile(r' *<link rel="stylesheet" href="static/(\w+\.css)">\n')


@cache
def localized_file(name: str, language: str) -> StaticFile:
    """An HTML page, or the script of one, in a language."""
    if name.endswith(".html"):
        return static_file(name, filled_in(_with_one_style(name), language))
    modules = {file.removesuffix(".js"): _text(file) for file in static_files() if file.endswith(".js")}
    catalogue = catalogue_file(language).content.decode()
    return static_file(name, bundled(name.removesuffix(".js"), modules | {CATALOGUE.removesuffix(".js"): catalogue}))


@cache
def page_style(page: str) -> StaticFile:
    """The style sheets that a page names, as one file, so that a browser asks once."""
    return static_file(f"{page}.css", "".join(map(_text, STYLE.findall(_text(f"{page}.html")))))


def _with_one_style(name: str) -> str:
    """An HTML page that names one style sheet, `page_style`, in place of several."""
    link = iter([f'  <link rel="stylesheet" href="{style_path(name.removesuffix(".html"))}">\n'])
    return STYLE.sub(lambda _: next(link, ""), _text(name))


def style_path(page: str) -> str:
    return f"static/page_{page}.css"


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
