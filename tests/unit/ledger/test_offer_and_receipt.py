"""What the page says of an offer and of a receipt: the contract's own numbers, and every mismatch."""

import copy
import json
import math
from concurrent.futures import ThreadPoolExecutor

import httpx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.commands import told
from helpers.participants import Ada, a_receipt, an_offer, changed, draw_pictures, written
from truthfl.federation.participant.signatory import Signatory
from truthfl.home import participant_folder
from truthfl.ledger.documents import answer_fault
from truthfl.ledger.signing import new_key
from truthfl.ledger.terms import TriedLie, offer_from
from truthfl.page import documents as document_views
from truthfl.page.access import CSRF_HEADER
from truthfl.page.documents import documents_summary
from truthfl.page.offer import Costs, assumed_costs, outlooks, own_costs, spread
from truthfl.page.serving import open_page
from truthfl.samples.sources import open_samples

KEY, OPERATOR = new_key(), new_key()


@pytest.fixture
def ada(tmp_path):
    return Ada(tmp_path)


@given(
    labels=st.floats(0, 1.5), batch=st.integers(0, 200), delivered=st.floats(0, 1), rise=st.floats(-0.1, 3),
    labeling=st.floats(0, 1000), computing=st.floats(0, 1000),
)  # fmt: skip
def test_what_a_lie_leaves_is_the_contracts_pay_at_the_loss_it_causes_less_what_is_done(
    labels, batch, delivered, rise, labeling, computing
):
    lie = TriedLie("scaled report", "something", labels, batch, delivered, rise, 0.01)
    offer = an_offer(KEY, OPERATOR, lies=(lie,))
    honest, told_of = outlooks(offer, Costs(labeling, computing))
    terms, job = offer.client.pay, offer.job
    reward = terms["base"] - terms["slope"] * (job.expected_loss + rise) + terms["labeling_cost"]
    assert told_of.pay == pytest.approx(reward * delivered)
    assert told_of.cost == pytest.approx(labels * labeling + computing * batch / 13)
    assert told_of.left == pytest.approx(told_of.pay - told_of.cost)
    assert told_of.difference == pytest.approx(told_of.left - honest.left)
    assert told_of.difference_error == pytest.approx(delivered * terms["slope"] * 0.01)
    assert (honest.kind, honest.difference, honest.pay) == ("honest", 0.0, pytest.approx(offer.expected_pay))


def test_an_offer_shows_the_lies_that_were_found_and_no_others(ada):
    """The best first, also if it pays; none if none were searched."""
    ada.gets_offer()
    shown = document_views.offer_view(ada.home, ada.key, None, None)
    kinds = [one["kind"] for one in shown["outlooks"]]
    assert kinds == ["honest", "labels by machine", "fabricated report", "other batch"]
    assert shown["outlooks"][1]["difference"] == pytest.approx(120 - 3821.8232 * 0.004)
    assert shown["offer"]["lies_tried"] == 32
    assert json.loads(json.dumps(shown)) == shown
    ada.gets_offer(lies=(), lies_tried=0, version=2)
    assert [one["kind"] for one in document_views.offer_view(ada.home, ada.key, None, None)["outlooks"]] == ["honest"]


@pytest.mark.parametrize(
    ("lies", "sentence"),
    [
        (7, "its lies are no list of at most 100"),
        ([{}] * 101, "its lies are no list of at most 100"),
        ([{"kind": "flattery"}], "its lie lacks batch_size"),
        ([[]], "its lie lacks"),
    ],
)
def test_lies_that_are_none_make_no_offer(lies, sentence):
    document = an_offer(KEY, OPERATOR).document()
    document["client"]["lies"] = lies
    assert sentence in told(offer_from, document)


