"""Texts from strangers: bounded, in one line, without what steers a terminal."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.commands import told
from truthfl.texts import LONGEST_NAME, is_plain, plain, plain_name


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Zoë’s 木 \u00a0 12", "Zoë’s 木 \u00a0 12"),
        ("\x1b[2J\x1b]0;title\x07", "\\x1b[2J\\x1b]0;title\\x07"),
        ("one\nline\r\x85\u2028", "one\\nline\\r\\x85\\u2028"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("half \ud800", "half \\ud800"),
        (b"bytes\x1b", "b'bytes\\x1b'"),
        ("a" * 400, "a" * 299 + "…"),
        ("\x1b" * 400, ("\\x1b" * 80)[:299] + "…"),
    ],
)
def test_what_is_shown(text, shown):
    assert plain(text) == shown


@given(st.text(st.characters(exclude_categories=()), max_size=50))
def test_any_text_becomes_one_that_a_terminal_shows(text):
    shown = plain(text, 40)
    assert len(shown) <= 40
    assert is_plain(shown, 40)
    assert shown.encode().decode() == shown
    assert plain(shown, 40) == shown
    if is_plain(text, 40):
        assert shown == text


@pytest.mark.parametrize("name", ["", "  ", "A\x1b", "\ud800", "b" * (LONGEST_NAME + 1), 7, None])
def test_a_name_is_plain(name):
    sentence = told(plain_name, "name", name)
    assert sentence.startswith("name is ")
    assert "without control characters" in sentence
    assert is_plain(sentence, 300)
