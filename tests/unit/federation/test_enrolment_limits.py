"""What participants say of themselves: checked on its own, refused or left out in words, and the job goes on."""

import json
from dataclasses import replace

import numpy as np
import pytest
from flwr.app import Array, ConfigRecord, RecordDict
from hypothesis import event, example, given
from hypothesis import strategies as st

from helpers import databases as ledgers
from helpers.auditions import Meddler, other_reply
from helpers.commanded_jobs import BEN, Job
from helpers.commands import told, truthfl
from helpers.participants import an_offer
from truthfl.errors import InfeasibleError, InputError
from truthfl.federation.operator.kept_jobs import kept_key
from truthfl.federation.participant.signatory import offer_text_fault
from truthfl.federation.protocol.enrolment import (
    Roster,
    StatedLimits,
    checked_description,
    limits_of,
    reckoned,
    require_within,
)
from truthfl.federation.protocol.messages import DOCUMENT, MAX_REPLY_LENGTH
from truthfl.federation.protocol.planned_offers import planned_offers
from truthfl.federation.protocol.promise import Opening
from truthfl.federation.protocol.reports import array_or_reason
from truthfl.federation.protocol.server import job_name
from truthfl.home import participant_folder
from truthfl.job import ServerSettings
from truthfl.learning.pilot.runs import PilotDesign
from truthfl.ledger.book import open_ledger
from truthfl.ledger.canonical import canonical_bytes
from truthfl.ledger.checking import check
from truthfl.ledger.signing import new_key, public_line
from truthfl.texts import is_plain, plain

QUICK = PilotDesign(seeds=2, honest_seeds=4, batch_sizes=(4, 8, 16))


@pytest.fixture(scope="module")
def plans():
    """Plans, made once per set of clients."""
    made = {}

    def plan(job, side):
        key = json.dumps(job.document(), sort_keys=True)
        if key not in made:
            made[key] = job.plan(side, QUICK)
        return made[key]

    return plan


OTHERS = ["Ada", "Cleo", "Dora"]
SAID = {
    "four pictures": ({"samples": 4}, "Ben brings 4 samples; the job asks for 10 or more."),
    "hardly a cost": ({"sample_cost": 1e-29}, "sample_cost is 1e-29; the job reckons with 0.05, and lower ones are"),
    "labels for nothing": (
        {"labeling_cost": 0.1},
        "labeling_cost is 0.1; the job reckons with 120, and lower ones are",
    ),
    "escape codes": ({"name": "Ben\x1b[2J"}, "name is 'Ben\\x1b[2J'; it must be a text of 1 to 200 letters"),
    "a long word": ({"sample_cost": "9" * 10_000}, "sample_cost is '999"),
    "many axes": ({"image_shape": [8] * 5_000}, "Ben's pictures are [8, 8, "),
    "more fields": ({"\x1b[2J" * 50: 1}, "a client's description consists of "),
}


@pytest.mark.parametrize("case", SAID)
def test_somebody_who_says_what_cannot_be_is_refused_and_the_others_are_not(tmp_path, case):
    said, reason = SAID[case]
    names, rejected, news = Job(tmp_path, ben=said).enrolled()
    assert names == OTHERS
    (one,) = rejected
    assert one.startswith(reason)
    assert is_plain(one, 300)
    assert news == f"The operator's server does not admit you: {one}"


def test_half_a_letter_and_a_long_document_end_nothing(tmp_path):
    """JSON can spell half of a surrogate pair; the ledger cannot keep it."""
    texts = ['{"name":"\\ud800"}', json.dumps({"name": "B" * MAX_REPLY_LENGTH})]
    reasons = ["a document cannot be written down", "the document has 20,012 characters; at most 20,000 are read."]
    for text, reason in zip(texts, reasons, strict=True):
        place = tmp_path / str(len(text))  # a second one of the same cause is counted, and no row
        place.mkdir()
        setting = Job(place)

        def change(reply, text=text):
            if reply.metadata.src_node_id != BEN or "enrol" not in reply.metadata.message_type:
                return [reply]
            return [other_reply(RecordDict({DOCUMENT: ConfigRecord({"document": text})}), reply)]

        names, rejected, _ = setting.enrolled(Meddler(setting.grid, change))
        assert names == OTHERS
        assert rejected[-1].startswith(reason)


def test_the_reason_of_a_refused_report_is_bounded():
    common = np.zeros(3, dtype=np.float32)
    sent = Array(common)
    sent.dtype = "f\x1b[2J" * 1_000_000
    assert array_or_reason(sent, common) == "its dtype is f\\x1b[2Jf\\x1b[2Jf\\x1b[2Jf\\x1b…, not float32"
    sent = Array(common)
    sent.shape = [1] * 1_000_000
    assert is_plain(array_or_reason(sent, common), 100)