def test_lies_with_absurd_numbers_are_a_sentence(ada):
    huge = TriedLie("other batch", "batch × 2", 1.0, 26, 1.0, 1e308, 0.0)
    ada.gets_offer(lies=(huge,))
    assert "is no finite amount" in told(document_views.offer_view, ada.home, ada.key, None, None)
    ada.gets_offer(loss_error=1e308, version=2)
    assert "The offer cannot be read" in told(document_views.offer_view, ada.home, ada.key, None, None)


BAD_LIES = [
    {"loss_rise": "much"}, {"delivered": []}, {"delivered": -3}, {"delivered": 7}, {"labels": -1}, {"batch_size": -1},
    {"kind": None}, {"words": {}}, {"words": "x" * 1000}, {"labels": "1"}, {"loss_rise_error": -1},
]  # fmt: skip


@pytest.mark.parametrize("change", BAD_LIES, ids=str)
def test_a_lie_that_is_none_makes_no_offer(change):
    document = an_offer(KEY, OPERATOR).document()
    document["client"]["lies"][0] |= change
    assert told(offer_from, document).startswith("this is no offer: a lie ")


@pytest.mark.parametrize("tried", [-1, "nan", None, {"a": 1}, 1.5, True])
def test_a_number_of_lies_that_is_none_makes_no_offer(tried):
    document = an_offer(KEY, OPERATOR).document()
    document["job"]["lies_tried"] = tried
    assert told(offer_from, document) == "this is no offer: lies_tried is no whole number from 0 on."


@pytest.mark.parametrize("momentum", [1.0, -0.1, True, "half", float("nan")])
def test_an_offer_with_a_momentum_that_is_none_is_refused(momentum):
    document = an_offer(KEY, OPERATOR).document()
    assert offer_from(document | {"job": document["job"] | {"momentum": 0.5}}).job.training.momentum == 0.5
    document["job"]["momentum"] = momentum
    assert told(offer_from, document) == "this is no offer: its momentum is no number from 0 and below 1."
    document["job"] |= {"momentum": 0.5, "aggregation": "own"}
    assert told(offer_from, document) == "this is no offer: it has momentum besides that of a custom strategy."


@pytest.mark.parametrize(
    ("part", "name", "value"),
    [
        ("client", "public_key", None),
        ("job", "operator_key", []),
        ("job", "model", json.loads("[" * 700 + "]" * 700)),
        ("client", "weight", json.loads("[" * 700 + "]" * 700)),
        ("job", "loss_error", -1e308),
    ],
)
def test_whatever_an_offer_has_in_it_the_page_says_a_sentence(ada, part, name, value):
    document = an_offer(ada.key, ada.operator).document()
    document[part][name] = value
    (ada.home / "offers").mkdir()
    (ada.home / "offers" / "a.json").write_text(json.dumps(document))
    assert len(told(document_views.offer_view, ada.home, ada.key, None, None)) < 2000


def test_the_spread_of_pay():
    offer = an_offer(KEY, OPERATOR)
    found = spread(offer)
    assert found.expected == pytest.approx(offer.amount(offer.job.expected_loss))
    assert found.deviation == pytest.approx(3821.8232 * 0.0271)
    losses = np.random.default_rng(0).normal(offer.job.expected_loss, offer.job.loss_error, 400_000)
    drawn = offer.contract.reward(losses)
    assert found.deviation == pytest.approx(drawn.std(), rel=0.01)
    assert found.negative_chance == pytest.approx((drawn < 0).mean(), rel=0.1)
    assert found.worst == offer.amount(math.log(10))
    assert offer.amount(found.zero_loss) == pytest.approx(0, abs=1e-9)
    certain = spread(changed(offer, loss_error=0.0))
    assert (certain.deviation, certain.negative_chance) == (0.0, 0.0)
    flat = spread(changed(offer, pay={"base": 10.0, "slope": 0.0, "labeling_cost": 5.0}))
    assert flat.zero_loss == math.inf


