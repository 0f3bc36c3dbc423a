"""The page about an audition: numbers of the offer and of the receipt by hand, words in a browser, untrusted offers."""

import json
import math
from statistics import NormalDist

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.auditions import JOINT_TERMS, LIES, RECIPE, AuditionedAda, an_audition_offer
from helpers.browsers import DESKTOP, DIGITS, PHONE, axe, axe_by_day_and_night, browser, looking  # noqa: F401
from helpers.commands import told
from helpers.participants import an_offer, changed, draw_pictures, written
from truthfl.contracts.audition.joint import JointAudition
from truthfl.home import participant_folder
from truthfl.home.record import COMMITTED, arrival_word, note_commitment, note_opening
from truthfl.ledger.signing import new_key
from truthfl.ledger.terms import TriedLie, offer_from
from truthfl.page import documents as document_views
from truthfl.page.access import CSRF_HEADER
from truthfl.page.documents import documents_summary
from truthfl.page.offer import Costs, assumed_costs, outlooks, spread
from truthfl.page.receipt_check import asked_rounds_fault
from truthfl.page.serving import open_page
from truthfl.samples.sources import open_samples

KEY, OPERATOR = new_key(), new_key()
ABOVE = {"solo_loss": 1.47, "loss": 2.3}  # 1.05 is expected, and 0.4 more passes


@pytest.fixture
def ada(tmp_path):
    return AuditionedAda(tmp_path)


def offer_view(ada, **costs):
    return document_views.offer_view(ada.home, ada.key, costs.get("labeling"), costs.get("computing"))


def test_an_offer_shows_both_parts_of_pay_and_the_gate(ada):
    """Label pay varies by 20, for its cap is 3.09 standard deviations above it; computing pay by 300 × 0.05."""
    ada.gets_offer(kind=JointAudition)
    shown = offer_view(ada)
    audition = shown["audition"]
    assert audition["parts"] == [
        {"name": "label_pay", "words": "labels", "expected": 90.0, "most": 151.8},
        {"name": "computing_pay", "words": "computing", "expected": pytest.approx(40.0), "most": 70.0},
    ]
    assert audition["total"] == {"expected": pytest.approx(130.0), "most": pytest.approx(221.8)}
    assert (audition["level"], audition["spread"], audition["limit"]) == (1.0, 0.1, 1.4)
    assert audition["label_deviation"] == pytest.approx(20.0)
    assert shown["spread"] == {
        "expected": pytest.approx(130.0), "deviation": pytest.approx(25.0), "worst": 0.0,
        "worst_loss": math.log(10), "negative_chance": 0.0, "zero_loss": None,
    }  # fmt: skip
    assert shown["costs"] == {"labeling": 60.0, "computing": 5 * 0.5 * 4 + 2.0}
    assert json.loads(json.dumps(shown)) == shown


def test_where_computing_is_paid_a_fixed_amount_nothing_depends_on_the_joint_loss(ada):
    """Of five reports, four were taken: 32 of 40, at any loss."""
    offer = ada.gets_offer()
    shown = offer_view(ada)
    assert shown["audition"]["parts"][1] == {
        "name": "computing_pay", "words": "computing", "expected": 40.0, "most": 40.0,
    }  # fmt: skip
    assert shown["spread"]["deviation"] == pytest.approx(20.0)
    left = {one["kind"]: (one["pay"], one["cost"]) for one in shown["outlooks"]}
    assert left["fabricated report"] == pytest.approx((90 + 0.8 * 40, 60 + 2))
    assert left["fewer labels"] == pytest.approx((90 - 50 + 40, 30 + 10 + 2))
    ada.accepts(offer)
    ada.gets_receipt(offer, solo_loss=1.02, loss=1.9)
    receipt = document_views.receipt_view(ada.home)
    assert [written(step)[1] for step in receipt["calculation"]] == ["96.0000", "32.0000", "128.0000"]
    assert receipt["calculation"][1]["formula"]["key"] == "calculation.audition.computing"
    assert document_views.receipt_check(ada.home, ada.key)["fault"] is None


