"""The report is one file that asks for nothing, and text stays text."""

from hypothesis import given
from hypothesis import strategies as st

from helpers.commands import told
from helpers.texts import asks_for_nothing
from truthfl.reporting.report import Paragraph, Plot, Report, Section, Table, how_made, page

PRINTABLE = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), max_size=30)


def a_report(text="x"):
    return Report(
        text,
        text,
        [
            Section(
                text,
                [Paragraph(text), Table((text, "n"), [(text, "1,234.5"), ("good one", "2")], [("good one", "good")])],
            ),
            Section("plot", [Plot(["<svg></svg>"], text, ["figure-2.png"])]),
            how_made(version="0", command=text, seeds="1 to 3", engine="NumPy", seconds=61, more=text),
        ],
    )


@given(PRINTABLE)
def test_text_is_escaped_and_whole(text):
    read = asks_for_nothing(page(a_report(f"A{text}Z")))
    assert "".join(read.texts).count(f"A{text}Z".replace("\r", "\n")) >= 8


def test_markup_in_text_stays_text():
    read = asks_for_nothing(page(a_report("<script>alert(1)</script><img src=http://x>")))
    assert any("<script>" in text for text in read.texts)


def test_light_dark_and_narrow():
    text = page(a_report())
    assert "prefers-color-scheme: dark" in text
    assert "width=device-width" in text
    assert '<div class="wide"' in text
    assert 'class="good"' in text
    assert "1 min 1 s" in text


def test_rows_fit_their_table():
    assert "2 columns" in told(Table, ("a", "b"), [("1",)])