def test_the_participants_own_costs_take_the_place_of_the_offers():
    offer = an_offer(KEY, OPERATOR)
    assert assumed_costs(offer) == Costs(120.0, 3 * 0.5 * 13)
    assert sum(vars(assumed_costs(offer)).values()) == pytest.approx(offer.cost)
    assert own_costs(offer, 7.0, None) == Costs(7.0, 19.5)
    honest, *lies = outlooks(offer, Costs(200.0, 40.0))
    assert honest.cost == 240.0
    assert {one.kind: one.cost for one in lies} == {
        "labels by machine": 40.0,
        "fabricated report": 0.0,
        "other batch": pytest.approx(200.0 + 40.0 * 6 / 13),
    }
    assert honest.left == pytest.approx(offer.expected_pay - 240.0)
    assert "from 0 on" in told(own_costs, offer, -1.0, None)
    assert "from 0 on" in told(own_costs, offer, None, math.nan)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"contract": "nothing"}, "there is no contract of kind 'nothing'"),
        ({"contract": "leave-one-out", "pay": {"slope": 1.0}}, "which a job does not collect"),
        ({"pay": {"base": 1e308, "slope": -1e308, "labeling_cost": 1e308}}, "must be finite"),
    ],
)
def test_an_offer_that_cannot_be_paid_is_neither_shown_nor_accepted(ada, changes, sentence):
    offer = an_offer(ada.key, ada.operator, **changes)
    signatory = Signatory(name="Ada", samples=120, key=ada.key, folder=ada.home, decide=lambda _: True)
    assert sentence in told(signatory.answer_offer, offer.envelope())
    assert not list(ada.home.glob("*/*.json"))
    participant_folder.put_offer(ada.home, offer)
    if "contract" in changes:
        assert sentence in told(document_views.offer_view, ada.home, ada.key, None, None)


def test_a_desk_with_nothing_on_it(ada):
    nothing = dict.fromkeys(("offer", "answer", "receipt", "news", "job", "connection"))
    assert documents_summary(ada.home) == nothing
    assert document_views.offer_view(ada.home, ada.key, None, None) == {"offer": None}
    assert document_views.receipt_view(ada.home) == {"receipt": None}
    assert "no receipt" in told(document_views.receipt_check, ada.home, ada.key)


def test_an_honest_receipt_holds(ada):
    offer = ada.gets_offer()
    ada.accepts(offer)
    ada.gets_receipt(offer)
    assert document_views.receipt_check(ada.home, ada.key)["fault"] is None
    shown = document_views.receipt_view(ada.home)
    assert shown["settlement"] == {"pay": 236, "delivered": 3, "asked": 3}
    assert shown["paid"] == 236
    assert [(step["formula"], *written(step)) for step in shown["calculation"]] == [
        (
            {"key": "calculation.lceme.reward", "values": {}},
            "4,319.6556 − 3,821.8232 × 1.1000000 + 120.0000",
            "235.6501",
        ),
        ({"key": "calculation.lceme.pay", "values": {}}, "235.6501 × 3 / 3", "235.6501"),
    ]
    assert json.loads(json.dumps(shown)) == shown


def test_the_receipt_of_a_paid_flower_app_has_no_accuracy(ada):
    """Its operator tests a loss alone (`paid_strategy`)."""
    offer = ada.gets_offer()
    ada.accepts(offer)
    ada.gets_receipt(offer, accuracy=None)
    shown = document_views.receipt_view(ada.home)
    assert "trouble" not in shown
    assert (shown["accuracy"], shown["loss"]) == (None, 1.1)
    assert document_views.receipt_check(ada.home, ada.key)["fault"] is None


def poke(path, value):
    def change(paper):
        inner = paper
        for part in path[:-1]:
            inner = inner[part]
        inner[path[-1]] = value

    return change