def test_what_cutting_corners_leaves_under_an_audition(ada):
    ada.gets_offer(kind=JointAudition)
    found = {one["kind"]: one for one in offer_view(ada)["outlooks"]}
    assert list(found) == ["honest", "fabricated report", "fewer labels", "random labels"]
    by_hand = {  # pay, cost, standard error of the difference, stopped
        "honest": (90 + 40, 60 + 10 + 2, 0, False),
        "fabricated report": (90 + 0.8 * (40 - 300 * 0.05), 60 + 0 + 2, 0.8 * 300 * 0.01, False),
        "fewer labels": (90 - 200 * 0.25 + 40 - 300 * 0.02, 30 + 10 + 2, math.hypot(300 * 0.005, 200 * 0.03), False),
        "random labels": (0 + 0, 0 + 0 + 2, 0, True),
    }
    for kind, (pay, cost, error, stopped) in by_hand.items():
        one = found[kind]
        assert (one["pay"], one["cost"], one["left"]) == pytest.approx((pay, cost, pay - cost)), kind
        assert one["difference"] == pytest.approx(pay - cost - 58), kind
        assert one["difference_error"] == pytest.approx(error), kind
        assert one["stopped"] is stopped, kind
    assert found["honest"]["chance_below_cost"] == pytest.approx(NormalDist(130, 25).cdf(72))


@given(
    labels=st.floats(0, 1.5), batch=st.integers(0, 20), delivered=st.floats(0, 1), rise=st.floats(-0.2, 2),
    solo_rise=st.floats(-0.5, 2), labeling=st.floats(0, 500), computing=st.floats(0, 500),
)  # fmt: skip
def test_a_lie_is_paid_at_both_losses_and_the_gate_ends_work_and_pay_for_computing(
    labels, batch, delivered, rise, solo_rise, labeling, computing
):
    """Of the cost of computing, 2 of 12 are for training alone, also with another cost entered."""
    lie = TriedLie("fewer labels", "something", labels, batch, delivered, rise, 0.0, solo_rise, 0.0)
    _, one = outlooks(an_audition_offer(KEY, OPERATOR, kind=JointAudition, lies=(lie,)), Costs(labeling, computing))
    stopped = (1.0 + solo_rise) - 1.0 > 0.4
    label_pay = min(max(90 - 200 * solo_rise - 2 * stopped, 0), 151.8)
    computing_pay = 0 if stopped else delivered * min(max(40 - 300 * rise, 0), 70)
    alone, rounds = computing / 6, 0 if stopped else computing * 5 / 6 * batch / 4
    assert one.stopped == stopped
    assert one.pay == pytest.approx(label_pay + computing_pay, abs=1e-9)
    assert one.cost == pytest.approx(labels * labeling + rounds + alone, abs=1e-9)


def test_an_error_that_reaches_over_the_gate_counts_pay_and_work_for_computing():
    """At 0.35 ± 0.1: 90 − 200 × 0.25 + 40 less 12 + 0 below, 90 − 200 × 0.45 less 2 above."""
    lie = TriedLie("fewer labels", "a third", 0.0, 4, 1.0, 0.0, 0.0, 0.35, 0.1)
    _, one = outlooks(an_audition_offer(KEY, OPERATOR, kind=JointAudition, lies=(lie,)), Costs(60.0, 12.0))
    assert one.difference_error == pytest.approx(((80 - 12) - (0 - 2)) / 2)


def test_somebody_who_has_no_costs_cannot_be_paid_below_them(ada):
    offer = ada.gets_offer(kind=JointAudition)
    assert assumed_costs(offer) == Costs(60.0, 12.0)
    assert outlooks(offer, Costs(0.0, 0.0))[0].chance_below_cost == 0.0
    lceme = an_offer(KEY, OPERATOR)
    assert outlooks(lceme, Costs(0.0, 0.0))[0].chance_below_cost == pytest.approx(spread(lceme).negative_chance)


def test_an_audition_that_expects_to_pay_nothing_is_not_negative_either():
    nothing = dict.fromkeys(("label_base", "label_cap", "computing_base", "joint_cap"), 0.0)
    found = spread(an_audition_offer(KEY, OPERATOR, kind=JointAudition, terms=nothing))
    assert (found.worst, found.negative_chance, found.zero_loss) == (0.0, 0.0, math.inf)


