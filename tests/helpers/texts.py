"""Texts in Python files and in reports; pictures with false headers."""

from __future__ import annotations

import ast
import re
import struct
import zlib
from html.parser import HTMLParser
from pathlib import Path

import truthfl

SOURCE = Path(truthfl.__file__).parent
THREE_WORDS = re.compile(r"[A-Za-z’']{2,}[,;:]? [a-z’']{2,}[,;:]? [a-z’']{2,}")


def coded_texts():
    """Key, English template, names of values and file of every call of `coded` in truthfl."""
    paths = [
        path for path in SOURCE.rglob("*.py") if path.name != "coded_text.py" and "coded(" in path.read_text("utf-8")
    ]
    return [
        (
            ast.literal_eval(call.args[0]),
            _template(call.args[1], words),
            {word.arg for word in call.keywords},
            path.name,
        )
        for path in paths
        for call, words in _calls(ast.parse(path.read_text("utf-8")), "coded", {})
    ]


def _template(node, words):
    return words[node.id] if isinstance(node, ast.Name) else ast.literal_eval(node)


def _calls(node, name, words):
    """The calls of a function below a node, in order, each with the named texts so far."""
    if isinstance(node, ast.FunctionDef):
        words = dict(words)
    if isinstance(node, ast.Assign):
        words |= named_texts(node)
    if isinstance(node, ast.Call) and getattr(node.func, "id", None) == name:
        yield node, dict(words)
    for child in ast.iter_child_nodes(node):
        yield from _calls(child, name, words)


def named_texts(assignment):
    """The texts that an assignment gives to one or several names, by name."""
    target, value = assignment.targets[0], assignment.value
    several = isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple)
    pairs = zip(target.elts, value.elts, strict=True) if several else [(target, value)]
    texts = [(one, text) for one, text in pairs if isinstance(one, ast.Name) and isinstance(text, ast.Constant)]
    return {one.id: text.value for one, text in texts if isinstance(text.value, str)}


def sentences(path):
    """Texts of at least three words in a Python file, without docstrings and without templates of `coded`."""
    tree = ast.parse(path.read_text("utf-8"))
    known = {_template(call.args[1], words) for call, words in _calls(tree, "coded", {})}
    docs = [
        node.value for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    ]
    texts = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return [
        node.value for node in texts if node not in docs and node.value not in known and THREE_WORDS.search(node.value)
    ]


class Reader(HTMLParser):
    """Notes tags, attributes, text, and whether tags close in order."""

    VOID = ("meta", "br", "path", "use")

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.texts, self.open = [], [], [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        if tag not in self.VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.texts.append(data)


def asks_for_nothing(text):
    read = Reader(text)
    assert not {"script", "link", "iframe", "img", "object", "embed"} & set(read.tags)
    for name, value in read.attributes:
        assert not name.startswith("on")
        if name in ("src", "href", "xlink:href", "action", "srcset"):
            assert not value.startswith(("http", "//", "data:"))
    style = text.split("<style>")[1].split("</style>")[0]
    assert "url(" not in style
    assert "@import" not in style
    return read


def png_that_says(width, height):
    """A PNG of a few bytes that announces any size."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(b"\0" * 1000)) + chunk(b"IEND", b"")
