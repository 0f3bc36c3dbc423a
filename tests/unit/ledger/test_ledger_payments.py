"""Payments: lawful steps only, each taken once whoever takes it; what is exported is what stands in the ledger."""

import csv
import io
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from hashlib import sha256

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.commands import told
from helpers.databases import KEY
from truthfl.errors import InputError
from truthfl.ledger.book import open_ledger
from truthfl.ledger.entry import CheckedItem, Item, checked_item, entry_after, payload_text
from truthfl.ledger.payments import (
    COLUMNS,
    NEXT_STATES,
    PayoutRow,
    advance,
    advance_all,
    due_items,
    idempotency_key,
    payment_fault,
    payments,
    payout_csv,
    payout_json,
    payout_rows,
)

AMOUNTS = {"Ada": 1250, "Ben": -300, "a/1": 0}


@pytest.fixture(params=["sqlite", "postgresql"])
def ledger(request, tmp_path):
    where = tmp_path / "ledger.db" if request.param == "sqlite" else request.getfixturevalue("postgresql_database")
    with open_ledger(where, KEY) as opened:
        settled = [Item("cats", "settlement", client, {"pay": pay}) for client, pay in AMOUNTS.items()]
        opened.append_all([*settled, *due_items("cats", AMOUNTS, "EUR")])
        yield opened


@pytest.fixture(scope="module")
def one_ledger(tmp_path_factory):
    with open_ledger(tmp_path_factory.mktemp("one") / "ledger.db", KEY) as opened:
        yield opened


def steps_of(ledger, client="Ada"):
    return [entry.document["state"] for entry in ledger.entries("cats", "payment") if entry.key.startswith(client)]


def rows(*changes):
    """Entries of one lawful payment, with some of their parts changed: (step, part, value)."""
    said = [checked_item(item) for item in due_items("cats", {"Ada": 5}, "EUR")]
    document = {"client": "Ada", "amount": 5, "currency": "EUR", "idempotency_key": idempotency_key("cats", "Ada")}
    for number, (state, reference) in enumerate([("sent", "r1"), ("failed", "r1"), ("sent", "r2"), ("confirmed", "")]):
        text = payload_text(document | {"state": state, "reference": reference})
        said.append(CheckedItem("cats", "payment", f"Ada/{number + 1}", text))
    made = []
    for draft in said:
        made.append(entry_after(made[-1] if made else None, draft, "", ""))
    for step, part, value in changes:
        if part in ("key", "kind", "payload"):
            made[step] = replace(made[step], **{part: value})
        else:
            made[step] = replace(made[step], payload=payload_text(made[step].document | {part: value}))
    return made


def test_payments_are_due_with_the_settlement(ledger):
    found = payments(ledger, "cats")
    assert {payment.client: payment.amount for payment in found} == AMOUNTS
    assert [payment.state for payment in found] == ["due", "not due", "not due"]
    assert {(payment.currency, payment.reference, payment.step) for payment in found} == {("EUR", "", 0)}
    document = ledger.find("cats", "payment", "a/1/0").document
    assert document == {
        "client": "a/1",
        "state": "not due",
        "amount": 0,
        "currency": "EUR",
        "idempotency_key": idempotency_key("cats", "a/1"),
        "reference": "",
    }
    assert payments(ledger, "dogs") == []


def test_idempotency_keys_differ_by_job_and_client_and_stay():
    assert idempotency_key("cats", "Ada") == sha256(b'{"client":"Ada","job":"cats"}').hexdigest()
    names = [("ab", "c"), ("a", "bc"), ("a", "b"), ('a","client":"b', "")]
    assert len({idempotency_key(job, client) for job, client in names}) == len(names)