def test_the_offers_plot_is_by_solo_loss_and_falls_at_the_gate(ada):
    ada.gets_offer(kind=JointAudition)
    plot = offer_view(ada)["plot"]
    assert plot["axes"] == {"loss": "plot.own_loss", "pay": "cent"}
    assert plot["band"] == pytest.approx([0.8, 1.2])
    assert plot["limit"] == 1.4
    assert plot["points"] == [{"loss": 1.0, "pay": pytest.approx(130), "name": "plot.honest_work", "key": True}]
    for loss, pay in plot["curve"]:
        by_hand = 90 - 200 * (loss - 1) + (40 if loss <= 1.4 else -2)  # who is stopped is not paid for the audition
        assert pay == pytest.approx(max(by_hand, 0), abs=1e-6)
    assert [loss for loss, _ in plot["curve"]] == sorted(loss for loss, _ in plot["curve"])
    beside = [pay for loss, pay in plot["curve"] if abs(loss - 1.4) < 1e-6]
    assert beside == pytest.approx([50, 8], abs=1e-5)


def test_another_contracts_plot_is_by_test_loss(ada):
    participant_folder.put_offer(ada.home, an_offer(ada.key, ada.operator))
    shown = offer_view(ada)
    assert shown["audition"] is None
    plot = shown["plot"]
    assert plot["axes"] == {"loss": "plot.test_loss", "pay": "cent"}
    assert plot["limit"] is None
    assert plot["band"] == pytest.approx([1.0806 - 0.0542, 1.0806 + 0.0542])
    assert [point["loss"] for point in plot["points"]] == [1.0806]


def test_the_receipt_of_an_audition_has_two_lines_and_their_sum(ada):
    """Ada's 50 labels are all there are, so 0.4 + 20 / 50 is expected of the joint model; 4 of 5 reports were taken."""
    offer = ada.gets_offer(kind=JointAudition)
    ada.accepts(offer)
    ada.gets_receipt(offer, solo_loss=1.02)
    shown = document_views.receipt_view(ada.home)
    assert shown["audition"] == {
        "passed": True, "reason": None, "reason_message": None, "solo_loss": 1.02, "expected": pytest.approx(1.05),
        "limit": pytest.approx(1.45), "expected_joint_loss": pytest.approx(0.8), "parts": [
            {"name": "label_pay", "words": "labels", "paid": pytest.approx(96)},
            {"name": "computing_pay", "words": "computing", "paid": pytest.approx(34.4)},
        ],
    }  # fmt: skip
    assert [written(step)[1] for step in shown["calculation"]] == ["96.0000", "34.4000", "130.4000"]
    assert written(shown["calculation"][0])[0] == "90.0000 + 200.0000 × ( 1.0500000 − 1.0200000 )"
    assert (shown["paid"], shown["settlement"]) == (130, {"pay": 130, "delivered": 4, "asked": 5})
    expected, own = shown["plot"]["points"]
    assert (expected["name"], own["name"], own["key"]) == ("plot.expected", "plot.your_model", True)
    assert (expected["loss"], expected["pay"]) == pytest.approx((1.05, 90 + 34.4))
    assert (own["loss"], own["pay"]) == pytest.approx((1.02, 130.4))
    assert shown["plot"]["band"] == pytest.approx([0.85, 1.25])
    assert shown["plot"]["limit"] == pytest.approx(1.45)
    assert document_views.receipt_check(ada.home, ada.key)["fault"] is None
    assert json.loads(json.dumps(shown)) == shown


def test_the_receipt_of_somebody_who_was_stopped(ada):
    """The line is what others are paid, who take part; Ada's point is on it, beyond the limit."""
    offer = ada.gets_offer(kind=JointAudition)
    ada.accepts(offer)
    ada.gets_receipt(offer, **ABOVE)
    shown = document_views.receipt_view(ada.home)
    assert shown["audition"]["passed"] is False
    assert [part["paid"] for part in shown["audition"]["parts"]] == [pytest.approx(4.0), 0.0]
    assert shown["settlement"] == {"pay": 4, "delivered": 0, "asked": 0}
    assert shown["calculation"][1]["formula"] == {"key": "calculation.audition.no_computing", "values": {}}
    assert [point["pay"] for point in shown["plot"]["points"]] == pytest.approx([90, 4])
    assert document_views.receipt_check(ada.home, ada.key)["fault"] is None