def test_costs_scale_with_the_samples_brought():
    limits = StatedLimits(10, 100, 2.0, 0.01)

    def numbers(**said):
        one = reckoned({"name": "Ben", "samples": 100} | said, limits, 200.0)
        return one.samples, one.labeling_cost, one.sample_cost

    assert numbers() == (100, 200.0, 0.01)
    assert numbers(samples=25) == (25, 50.0, 0.01)
    assert numbers(samples=400) == (100, 200.0, 0.01)
    assert numbers(samples=400, labeling_cost=400.0, sample_cost=0.005) == (100, 100.0, 0.005)
    assert numbers(samples=25, labeling_cost=1e9, sample_cost=1e9) == (25, 50.0, 0.01)


def test_a_client_need_not_bring_more_than_the_job_says_that_they_have(tmp_path):
    job = Job(tmp_path, fewest_samples=100).job
    limits = limits_of(job)
    assert [limits[name].fewest_samples for name in job.clients.name] == [100, 100, 100, 90]
    require_within({"name": "Dora", "samples": 90}, limits["Dora"])
    assert told(require_within, {"name": "Ada", "samples": 99}, limits["Ada"]).startswith("Ada brings 99 samples")


def test_one_sample_of_many_is_not_paid_a_fortune(tmp_path, plans):
    """Where any number of samples is taken: they are left out in words, the others are paid, also when asked again."""
    setting = Job(tmp_path, plans, {"samples": 1}, fewest_samples=1)
    stopped = []

    def stop(plan):
        stopped.append(plan)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        setting.go(stop)
    found = setting.go()
    assert [offer.client.name for offer in found.agreement.offers] == OTHERS
    assert found.finished
    reason = found.plans[-1].document["left_out"]["Ben"]
    assert reason == stopped[0].left_out["Ben"]
    assert reason.startswith("an offer would pay an expected ")
    assert reason.endswith(" for work that costs 1.15, and most_expected_pay allows 30 times the cost")
    assert participant_folder.news(setting.people[BEN].folder) == (f"You are not asked this time: {reason}.", True)
    assert [entry.document["client"] for entry in found.rejections if entry.document["stage"] == "plan"] == ["Ben"]
    assert check(setting.entries()) is None
    for offer in found.agreement.offers:
        assert offer.expected_pay <= 30 * offer.cost


def test_what_an_earlier_server_let_in_is_left_out_when_the_command_is_given_again(tmp_path, plans):
    setting = Job(tmp_path, plans)
    ben = setting.people[BEN]
    with open_ledger(setting.folder / "ledger.db", kept_key(setting.folder / "operator")) as book:
        name = job_name(book, setting.job, 5)
        let_in = {"name": "Ben", "samples": 1, "public_key": public_line(ben.key), "sample_cost": 1e-29}
        book.append(name, "enrolment", "Ben", let_in)
    found = setting.go()
    assert [offer.client.name for offer in found.agreement.offers] == OTHERS
    assert found.plans[-1].document["left_out"]["Ben"] == "Ben brings 1 sample; the job asks for 10 or more"
    assert found.finished


def roster_of(job, **said):
    """Everybody as the job knows them; and Ben as he says."""
    roster = Roster(None, None, "j", job.clients.name, job.server, (8, 8, 1), limits=limits_of(job))
    for name, size in zip(job.clients.name, job.clients.dataset_size, strict=True):
        roster.descriptions[name] = {"name": name, "samples": size, "public_key": public_line(new_key())}
    roster.descriptions["Ben"] |= said
    return roster


def offered(job, make_plan, **said):
    opening, names = Opening(1, "ab" * 32, public_line(new_key()), "cd" * 32), list(job.clients.name)
    return planned_offers(roster_of(job, **said), job, make_plan, opening, None, names, 1)


def test_somebody_who_has_no_feasible_offer_is_left_out(tmp_path, plans):
    job = Job(tmp_path).job

    def infeasible_for_ben(planned, side):
        if "Ben" in planned.clients.name:
            raise InfeasibleError("no batch makes labeling worth while for Ben.", (planned.clients.name.index("Ben"),))
        return plans(planned, side)

    plan, agreement = offered(job, infeasible_for_ben)
    assert plan["left_out"] == {"Ben": "no batch makes labeling worth while for Ben"}
    assert [offer.client.name for offer in agreement.offers] == OTHERS

    def infeasible(planned, _):
        raise InfeasibleError("nothing is feasible.", tuple(range(len(planned.clients))))

    with pytest.raises(InfeasibleError, match="nothing is feasible"):
        offered(job, infeasible)