TAMPERED = {
    "pay": (poke(("document", "settlement", "pay"), 999), "signature"),
    "loss": (poke(("document", "test", "loss"), 0.9), "signature"),
    "slope": (poke(("document", "offer", "document", "client", "pay", "slope"), 1.0), "signature"),
    "secret": (poke(("document", "test", "secret"), "00" * 32), "signature"),
    "link": (poke(("document", "proof", "links", 1, "payload"), "0" * 64), "signature"),
    "signature": (poke(("signature",), "AAAA"), "signature"),
    "a part": (lambda paper: paper["document"].pop("proof"), "parts of a receipt"),
    "the document": (lambda paper: paper.pop("document"), "no signed document"),
    "a type": (poke(("document", "offer"), []), "not a receipt"),
}


@pytest.mark.parametrize("part", list(TAMPERED))
def test_a_tampered_receipt_is_refused_with_the_mismatch(ada, part):
    offer = ada.gets_offer()
    ada.accepts(offer)
    paper = copy.deepcopy(ada.gets_receipt(offer))
    change, words = TAMPERED[part]
    change(paper)
    participant_folder.put_receipt(ada.home, paper, offer.job.name)
    assert words in document_views.receipt_check(ada.home, ada.key)["fault"]
    document_views.receipt_view(ada.home)
    documents_summary(ada.home)


def test_a_receipt_that_holds_by_itself_must_also_be_the_participants(ada, tmp_path):
    """A whole false world, in which everything agrees: an offer and an operator that Ada never saw."""
    offer = ada.gets_offer()
    ada.accepts(offer)
    forger = new_key()
    false = an_offer(ada.key, forger, pay={"base": 1.0, "slope": 1.0, "labeling_cost": 1.0})
    other = tmp_path / "other"
    other.mkdir()
    participant_folder.put_offer(other, false)
    answer = participant_folder.put_answer(other, false, ada.key, accepted=True)
    participant_folder.put_receipt(ada.home, a_receipt(other, false, answer, forger), offer.job.name)
    assert document_views.receipt_check(ada.home, ada.key)["fault"] == "its offer is not one in your folder"
    participant_folder.put_offer(ada.home, false)
    assert document_views.receipt_check(ada.home, ada.key)["fault"] == "its offer is not one that you accepted"


def test_papers_that_cannot_be_read_become_sentences(ada):
    (ada.home / "offers").mkdir()
    (ada.home / "offers" / "x.json").write_text("{")
    assert "not valid JSON" in documents_summary(ada.home)["trouble"]
    assert document_views.offer_in_force(ada.home) is None
    assert "not valid JSON" in told(document_views.offer_view, ada.home, ada.key, None, None)
    (ada.home / "offers" / "x.json").unlink()
    ada.gets_offer(pay={"base": "many", "slope": "more", "labeling_cost": "most"})
    assert "not all numbers" in told(document_views.offer_view, ada.home, ada.key, None, None)


def test_another_key_cannot_answer(ada):
    ada.gets_offer()
    assert document_views.offer_view(ada.home, new_key(), None, None)["cannot_sign"]["key"] == "offer.other_key"
    assert document_views.offer_view(ada.home, None, None, None)["cannot_sign"]["key"] == "offer.no_key"
    assert document_views.offer_view(ada.home, ada.key, None, None)["cannot_sign"] is None


def test_without_documents_the_link_leads_to_the_labels_at_once(tmp_path):
    source = open_samples(draw_pictures(tmp_path / "data", 3))
    with open_page(tmp_path / "home", source, ("a", "b")) as opened, httpx.Client(trust_env=False) as client:
        assert client.get(opened.url).headers["location"] == f"{httpx.URL(opened.url).path}label"