def test_the_line_of_somebody_who_was_stopped_is_that_of_those_who_deliver(ada):
    """At a joint loss of 0.79, 43 for computing as long as one passes."""
    offer = ada.gets_offer(kind=JointAudition)
    ada.accepts(offer)
    ada.gets_receipt(offer, solo_loss=1.47, loss=0.79)
    expected, own = document_views.receipt_view(ada.home)["plot"]["points"]
    assert (expected["pay"], own["pay"]) == pytest.approx((90 + 43, 4))


def test_the_receipt_of_somebody_without_a_model_has_the_servers_reason(ada):
    offer = ada.gets_offer(kind=JointAudition)
    ada.accepts(offer)
    ada.gets_receipt(offer, solo_loss=None, reason="No model was taken: it came late. " + "x" * 1000, loss=2.3)
    shown = document_views.receipt_view(ada.home)
    assert shown["audition"]["solo_loss"] is None
    assert shown["audition"]["reason"].startswith("No model was taken: it came late.")
    assert len(shown["audition"]["reason"]) == 300
    assert (shown["paid"], len(shown["plot"]["points"])) == (0, 1)
    assert document_views.receipt_check(ada.home, ada.key)["fault"] is None


def test_somebody_who_was_stopped_is_asked_in_no_round_also_where_few_are_drawn(ada):
    offer = ada.gets_offer(kind=JointAudition, participation=0.5)
    ada.accepts(offer)
    paper = ada.gets_receipt(offer, **ABOVE)
    assert document_views.receipt_check(ada.home, ada.key)["fault"] is None
    paper["document"]["settlement"]["asked"] = 2
    assert "stopped" in asked_rounds_fault(paper)


def test_a_receipt_for_another_model_than_their_own_does_not_hold(ada):
    offer = ada.gets_offer(kind=JointAudition)
    ada.accepts(offer)
    ada.gets_receipt(offer, solo_loss=1.02)
    note_commitment(ada.home, offer.hash, "34" * 32)
    note_opening(ada.home, offer, "00" * 32, arrival_word(offer, COMMITTED, "34" * 32, ada.operator))
    fault = document_views.receipt_check(ada.home, ada.key)["fault"]
    assert fault == "its audition is of another model than the one that your computer sent"


BAD_TERMS = [
    ({"label_cap": 1e999}, "label_cap is not finite"),
    ({"joint_constant": math.nan}, "must be finite"),
    ({"label_cap": -5.0}, "label_cap is -5.0; it must be a number from 0 on"),
    ({"gate": -0.1}, "gate is -0.1; it must be a number from 0 on"),
    ({"gate": math.nan}, "gate is not finite"),
    ({"solo_spread": 0.0}, "solo_spread is not above 0"),
    ({"joint_cap": 39.0}, "joint_cap is below its computing_base"),
    ({"labels": 51.0}, "another number of labels"),
    ({"total_labels": 49.0}, "total_labels are fewer than your own"),
    ({"solo_level": "good"}, "not all numbers"),
    ({"joint_curve": [1.0]}, "not all numbers"),
    ({"bonus": 1.0}, "they must be audition_pay, computing_base, gate"),
    ({"label_slope": 1e308, "joint_slope": 1e308}, "offer"),
    ({"solo_level": 1e308, "gate": 1e308}, "offer"),
]


@pytest.mark.parametrize(("terms", "sentence"), BAD_TERMS, ids=str)
def test_terms_that_make_no_sense_are_a_sentence(ada, terms, sentence):
    (ada.home / "offers").mkdir()
    document = an_audition_offer(ada.key, ada.operator, kind=JointAudition).document()
    document["client"]["pay"] = JOINT_TERMS | terms
    (ada.home / "offers" / "a.json").write_text(json.dumps(document))
    assert sentence in told(offer_view, ada)