def test_a_payment_that_fails_is_sent_again_under_the_same_key(ledger):
    for to, reference in [("sent", "tx 1"), ("failed", "no such account"), ("sent", "tx 2"), ("confirmed", "")]:
        now = advance(ledger, "cats", "Ada", to, reference)
        assert (now.state, now.reference, now.amount) == (to, reference or "tx 2", 1250)
        assert now in payments(ledger, "cats")
    keys = {entry.document["idempotency_key"] for entry in ledger.entries("cats", "payment") if "Ada" in entry.key}
    assert keys == {idempotency_key("cats", "Ada")}
    assert payment_fault(ledger.entries(kind="payment")) is None
    assert {payment.client: payment.state for payment in payments(ledger, "cats")} == {
        "Ada": "confirmed",
        "Ben": "not due",
        "a/1": "not due",
    }


def test_saying_it_again_changes_nothing(ledger):
    for _ in range(3):
        assert advance(ledger, "cats", "Ada", "sent", "tx 1").step == 1
    advance(ledger, "cats", "Ada", "confirmed", "tx 1")
    assert advance(ledger, "cats", "Ada", "sent", "tx 1").state == "confirmed"
    assert advance(ledger, "cats", "Ada", "confirmed", "tx 1").state == "confirmed"
    for to in ("sent", "confirmed"):
        assert advance(ledger, "cats", "Ada", to).reference == "tx 1"
    assert steps_of(ledger) == ["due", "sent", "confirmed"]


def test_what_is_confirmed_or_failed_keeps_its_reference(ledger):
    advance(ledger, "cats", "Ada", "sent", "tx 1")
    assert advance(ledger, "cats", "Ada", "failed").reference == "tx 1"
    assert advance(ledger, "cats", "Ada", "sent").reference == ""
    assert advance(ledger, "cats", "Ada", "confirmed", "tx 3").reference == "tx 3"


def test_marking_all_skips_those_who_are_further(ledger):
    ledger.append_all(due_items("cats", {"Cleo": 7, "Dora": 8}, "EUR"))
    advance(ledger, "cats", "Ada", "sent", "tx 1")
    advance(ledger, "cats", "Ada", "confirmed")
    advance(ledger, "cats", "Dora", "sent", "tx 2")
    changed, skipped = advance_all(ledger, "cats", "sent", "batch 9")
    assert [(payment.client, payment.reference) for payment in changed] == [("Cleo", "batch 9")]
    assert [payment.client for payment in skipped] == ["Ada", "Ben", "a/1", "Dora"]
    assert advance_all(ledger, "cats", "sent", "batch 9")[0] == []
    assert [payment.client for payment in advance_all(ledger, "cats", "confirmed")[0]] == ["Cleo", "Dora"]
    assert {payment.client: (payment.state, payment.reference) for payment in payments(ledger, "cats")} == {
        "Ada": ("confirmed", "tx 1"),
        "Ben": ("not due", ""),
        "a/1": ("not due", ""),
        "Cleo": ("confirmed", "batch 9"),
        "Dora": ("confirmed", "tx 2"),
    }
    assert told(advance_all, ledger, "cats", "failed") == (
        "no payment of job 'cats' can become failed: Ada is confirmed, Ben is not due, a/1 is not due, "
        "Cleo is confirmed, Dora is confirmed."
    )
    assert payment_fault(ledger.entries(kind="payment")) is None


@pytest.mark.parametrize("client", ["Ben", "a/1"])
def test_what_is_not_due_is_not_sent(ledger, client):
    assert told(advance, ledger, "cats", client, "sent") == (
        f"the payment of client {client!r} in job 'cats' is not due and cannot become sent; that is its last state."
    )


def test_a_payment_of_nothing_is_not_due():
    due = due_items("cats", {"Ada": 5}, "EUR")[0]
    entry = entry_after(None, checked_item(replace(due, payload=dict(due.payload) | {"amount": 0})), "", "ab" * 16)
    assert "it is the first, of 0, and must be not due" in payment_fault([entry]).message


def test_a_second_attempt_may_have_the_same_reference(ledger):
    for to in ("sent", "failed", "sent", "failed"):
        advance(ledger, "cats", "Ada", to)
    assert steps_of(ledger) == ["due", "sent", "failed", "sent", "failed"]


