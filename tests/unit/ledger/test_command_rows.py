"""Commands as rows: their form and signatures, what they amount to, a stage's clock, and pay after an early end."""

import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.auditions import an_audition_offer
from helpers.commanded_jobs import soon
from helpers.participants import an_offer
from truthfl.contracts.audition.joint import JointAudition
from truthfl.errors import InputError
from truthfl.federation.operator.live_status import LABELING, LiveWriter, ServingInfo, read_serving, write_serving
from truthfl.federation.operator.live_status import SERVING_FILE as FILE_NAME
from truthfl.federation.protocol import job_control
from truthfl.federation.protocol.job_control import JobControl, StageClock
from truthfl.ledger.book import open_ledger
from truthfl.ledger.command_rows import give_command
from truthfl.ledger.commands import (
    OWN_FIELDS,
    Command,
    CommandState,
    command_fault,
    new_command,
    read_command,
    time_text,
)
from truthfl.ledger.documents import signed
from truthfl.ledger.evidence import SoloEvidence
from truthfl.ledger.settlement import counted_loss, settled_for
from truthfl.ledger.signing import new_key, public_line

KEY = new_key()
LINE = public_line(KEY)
VALUES = {"until": "2026-05-01T14:05:00.000+00:00", "expires": "2026-05-01T14:05:00.000+00:00"}


def of_kind(kind):
    return new_command(kind, "job-1", "Olga", "why not", **{name: VALUES.get(name, "x") for name in OWN_FIELDS[kind]})


@pytest.mark.parametrize("kind", OWN_FIELDS)
def test_every_kind_of_command_is_signed_and_read_back(kind):
    command = of_kind(kind)
    row = signed(KEY, command.document())
    assert command_fault(row, "job-1", LINE) is None
    assert read_command(row) == command


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"kind": "gift"}, "it is of no known kind"),
        ({"kind": ["end"]}, "it is of no known kind"),
        ({"job": "job-2"}, "it is for another job"),
        ({"why": "line\nline"}, "its why is no text of up to 300 letters without control characters"),
        ({"why": 7}, "its why is no text of up to 300 letters without control characters"),
        ({"by": " "}, "its by is no text of up to 200 letters without control characters"),
        ({"at": "noon"}, "its at is no time"),
        ({"at": "2026-05-01T14:05"}, "its at is no time"),
        ({"until": "never"}, "its until is no time"),
        ({"more": "x"}, "it does not have the parts of the command extend"),
    ],
)
def test_a_malformed_command_is_refused_though_the_operator_signed_it(change, fault):
    assert command_fault(signed(KEY, of_kind("extend").document() | change), "job-1", LINE) == fault


def test_a_command_of_another_key_or_without_signature_is_refused():
    document = of_kind("end").document()
    assert command_fault(signed(new_key(), document), "job-1", LINE) == "its signature is not of the job's operator"
    assert command_fault(document, "job-1", LINE) == "it is no signed document"
    with pytest.raises(InputError, match="this command cannot be given: its why is no text"):
        new_command("end", "job-1", "Olga", "x" * 301)


def test_of_two_who_command_at_the_same_time_the_second_decides_again(tmp_path):
    with open_ledger(tmp_path / "ledger.db", KEY) as book, open_ledger(tmp_path / "ledger.db", KEY) as other:
        decided = []

        def decide():
            decided.append(len(book.entries("job-1", "command")))
            return of_kind("resume")

        count = book.entries

        def entries(*which):
            found = count(*which)
            if len(decided) == 1 and not found:  # the other one writes after this one has counted
                give_command(other, "job-1", KEY, lambda: of_kind("pause"))
            return found

        book.entries = entries
        assert give_command(book, "job-1", KEY, decide).key == "2"
        assert decided == [0, 1]


def at(seconds):
    return time_text(datetime(2026, 5, 1, 12, tzinfo=UTC) + timedelta(seconds=seconds))