BAD_RECIPES = {
    "none": None, "a list": [], "a word": "stir", "nothing in it": {}, "too much": RECIPE | {"salt": 1},
    "no steps": RECIPE | {"steps": 0}, "endless": RECIPE | {"steps": 10**12}, "nan": RECIPE | {"step_size": math.nan},
    "negative": RECIPE | {"penalty": -1.0}, "half a step": RECIPE | {"steps": 1.5}, "words": RECIPE | {"shifts": "4"},
}  # fmt: skip


@pytest.mark.parametrize("recipe", BAD_RECIPES.values(), ids=BAD_RECIPES)
def test_a_recipe_that_is_none_is_a_sentence(ada, recipe):
    (ada.home / "offers").mkdir()
    document = an_audition_offer(ada.key, ada.operator, kind=JointAudition).document()
    document["job"]["recipe"] = recipe
    (ada.home / "offers" / "a.json").write_text(json.dumps(document))
    assert len(told(offer_view, ada)) < 1000


@pytest.mark.parametrize(
    ("part", "name", "value"),
    [
        ("client", "audition_cost", -1.0),
        ("client", "audition_cost", math.nan),
        ("client", "audition_cost", "much"),
        ("client", "samples", "many"),
        ("job", "audition_seconds", math.inf),
        ("job", "audition_seconds", None),
        ("job", "audition_seconds", -1.0),
        ("job", "contract", "lceme"),
    ],
)
def test_other_nonsense_beside_an_audition_is_a_sentence(ada, part, name, value):
    (ada.home / "offers").mkdir()
    document = an_audition_offer(ada.key, ada.operator, kind=JointAudition).document()
    document[part][name] = value
    (ada.home / "offers" / "a.json").write_text(json.dumps(document))
    assert len(told(offer_view, ada)) < 1000


def test_a_recipe_where_no_model_is_tested_is_a_sentence(ada):
    participant_folder.put_offer(ada.home, an_offer(ada.key, ada.operator, recipe=RECIPE))
    assert "the offer must have a recipe just if it pays by one" in told(offer_view, ada)


@pytest.mark.parametrize("change", [{"terms": {"label_cap": -5.0}}, {"audition_cost": "much"}], ids=str)
def test_an_offer_that_makes_no_sense_cannot_be_accepted_but_declined(ada, tmp_path, change):
    offer = ada.gets_offer(**change)
    source = open_samples(draw_pictures(tmp_path / "data", 3))
    with open_page(ada.home, source, DIGITS, ada.key) as opened, httpx.Client(trust_env=False) as client:
        client.base_url = opened.url.split("/?")[0]
        client.get(opened.url)
        csrf = client.get("/api/work").json()["csrf"]
        client.headers.update({"origin": opened.url[: opened.url.index("/", 8)], CSRF_HEADER: csrf})
        assert client.post("/api/answer", json={"offer": offer.hash, "accepted": True}).status_code == 422
        assert participant_folder.read_answer(ada.home, offer) is None
        declined = client.post("/api/answer", json={"offer": offer.hash, "accepted": False})
        assert declined.json() == {"answer": "refusal"}


def test_the_offer_itself_is_read_and_written_unchanged():
    offer = an_audition_offer(KEY, OPERATOR)
    assert offer_from(offer.document()) == offer
    assert offer_from(offer.document()).hash == offer.hash
    assert changed(offer, recipe=None).hash != offer.hash
    assert offer.client.lies == LIES


@pytest.mark.parametrize(
    ("name", "value"),
    [("solo_loss", 1e308), ("solo_loss", "low"), ("level_shift", None), ("present_labels", []), ("passed", None)],
)
def test_a_receipt_with_nonsense_in_its_audition_is_told_or_refused(ada, name, value):
    offer = ada.gets_offer(kind=JointAudition)
    ada.accepts(offer)
    paper = ada.gets_receipt(offer, solo_loss=1.02)
    paper["document"]["settlement"][name] = value
    (ada.home / "receipts" / f"{offer.job.name}.json").write_text(json.dumps(paper))
    shown = document_views.receipt_view(ada.home)
    assert name == "passed" or len(shown["trouble"]) < 1000
    assert document_views.receipt_check(ada.home, ada.key)["fault"] is not None
    for part in ("audition", "settlement"):
        del paper["document"][part]
        (ada.home / "receipts" / f"{offer.job.name}.json").write_text(json.dumps(paper))
        assert "trouble" in document_views.receipt_view(ada.home)


