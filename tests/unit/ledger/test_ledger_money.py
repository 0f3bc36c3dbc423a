"""Amounts as people read them: in units of the currency; a currency is a word."""

import pytest

from helpers.commands import told
from helpers.participants import an_offer
from helpers.small_jobs import SMALL_JOB
from truthfl.amounts import amount_text, decimal_places, minor_amount_text, minor_money
from truthfl.errors import InputError
from truthfl.job import ServerSettings, read_job
from truthfl.ledger.signing import new_key
from truthfl.ledger.terms import offer_from


@pytest.mark.parametrize(
    ("minor", "minor_units", "shown"),
    [
        (23009, 100, "230.09 EUR"),
        (-5, 100, "-0.05 EUR"),
        (0, 100, "0.00 EUR"),
        (123456789, 1000, "123,456.789 EUR"),
        (23009, 1, "23,009 EUR"),
        (9_007_199_254_740_993, 100, "90,071,992,547,409.93 EUR"),
        (18, 12, "1.50 EUR"),
    ],
)
def test_minor_units_are_shown_in_units(minor, minor_units, shown):
    assert minor_money(minor, minor_units, "EUR") == shown
    assert f"{minor_amount_text(minor, minor_units)} EUR" == shown


def test_decimal_places_show_every_minor_unit():
    assert [decimal_places(units) for units in (1, 5, 10, 100, 240, 1000)] == [0, 1, 1, 2, 3, 3]
    assert amount_text(1234.5678, 100) == "1,234.57"


@pytest.mark.parametrize("currency", ["", "E U R", "EU\u001b[31mR", "EUR\n", "\u202eRUE", "x" * 21])
def test_a_currency_is_a_word(tmp_path, currency):
    path = tmp_path / "job.toml"
    escaped = currency.encode("unicode_escape").decode().replace("\\x", "\\u00")
    path.write_text(SMALL_JOB.replace("loss_value", f'currency = "{escaped}"\nloss_value'))
    said = told(read_job, path)
    assert "it must be three letters, as EUR, or a word of at most 20 letters" in said
    assert said.isprintable()


@pytest.mark.parametrize(
    ("name", "value", "what"),
    [
        ("currency", "EU\u001b[31mR", "its currency is no word"),
        ("currency", "", "its currency is no word"),
        ("currency", 7, "its currency is no word"),
        ("minor_units", 0, "minor_units is no whole number from 1 on"),
        ("minor_units", 1.5, "minor_units is no whole number from 1 on"),
    ],
)
def test_an_offer_with_money_that_is_none_is_refused(name, value, what):
    document = an_offer(new_key(), new_key()).document()
    document["job"][name] = value
    assert told(offer_from, document).startswith(f"this is no offer: {what}")


@pytest.mark.parametrize(
    ("currency", "units"),
    [("EUR", 100), ("CHF", 100), ("JPY", 1), ("KWD", 1000), ("cent", 1), ("points", 1), ("eur", 1), ("ÄÖÜ", 1)],
)
def test_minor_units_follow_from_the_currency_unless_the_job_says_otherwise(currency, units):
    assert ServerSettings(currency=currency).minor_units == units
    assert ServerSettings(currency=currency, minor_units=7).minor_units == 7
    with pytest.raises(InputError, match="minor_units"):
        ServerSettings(currency=currency, minor_units=0)


def test_the_job_warns_of_labels_that_cannot_be_made_in_time():
    (warning,) = ServerSettings(label_seconds=300.0).label_time_warnings(109)
    assert "up to 109 labels at 3 seconds each take 327 seconds, and label_seconds is 300" in warning
    assert ServerSettings(label_seconds=327.0).label_time_warnings(109) == []