def test_steps_that_are_not_lawful_get_a_sentence(ledger):
    whose = "the payment of client 'Ada' in job 'cats' is"
    assert told(advance, ledger, "cats", "Ada", "confirmed") == (
        f"{whose} due and cannot become confirmed; it can become sent."
    )
    advance(ledger, "cats", "Ada", "sent", "tx 1")
    assert told(advance, ledger, "cats", "Ada", "sent", "tx 2") == (
        f"{whose} sent (reference 'tx 1') and cannot become sent; it can become confirmed or failed."
    )
    advance(ledger, "cats", "Ada", "confirmed")
    assert told(advance, ledger, "cats", "Ada", "failed") == (
        f"{whose} confirmed (reference 'tx 1') and cannot become failed; that is its last state."
    )
    assert told(advance, ledger, "cats", "Ada", "lost") == (
        "a payment cannot become 'lost'; it can become sent, confirmed or failed."
    )
    assert told(advance, ledger, "cats", "Eve", "sent") == (
        "job 'cats' has no payment of client 'Eve'; it is opened when the job is settled."
    )
    assert steps_of(ledger) == ["due", "sent", "confirmed"]


def test_of_many_who_send_at_once_one_does(ledger):
    start = threading.Barrier(20)

    def send(number):
        start.wait()
        try:
            return advance(ledger, "cats", "Ada", "sent", f"tx {number % 4}").reference
        except InputError as error:
            return "refused" if "cannot become sent" in str(error) else str(error)

    with ThreadPoolExecutor(20) as pool:
        said = list(pool.map(send, range(20)))
    assert steps_of(ledger) == ["due", "sent"]
    winner = payments(ledger, "cats")[0].reference
    assert said == [winner if f"tx {number % 4}" == winner else "refused" for number in range(20)]


def test_of_confirmed_and_failed_one_happens(ledger):
    advance(ledger, "cats", "Ada", "sent")
    start = threading.Barrier(2)

    def end(to):
        start.wait()
        try:
            return advance(ledger, "cats", "Ada", to).state
        except InputError:
            return None

    with ThreadPoolExecutor(2) as pool:
        said = set(pool.map(end, ["confirmed", "failed"]))
    assert said == {None, payments(ledger, "cats")[0].state}
    assert len(steps_of(ledger)) == 3


@given(st.lists(st.tuples(st.sampled_from([*NEXT_STATES]), st.sampled_from(["", "tx"])), max_size=12))
def test_whatever_is_asked_the_ledger_stays_lawful(one_ledger, wishes):
    job = f"job {len(one_ledger.jobs())}"
    one_ledger.append_all(due_items(job, {"Ada": 7}, "EUR"))
    for to, reference in wishes:
        before = payments(one_ledger, job)[0]
        try:
            now = advance(one_ledger, job, "Ada", to, reference)
        except InputError:
            assert to not in NEXT_STATES[before.state]
            now = before
        assert payments(one_ledger, job) == [now]
        assert now == before or (now.step == before.step + 1 and to in NEXT_STATES[before.state])
    assert payment_fault(one_ledger.entries(job, "payment")) is None


@pytest.mark.parametrize("amount", [1.5, "12", None, True, 1.0, np.float64(2)])
def test_amounts_are_whole(amount):
    assert told(due_items, "cats", {"Ada": amount}, "EUR").endswith("it must be a whole number of minor units.")
    assert due_items("cats", {"Ada": np.int64(3)}, "EUR")[0].payload["amount"] == 3
    assert (
        told(due_items, "cats", {"Ada": 3}, "") == "the currency of a payment is empty; it must be a text, as in 'EUR'."
    )