def test_a_receipt_without_a_finite_solo_loss_is_a_sentence(ada):
    offer = ada.gets_offer(kind=JointAudition)
    ada.accepts(offer)
    paper = ada.gets_receipt(offer, solo_loss=1.02)
    paper["document"]["settlement"]["solo_loss"] = math.nan
    (ada.home / "receipts" / f"{offer.job.name}.json").write_text(json.dumps(paper))
    assert "cannot be written down" in told(document_views.receipt_view, ada.home)
    assert "cannot be written down" in documents_summary(ada.home)["trouble"]


def test_offer_and_receipt_of_an_audition_in_a_browser(browser, tmp_path):
    ada = AuditionedAda(tmp_path)
    offer = ada.gets_offer(kind=JointAudition)
    data = draw_pictures(tmp_path / "data", 60)
    with open_page(ada.home, open_samples(data), DIGITS, ada.key) as opened, looking(browser, opened.url) as page:
        page.wait_for_selector("text=Before the common training comes a test, the audition")
        summary = page.inner_text("main").lower()
        assert not [term for term in ("loss", "batch", "deviation", "formula") if term in summary.split("what if")[0]]
        page.click("text=The small print")
        words = page.inner_text("main")
        for sentence in (
            "Label 50 pictures, once, in 10 classes.",
            "You have 7 days for the labels, counted from when everybody has answered. If they are not all there by",
            "a model that is far worse than honest ones is stopped.",
            "The offer does not say how and when the money reaches you; ask before you accept.",
            "then together with the others in 5 rounds, each with about 4 of your pictures",
            "it trains a small model on your labels",
            "With honest labels about 1.0000 is expected, give or take 0.1000.",
            "For yours that is a loss above 1.4000, if the others do as expected",
            "If you send no model within 1 hour, you are stopped, too",
            "You never owe anything, and the most you can be paid is 222 cent.",
            "unusually hard ones are paid less, people who hold easy ones more: about 20 cent give or take",
            "Computing, in all: rounds and audition (cent)",
            "Honest work costs you 72 cent and is expected to leave you 58 cent.",
        ):
            assert sentence in words, sentence
        facts, bounds = (page.inner_text(part).replace("\n", " ") for part in ("#facts", "#bounds"))
        assert "expected pay 130 cent per picture 2.6 cent labeling takes about 3 minutes if each takes 3 s" in facts
        assert "per hour of labeling 3,120 cent" in facts
        assert "at the least 0 cent you never owe anything" in bounds
        assert "for 19 of 20 people who work honestly 81 cent to 179 cent at the most 222 cent" in bounds
        figures = page.inner_text("#pay-figures").replace("\n", " ")
        assert "for labels, expected 90 cent at most 152 cent" in figures
        assert "for computing, expected 40 cent at most 70 cent" in figures
        assert "in all, expected 130 cent at most 222 cent" in figures
        assert "at the least 0 cent you never owe anything" in figures
        assert "negative" not in summary
        assert "below zero" not in summary
        ways = page.locator("#behaviours li").all_inner_texts()
        assert ["stopped at the audition" in way for way in ways] == [False, False, False, True, False]
        assert "Decline\n0 cent\nDo nothing, and be paid nothing. Paid 0 cent, costs 0 cent.\n−58 cent" in ways[-1]
        assert "−26 cent ± 12" in ways[2]
        assert (
            page.locator("#plot svg")
            .get_attribute("aria-label")
            .startswith("The line is your pay by the loss of your own model: 130 cent at the expected loss of 1.0000.")
        )
        assert {"loss of your own model", "stopped above"} <= set(page.locator("#plot text").all_text_contents())
        print_ = page.inner_text("#print")
        assert "100 steps of 16 pictures each, drawn at random, step size 0.5, penalty 0.01; of each picture" in print_
        assert "10 minutes for the report of a round, 1 hour for the model that you train alone." in print_
        assert axe(page) == []

        ada.accepts(offer)
        ada.gets_receipt(offer, solo_loss=1.02)
        page.goto(f"{opened.url.split('/?')[0]}/receipt")
        page.wait_for_selector("text=learned from your labels alone did better in the test than expected.")
        facts = page.inner_text("#facts").replace("\n", " ")
        assert "your pay 130 cent for labels 96.0 cent for computing 34.4 cent" in facts
        lead = page.inner_text("#lead")
        assert "What all computers learned together came out better than expected. It was right in 90.0% of the" in lead
        assert lead.endswith("test. Your computer delivered 4 of 5 rounds.")
        assert "loss" not in lead + facts
        assert "1.0500 was expected, and yours had 1.0200" in page.inner_text("#plot-words")
        assert page.locator("#plot circle").count() == 2
        page.click("#check")
        page.wait_for_selector("#verdict.good >> text=your audition, as it stands in the ledger")
        assert axe(page) == []