def test_the_answer_is_signed_and_the_first_one_counts(ada, tmp_path):
    offer = ada.gets_offer()
    source = open_samples(draw_pictures(tmp_path / "data", 3))
    with open_page(ada.home, source, ("a", "b"), ada.key) as opened, httpx.Client(trust_env=False) as client:
        client.base_url = opened.url.split("/?")[0]
        assert client.get(opened.url).headers["location"] == httpx.URL(opened.url).path
        begin = client.get("/")
        assert begin.headers["location"] == "offer"
        csrf = client.get("/api/offer").json()["csrf"]
        client.headers.update({"origin": opened.url[: opened.url.index("/", 8)], CSRF_HEADER: csrf})
        assert client.post("/api/answer", json={"offer": "0" * 64, "accepted": True}).status_code == 409
        assert participant_folder.read_answer(ada.home, offer) is None
        for accepted in (True, False):
            answer = client.post("/api/answer", json={"offer": offer.hash, "accepted": accepted})
            assert answer.json() == {"answer": "acceptance"}
        paper = participant_folder.read_answer(ada.home, offer)
        assert answer_fault(paper, offer) is None
        assert client.get("/").headers["location"] == "label"
        assert [one["name"] for one in client.get("/api/work").json()["classes"]] == list("0123456789")
        ada.gets_receipt(offer)
        assert client.get("/").headers["location"] == "receipt"
        costs = client.get("/api/offer", params={"labeling": 1, "computing": 2}).json()["costs"]
        assert costs == {"labeling": 1.0, "computing": 2.0}
        assert client.get("/api/offer", params={"labeling": -1}).status_code == 422
        assert client.get("/api/offer", params={"labeling": "nan"}).status_code == 422


def test_a_declined_offer_sets_no_classes(ada):
    offer = ada.gets_offer()
    assert document_views.offer_in_force(ada.home) == offer
    participant_folder.put_answer(ada.home, offer, ada.key, accepted=False)
    assert document_views.offer_in_force(ada.home) is None


def test_the_participants_own_costs_and_the_chance_of_not_covering_them(ada):
    """From the definitions: labeling as far as the client labels, computing as far as they compute."""
    offer = ada.gets_offer(batch_size=10)
    deviation = offer.client.pay["slope"] * offer.job.loss_error
    work = {lie.kind: (lie.labels, lie.batch_size) for lie in offer.client.lies} | {"honest": (1.0, 10)}
    for one in outlooks(offer, Costs(labeling=70.0, computing=30.0)):
        labels, batch = work[one.kind]
        cost = 70.0 * labels + 30.0 * batch / 10
        below = 0.5 * (1 + math.erf((cost - one.pay) / deviation / math.sqrt(2)))
        assert (one.cost, one.left) == pytest.approx((cost, one.pay - cost))
        assert one.chance_below_cost == pytest.approx(below, abs=1e-12)


def test_of_answers_at_once_one_counts(ada):
    offer = ada.gets_offer()
    with ThreadPoolExecutor(8) as pool:
        given = list(
            pool.map(lambda n: participant_folder.put_answer(ada.home, offer, ada.key, accepted=n % 2 == 0), range(40))
        )
    assert {one["document"]["kind"] for one in given} == {
        participant_folder.read_answer(ada.home, offer)["document"]["kind"]
    }
    assert len(list((ada.home / "answers").iterdir())) == 1


def test_a_receipt_for_another_key_is_not_the_participants(ada):
    offer = ada.gets_offer()
    ada.accepts(offer)
    ada.gets_receipt(offer)
    assert document_views.receipt_check(ada.home, ada.key)["fault"] is None
    assert document_views.receipt_check(ada.home, new_key())["fault"] == "its offer is to another key than yours"


def test_documents_that_were_shown_are_not_read_again(ada):
    """`truthfl join --stay` looks ten times a second, job after job."""
    first, second = ada.gets_offer(), ada.gets_offer(job="digits-2")
    ada.accepts(first)
    ada.gets_receipt(first)
    (path,) = (ada.home / "receipts").iterdir()
    assert [offer.hash for offer in participant_folder.offers(ada.home, {first.hash})] == [second.hash]
    for shown in (ada.home / "offers" / f"{first.hash}.json", path):
        shown.write_text("{")
    assert [offer.hash for offer in participant_folder.offers(ada.home, {first.hash})] == [second.hash]
    assert participant_folder.receipts(ada.home, after=1) == []
    told(participant_folder.offers, ada.home)