def test_what_commands_amount_to():
    commands = [
        Command("extend", "j", "O", "", at(0), {"stage": LABELING, "until": at(600)}),
        Command("pause", "j", "O", "", at(10)),
        Command("remove", "j", "O", "left", at(20), {"client": "Ben"}),
        Command("remove", "j", "O", "again", at(21), {"client": "Ben"}),
        Command("resume", "j", "O", "", at(70)),
        Command("pause", "j", "O", "", at(80)),
    ]
    state = reduce(CommandState.after, commands, CommandState())
    assert state.paused
    assert state.removed == {"Ben": "removed by the operator: left"}
    assert time_text(state.extended[LABELING]) == at(660)  # later by the pause
    ended = state.after(Command("end", "j", "O", "", at(90)))
    assert (ended.paused, ended.ended.at) == (False, at(90))


class Rows:
    """A ledger's commands to job-1, given by hand."""

    def __init__(self, folder):
        self.book = open_ledger(folder / "ledger.db", KEY)

    def give(self, kind, **fields):
        give_command(self.book, "job-1", KEY, lambda: new_command(kind, "job-1", "Olga", **fields))

    def control(self):
        return JobControl(self.book, "job-1", LINE)

    def clock(self, seconds, control=None, **how):
        return StageClock(control or self.control(), LiveWriter(None, ""), LABELING, seconds, lambda: None, **how)


@pytest.fixture
def rows(tmp_path):
    made = Rows(tmp_path)
    yield made
    made.book.close()