def test_somebody_who_was_stopped_is_told_why(browser, tmp_path):
    ada = AuditionedAda(tmp_path)
    offer = ada.gets_offer(kind=JointAudition)
    ada.accepts(offer)
    ada.gets_receipt(offer, **ABOVE)
    data = draw_pictures(tmp_path / "data", 60)
    with (
        open_page(ada.home, open_samples(data), DIGITS, ada.key) as opened,
        looking(browser, opened.url, **DESKTOP) as page,
    ):
        page.wait_for_selector("text=You were stopped at the audition and took no part in the joint training.")
        lead = page.inner_text("#lead")
        assert "did badly in the test, which almost never happens with honest labels." in lead
        below_plot = page.inner_text("#plot-words")
        assert "1.0500 was expected, and yours had 1.4700. Above 1.4500 one is stopped." in below_plot
        assert "You are paid what the formula gives for labels alone." in lead
        assert not page.locator("#why").is_visible()  # something is paid
        assert axe_by_day_and_night(page) == []
        page.goto(f"{opened.url.split('/?')[0]}/offer")
        page.wait_for_selector("#behaviours li")
        assert axe_by_day_and_night(page) == []


def test_somebody_who_sent_no_model_is_told_why_on_a_phone(browser, tmp_path):
    ada = AuditionedAda(tmp_path)
    offer = ada.gets_offer(kind=JointAudition)
    ada.accepts(offer)
    ada.gets_receipt(offer, solo_loss=None, reason="No model was taken: no commitment in time.", loss=2.3)
    data = draw_pictures(tmp_path / "data", 60)
    with (
        open_page(ada.home, open_samples(data), DIGITS, ada.key) as opened,
        looking(browser, opened.url, **PHONE) as page,
    ):
        page.wait_for_selector("#why >> text=What your computer learned alone did not reach the server in time")
        page.wait_for_selector(
            "text=The server’s reason: No model was taken: no commitment in time. Without a model, nothing is paid."
        )
        assert "for labels\n0.0 cent\nfor computing\n0.0 cent" in page.inner_text("#facts")
        for name, ready in (("receipt", "#plot svg"), ("offer", "#behaviours li")):
            page.goto(f"{opened.url.split('/?')[0]}/{name}")
            page.wait_for_selector(ready)
            assert page.evaluate("document.documentElement.scrollWidth <= 390")
            assert axe(page) == []


def test_an_absurd_offer_is_one_sentence_in_the_browser(browser, tmp_path):
    ada = AuditionedAda(tmp_path)
    ada.gets_offer(terms={"label_cap": -5.0})
    data = draw_pictures(tmp_path / "data", 3)
    with open_page(ada.home, open_samples(data), DIGITS, ada.key) as opened, looking(browser, opened.url) as page:
        page.watch.expected = "422"
        page.wait_for_selector("#alarm:not([hidden])")
        assert page.inner_text("#alarm").count(".") <= 2
        assert page.is_hidden("#offer")