@pytest.mark.parametrize(
    ("changes", "position", "what"),
    [
        ([(0, "state", "sent")], 0, "it is the first, of 5, and must be due"),
        ([(0, "reference", "r")], 0, "it is the first, of 5, and must be due"),
        ([(1, "state", "confirmed")], 1, "what was due became confirmed"),
        ([(3, "state", "confirmed")], 3, "what was failed became confirmed"),
        ([(2, "amount", 6)], 2, "the amount or the currency is not the one that was due"),
        ([(2, "currency", "USD")], 2, "the amount or the currency is not the one that was due"),
        ([(2, "amount", 5.0)], 2, "its amount is not a whole number"),
        ([(2, "amount", True)], 2, "its amount is not a whole number"),
        ([(2, "reference", None)], 2, "its reference is not text"),
        ([(2, "state", "lost")], 2, "'lost' is no state of a payment"),
        ([(2, "client", "Eve")], 2, "its key is not the client's name and the number of the step"),
        ([(2, "key", "Ada/02")], 2, "its key is not the client's name and the number of the step"),
        ([(2, "key", "Ada/x")], 2, "its key is not the client's name and the number of the step"),
        ([(2, "key", "Ada/7")], 2, "it is step 7 behind step 1"),
        ([(2, "idempotency_key", "0" * 64)], 2, "its idempotency key is not the one of this job and client"),
        ([(2, "kind", "test")], 2, "it is of kind 'test'"),
        ([(2, "payload", "{}")], 2, "it must have the parts client, state"),
        ([(2, "payload", "no JSON")], 2, "its payload cannot be read"),
    ],
)
def test_what_is_wrong_with_payments_is_said(changes, position, what):
    assert payment_fault(rows()) is None
    fault = payment_fault(rows(*changes))
    assert fault.position == position
    assert fault.message.startswith(f"entry {position + 1} is no lawful step of a payment: {what}")


def test_exports_have_every_payment_as_it_stands(ledger):
    ledger.append_all(due_items("dogs", {"Ada": 10}, "EUR"))
    advance(ledger, "cats", "Ada", "sent", "tx, 7")
    found = payout_rows(ledger)
    assert [(row.job, row.client, row.amount_minor, row.state) for row in found] == [
        ("cats", "Ada", 1250, "sent"),
        ("cats", "Ben", -300, "not due"),
        ("cats", "a/1", 0, "not due"),
        ("dogs", "Ada", 10, "due"),
    ]
    assert payout_rows(ledger, "dogs") == found[3:]
    assert payout_rows(ledger, "birds") == []
    assert [PayoutRow(**row) for row in json.loads(payout_json(found))] == found
    read = list(csv.reader(io.StringIO(payout_csv(found))))
    assert read[0] == list(COLUMNS)
    assert read[0] == [
        "idempotency_key",
        "job",
        "client",
        "amount_minor",
        "currency",
        "state",
        "reference",
        "minor_units",
    ]
    assert read[1][1:] == ["cats", "Ada", "1250", "EUR", "sent", "tx, 7", "1"]
    assert read[2][1:] == ["cats", "Ben", "-300", "EUR", "not due", "", "1"]


@pytest.mark.parametrize("name", ["=1+1", "+1", "-1", "@SUM(A1)", " =1", "\t=1", "\tx", "\r\nx", "\uff1d1", "\u00a0=1"])
def test_no_text_of_a_csv_is_a_formula(name):
    row = PayoutRow("k", name, name, -5, name, "due", name)
    _, read = csv.reader(io.StringIO(payout_csv([row]), newline=""))
    assert read == ["k", f"'{name}", f"'{name}", "-5", f"'{name}", "due", f"'{name}", "1"]
    assert json.loads(payout_json([row]))[0]["client"] == name


@given(st.text(st.characters(codec="utf-8"), max_size=6))
def test_a_csv_reads_back_and_begins_no_formula(name):
    _, read = csv.reader(io.StringIO(payout_csv([PayoutRow("k", "j", name, 1, "EUR", "due", "")]), newline=""))
    assert read[2].removeprefix("'") == name.removeprefix("'")
    assert not read[2].strip().startswith(("=", "+", "-", "@"))