@pytest.mark.parametrize(
    ("server", "sentence"),
    [
        ({"most_expected_pay": 1.01}, "client 0 (Ada): an offer would pay an expected "),
        (
            {"budget": 500.0, "budget_bounds": "caps"},
            "budget_bounds is \"caps\", and pay under the contract 'lceme' has",
        ),
        ({"budget": 500.0}, "budget is 500; expected pay is "),
    ],
)
def test_no_offer_goes_out_beyond_the_jobs_limits(tmp_path, plans, server, sentence):
    job = Job(tmp_path).job
    limited = replace(job, server=replace(job.server, **server))
    assert told(offered, limited, lambda planned, side: plans(replace(planned, server=job.server), side)).startswith(
        sentence
    )


def test_the_limits_are_settings_of_the_job(tmp_path):
    assert "fewest_samples is 0" in told(ServerSettings, fewest_samples=0)
    assert "most_expected_pay is 1; it must be above 1" in told(ServerSettings, most_expected_pay=1)
    job = Job(tmp_path).job
    assert replace(job, server=replace(job.server, fewest_samples=20)).document()["server"]["fewest_samples"] == 20


def test_nothing_is_offered_unless_the_plan_is_approved(tmp_path, plans):
    setting = Job(tmp_path, plans)
    with pytest.raises(InputError, match="the operator did not approve the plan; no offer was made"):
        setting.go(lambda _: False)
    kinds = {entry.kind for entry in setting.entries()}
    assert not kinds & {"plan", "offer"}
    assert "did not approve" in participant_folder.news(setting.people[BEN].folder)[0]
    asked = []

    def approve(plan):
        asked.append(plan)
        return True

    setting.people[BEN].decide = lambda _: False
    found = setting.go(approve)
    assert found.finished
    assert [offer.client.name for offer in found.agreement.offers] == OTHERS
    first = asked[0]
    assert [offer.client for offer in first.offers] == ["Ada", "Ben", "Cleo", "Dora"]
    assert first.total_expected == pytest.approx(sum(offer.expected_pay for offer in found.offers_of(1)))
    again = [plan for plan in asked[1:] if not first.covers(plan)]
    assert asked[1:] == again, "who approved four offers is asked about three only if these cost more"


LIMITS = StatedLimits(10, 100, 2.0, 0.01)
KEY = public_line(new_key())
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(exclude_categories=()))
FIELDS = {
    "name": SCALARS | st.just("Ben"),
    "samples": SCALARS | st.integers(1, 10**6),
    "public_key": SCALARS | st.just(KEY),
    "image_shape": st.lists(SCALARS, max_size=4) | st.just([8, 8, 1]),
}
COSTS = SCALARS | st.floats(1e-40, 1e40)


@given(st.fixed_dictionaries(FIELDS, optional={"labeling_cost": COSTS, "sample_cost": COSTS, "more": SCALARS}))
@example({"name": "Ben", "samples": 10**15, "public_key": KEY, "image_shape": [8, 8, 1], "labeling_cost": 1e30})
@example({"name": "Ben", "samples": 10, "public_key": KEY, "image_shape": [8, 8, 1], "sample_cost": 1e-4})
def test_whatever_a_participant_says_is_refused_in_words_or_within_the_jobs_numbers(said):
    try:
        description = checked_description(said, (8, 8, 1))
        require_within(description, LIMITS)
    except InputError as error:
        event(plain(error, 20))
        return
    canonical_bytes(description)
    own = reckoned(description, LIMITS, 200.0)
    assert 10 <= own.samples <= 100
    assert 0.01 * 2.0 * own.samples * (1 - 1e-9) <= own.labeling_cost <= 2.0 * own.samples
    assert 0.0001 <= own.sample_cost <= 0.01


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"currency": "\x1b[2J"}, "its currency is no text of at most 200 letters without control characters"),
        ({"formula": "f" * 20_000_000}, "its formula is no text of at most 2000 letters"),
        ({"dropping_out": "line\nline"}, "its dropping_out is no text"),
        ({"classes": ("a", "\u202eb")}, "its classes are not at most 100,000 names without control characters"),
        ({"classes": (1, 2)}, "its classes are not"),
        ({}, None),
    ],
)
def test_an_offer_with_texts_that_steer_a_terminal_is_not_answered(changes, fault):
    found = offer_text_fault(an_offer(new_key(), new_key(), **changes))
    assert found == fault if fault is None else found.startswith(fault)


def test_tables_and_errors_show_escape_codes_as_letters(tmp_path):
    with open_ledger(tmp_path / "ledger.db", ledgers.KEY) as book:
        rejection = {"stage": "enrolment", "round": None, "client": None, "node": "7", "reason": "\x1b[2Jold"}
        book.append("j\x1b[1m", "job", "job", ledgers.opening())
        book.append("j\x1b[1m", "rejection", "k\x1b[31m", rejection)
    for words in (["ledger", "show", "ledger.db"], ["ledger", "show", "ledger.db", "--rows"], ["ledger", "\x1b[2J"]):
        done = truthfl(*words, cwd=tmp_path)
        assert "\\x1b[" in done.stdout + done.stderr
        assert "\x1b" not in done.stdout + done.stderr