def test_a_clock_asks_soon_at_first_and_then_less_often(monkeypatch):
    slept, now = [], [1000.0]
    monkeypatch.setattr(job_control.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(
        job_control.time, "sleep", lambda seconds: (slept.append(seconds), now.__setitem__(0, now[0] + seconds))
    )
    clock, lengths = StageClock(JobControl(), LiveWriter(None, ""), LABELING, 60.0, lambda: None), []
    while not clock.over:
        before = now[0]
        clock.wait()
        lengths.append(now[0] - before)
    assert lengths[:3] == pytest.approx([0.05, 0.075, 0.1125])
    assert max(lengths) == pytest.approx(2.0)
    assert sum(lengths) == pytest.approx(60.0)
    assert max(slept) <= 0.3


def test_a_clock_heeds_extensions_also_of_an_earlier_start(rows):
    clock = rows.clock(0.0)
    assert clock.over
    rows.give("extend", stage=LABELING, until=soon(50))
    clock.control.poll(at_once=True)
    assert not clock.over
    assert 45 < clock.seconds_left <= 50
    assert 45 < rows.clock(0.0).seconds_left <= 50  # a server that is started again
    rows.give("extend", stage="offering", until=soon(500))
    assert rows.clock(0.0).seconds_left <= 50


def test_a_clock_is_over_when_the_job_ends_unless_pay_depends_on_the_stage(rows):
    rows.give("end")
    assert rows.clock(60.0).over
    assert not rows.clock(60.0, ends_with_job=False).over


def test_a_pause_moves_the_deadline(rows, monkeypatch):
    rows.give("pause")
    clock = rows.clock(0.2)
    slept = []

    def sleep(seconds):
        fell_asleep = time.monotonic()
        if len(slept) == 2:
            rows.give("resume")
        real(min(seconds, 0.15))
        slept.append(time.monotonic() - fell_asleep)

    real = time.sleep
    monkeypatch.setattr(job_control.time, "sleep", sleep)
    monkeypatch.setattr("truthfl.federation.protocol.job_control.SECONDS_BETWEEN_READS", 0.0)
    assert not clock.over
    began = time.monotonic()
    deadline = clock.deadline
    clock._hold()
    assert sum(slept) <= clock.deadline - deadline <= time.monotonic() - began
    assert len(slept) == 3
    assert not clock.control.paused


def test_commands_are_not_looked_for_in_every_round(rows):
    control, asked = rows.control(), []
    entries = rows.book.entries
    rows.book.entries = lambda *a, **k: (asked.append(a), entries(*a, **k))[1]
    for _ in range(1000):
        control.poll()
    assert len(asked) <= 2


LOSSES = st.floats(0.05, 5.0)
OPERATOR = new_key()
RISE = (0.9, 0.4, 0.2, 0.1, 0.05, 0.0)
AUDITIONED = an_audition_offer(new_key(), OPERATOR, kind=JointAudition, loss_by_rounds=RISE)
PAID_FIXED = an_audition_offer(new_key(), OPERATOR)
BY_LOSS = an_offer(new_key(), OPERATOR, rounds=5)
BY_ROUNDS = an_offer(new_key(), OPERATOR, rounds=5, loss_by_rounds=RISE)


@given(loss=LOSSES, solo=st.floats(0.1, 3.0), delivered=st.integers(0, 5), rise=st.floats(0, 1))
def test_pay_after_an_early_end_or_a_removal_is_the_share_within_the_caps(loss, solo, delivered, rise):
    evidence = SoloEvidence(solo, 0.0, 150.0, rise)
    for offer, most in ((AUDITIONED, "joint_cap"), (PAID_FIXED, "computing_base")):
        one, all_ = (settled_for(offer, loss, number, 5, evidence) for number in (delivered, 5))
        assert 0 <= one.parts["label_pay"] <= offer.client.pay["label_cap"]
        assert 0 <= one.parts["computing_pay"] <= offer.client.pay[most] * delivered / 5 + 1e-9
        assert one.parts["computing_pay"] == pytest.approx(all_.parts["computing_pay"] * delivered / 5)
        assert one.parts["label_pay"] == all_.parts["label_pay"]


@given(loss=LOSSES, delivered=st.integers(0, 5))
def test_nobody_is_paid_less_for_a_loss_that_the_operators_end_left_high(loss, delivered):
    counted = counted_loss(BY_LOSS, loss, ended=True)
    assert counted == min(loss, BY_LOSS.job.expected_loss)
    assert counted_loss(BY_LOSS, loss, ended=False) == loss
    assert counted_loss(AUDITIONED, loss, ended=True) == loss
    pay = settled_for(BY_LOSS, counted, delivered, 5).amount
    assert pay >= BY_LOSS.expected_pay * delivered / 5 - 1e-9


@given(loss=LOSSES, rise=st.floats(0, 6), ended=st.booleans())
def test_rounds_that_did_not_change_the_model_take_their_rise_off_the_tested_loss(loss, rise, ended):
    assert counted_loss(BY_ROUNDS, loss, rise, ended=ended) == max(loss - rise, 0.0)
    assert counted_loss(BY_ROUNDS, loss, 0.0, ended=ended) == loss  # all of them changed it
    assert counted_loss(AUDITIONED, loss, rise, ended=ended) == loss  # there the expected loss is higher


@given(loss=LOSSES, solo=st.floats(0.1, 1.3), delivered=st.integers(0, 5), rise=st.floats(0, 1))
def test_a_lost_model_is_paid_as_at_the_expected_loss(loss, solo, delivered, rise):
    for offer in (BY_LOSS, BY_ROUNDS):
        counted = counted_loss(offer, loss, rise, ended=True, lost=True)
        assert settled_for(offer, counted, delivered, 5).amount == pytest.approx(offer.expected_pay * delivered / 5)
    evidence = SoloEvidence(solo, 0.0, 150.0, rise)
    for offer in (AUDITIONED, PAID_FIXED):
        counted = counted_loss(offer, loss, rise, ended=True, lost=True, evidence=evidence)
        one = settled_for(offer, counted, delivered, 5, evidence, rise)
        assert one.parts["computing_pay"] == pytest.approx(offer.client.pay["computing_base"] * delivered / 5)
        assert one.parts["label_pay"] == settled_for(offer, loss, delivered, 5, evidence, rise).parts["label_pay"]


def test_how_a_server_was_started_is_kept_for_its_users_eyes_alone(tmp_path):
    assert read_serving(tmp_path) is None
    info = ServingInfo("job-1", "postgresql://o:secret@host/db", "keys/operator", "::1", 8443, "keys/ca.crt", "people")
    write_serving(tmp_path, info)
    assert read_serving(tmp_path) == info
    assert info.address == "[::1]:8443"
    assert replace(info, host="fl.example.org").address == "fl.example.org:8443"
    assert (tmp_path / FILE_NAME).stat().st_mode & 0o777 == 0o600
    for text in ("", "[]", "{}", '{"job": 1, "ledger": "", "key": "", "host": "", "port": 1}'):
        (tmp_path / FILE_NAME).write_text(text)
        with pytest.raises(InputError, match="cannot be read; truthfl serve writes it again"):
            read_serving(tmp_path)
