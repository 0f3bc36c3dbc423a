"""Every behaviour that is registered does what it declares; profiles of them; custom ones."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.commands import told
from truthfl.contracts.setting import Strategies, Training
from truthfl.learning.data.datasets import small_digits
from truthfl.learning.data.partition import Federated, iid_partition
from truthfl.learning.models.softmax import SoftmaxRegression
from truthfl.learning.people import behaviours as registry
from truthfl.learning.people.behaviour import (
    Behaviour,
    Echo,
    Garbage,
    LastBit,
    Unlabeled,
    direction,
    from_strategy,
    length,
)
from truthfl.learning.people.behaviours import BEHAVIOURS, behaviour, register
from truthfl.learning.people.profile import Profile
from truthfl.learning.training.draws import Purpose, generator
from truthfl.learning.training.local_training import used_samples
from truthfl.learning.training.train import train

NAMES = st.sampled_from(sorted(BEHAVIOURS))
SCALES = st.one_of(st.sampled_from([0.0, 0.1, 0.3, 1.0]), st.floats(0, 10))
DIGITS = small_digits()
MODEL = SoftmaxRegression(64, 10)


def some_models(count, seed=4):
    drawn = np.random.default_rng(seed).normal(size=(count, MODEL.size)).astype(np.float32)
    return list(np.cumsum(drawn, axis=0, dtype=np.float32))


def reported(kind, received, seed=1, honest=None, round_=0, rounds=6):
    """The client's report, and whether the honest one was computed for it."""
    asked = []
    local = received[-1] + np.float32(0.5) if honest is None else honest
    report = kind.report(
        received,
        lambda: generator(seed, Purpose.REPORT, 0, 0),
        lambda: asked.append(True) or local,
        round_=round_,
        rounds=rounds,
    )
    return report, bool(asked)


@pytest.mark.parametrize("name", BEHAVIOURS)
def test_each_behaviour_is_named_described_and_found(name):
    kind = BEHAVIOURS[name]
    assert behaviour(name) is kind
    assert behaviour(kind) is kind
    assert kind.name == name
    assert kind.description.endswith(".")
    assert kind.description.count(".") == 1
    assert any(word in kind.description for word in ("cost", "save", "pay")), "it says what it costs"


@pytest.mark.parametrize("name", BEHAVIOURS)
def test_each_behaviours_honesty_is_as_declared(name):
    kind, received = BEHAVIOURS[name], some_models(3)
    assert kind.labels_honestly == (kind.labeling_effort == 1)
    for assigned in range(2, 200):
        assert kind.computes_honestly == (kind.computes and kind.batch_size(assigned) == assigned)
    local = received[-1] + np.float32(0.5)
    reports = [reported(kind, received, honest=local, round_=round_)[0] for round_ in range(6)]
    assert kind.reports_honestly == all(np.array_equal(report, local) for report in reports)
    assert kind.truthful == (kind.labels_honestly and kind.computes_honestly and kind.reports_honestly)


@pytest.mark.parametrize("name", BEHAVIOURS)
@given(cost=st.floats(0, 1e6), price=st.floats(0, 1e6), assigned=st.integers(1, 10**6))
def test_each_behaviour_costs_no_more_than_honest_work_unless_it_does_more(name, cost, price, assigned):
    kind = BEHAVIOURS[name]
    spent, honest = kind.cost(cost, price, assigned), BEHAVIOURS["truthful"].cost(cost, price, assigned)
    assert honest == cost + price * assigned
    assert math.isfinite(spent)
    assert spent >= 0
    assert spent <= honest or kind.batch_share > 1
    assert spent == cost * kind.labeling_effort + (price * kind.batch_size(assigned) if kind.computes else 0)


@pytest.mark.parametrize("earlier", [0, 1, 5])
@pytest.mark.parametrize("name", BEHAVIOURS)
def test_each_behaviours_report_is_like_the_model_and_the_same_for_the_same_seed(name, earlier):
    kind, received = BEHAVIOURS[name], some_models(1 + earlier)
    before = [one.copy() for one in received]
    report, computed = reported(kind, received)
    assert report.shape == received[-1].shape
    assert report.dtype == np.float32
    assert np.isfinite(report).all()
    assert computed == kind.computes
    assert kind.reports_nothing <= np.array_equal(report, received[-1])
    assert (reported(kind, received)[0] == report).all()
    assert all((one == kept).all() for one, kept in zip(received, before, strict=True)), "models are not written to"
    shown = received[-1 - kind.remembers :]
    assert (reported(kind, shown)[0] == report).all(), "it looks at no more models than it says"


@pytest.mark.parametrize("name", BEHAVIOURS)
def test_each_behaviours_labels_are_as_good_as_its_effort(name):
    kind = BEHAVIOURS[name]
    federated = Federated(MODEL, DIGITS, iid_partition(len(DIGITS), [500] * 40, seed=1), Training(1))
    right = Profile([name] * 40, 10).labels(federated, 2) == federated.true_labels()
    guessed = (1 - kind.labeling_effort) / 10
    known = kind.labeling_effort * (1 - kind.error_rate)
    if kind.unlabeled is Unlabeled.NEAREST:  # digits that look alike mostly are alike
        assert known + 0.85 * (1 - known) < right.mean() < 1
    else:
        assert right.mean() == pytest.approx(known + guessed, abs=0.012)
    images, labels = DIGITS.images[:500], np.full(500, 77)
    used, own = used_samples(kind, MODEL, MODEL.init(0), images, labels, client=3, seed=2)
    by_hand = round(500 * kind.labeling_effort)
    assert len(used) == len(own) == (by_hand if kind.unlabeled is Unlabeled.LEFT_OUT else 500)
    predicted = 500 - by_hand if kind.unlabeled is Unlabeled.PREDICTED else 0
    assert (own != 77).sum() == predicted
    assert (own[own != 77] == 0).all()  # what the model says that has learned nothing
    assert (labels == 77).all()


def test_those_that_must_be_there():
    """Effort, share of the batch, scale of the report, error rate; what they cost at 100 for labels and 10 × 4."""
    assert {
        name: (kind.labeling_effort, kind.batch_share, kind.report_scale, kind.error_rate, kind.cost(100, 10, 4))
        for name, kind in BEHAVIOURS.items()
    } == {
        "truthful": (1, 1, 1, 0, 140),
        "lazy labeler": (0, 1, 1, 0, 40),
        "half-hearted labeler": (0.5, 1, 1, 0, 90),
        "sloppy labeler": (1, 1, 1, 0.2, 140),
        "small batch": (1, 0.2, 1, 0, 110),
        "free rider": (0, 0, 0, 0, 0),
        "exaggerator": (1, 1, 2, 0, 140),
        "understater": (1, 1, 0.5, 0, 140),
        "saboteur": (0, 0.2, 2, 0, 10),
        "whisperer": (0, 0, 0.02, 0, 10),
        "echo": (0, 0, 1, 0, 0),
        "noisy echo": (0, 0, 1, 0, 0),
        "garbage": (0, 0, 1, 0, 0),
        "last bit": (0, 0, 1, 0, 0),
        "parrot": (0, 1, 1, 0, 40),
        "half parrot": (0.5, 1, 1, 0, 90),
        "few labels": (0.1, 1, 1, 0, 50),
        "neighbour labeler": (0.25, 1, 1, 0, 65),
        "fading reporter": (0, 1, 1, 0, 40),
    }
    assert [name for name, kind in BEHAVIOURS.items() if kind.truthful] == ["truthful", "sloppy labeler"]
    assert [name for name, kind in BEHAVIOURS.items() if kind.reports_nothing] == ["free rider"]
    assert {name: kind.last_report_scale for name, kind in BEHAVIOURS.items() if kind.changes_scale} == {
        "fading reporter": 0.02
    }


def test_what_fabricated_reports_are():
    first, second, third = some_models(3)
    change = third - second
    received = [first, second, third]
    assert np.allclose(reported(BEHAVIOURS["echo"], received)[0], third + change)
    noise = reported(BEHAVIOURS["noisy echo"], received)[0] - (third + change)
    assert np.linalg.norm(noise) == pytest.approx(np.linalg.norm(change) / 2, rel=1e-4)
    assert abs(noise @ change) < 0.1 * np.linalg.norm(noise) * np.linalg.norm(change)
    wild = reported(BEHAVIOURS["garbage"], received)[0] - third
    assert np.linalg.norm(wild) == pytest.approx(np.linalg.norm(change), rel=1e-4)
    assert np.abs(wild - (reported(BEHAVIOURS["garbage"], received, seed=2)[0] - third)).max() > 0.1
    for name in ("echo", "noisy echo", "garbage"):
        assert (reported(BEHAVIOURS[name], [first])[0] == first).all()
    for common in (first, np.zeros(650, np.float32)):
        bit = reported(BEHAVIOURS["last bit"], [common])[0]
        assert (bit != common).sum() == 1
        assert bit[0].view(np.int32) - common[0].view(np.int32) in (1, -1)
    whispered = reported(BEHAVIOURS["whisperer"], [first])[0]
    assert np.allclose(whispered, first + 0.02 * 0.5, atol=1e-6)


def test_fabricators_have_parameters():
    first, second, third = received = some_models(3)
    change, size = third - second, np.linalg.norm((third - second).astype(np.float64))

    def made(fabricate, seed=1):
        kind = replace(BEHAVIOURS["echo"], name="my own", fabricate=fabricate)
        return reported(kind, received, seed)[0]

    drawn = direction(generator(1, Purpose.REPORT, 0, 0), change, 0.5 * length(change))
    assert (made(Echo()) == third + change).all()
    assert (made(Echo(noise=0.5)) == third + change + drawn).all()
    assert (made(Garbage()) == third + direction(generator(1, Purpose.REPORT, 0, 0), change, length(change))).all()
    assert np.allclose(made(Echo(2.5)), third + 2.5 * change, atol=1e-5)
    assert (made(Echo(0.0, noise=3.0)) == third).all()
    assert np.linalg.norm(made(Echo(2.0, 0.25)) - made(Echo(2.0))) == pytest.approx(0.5 * size, rel=1e-4)
    assert np.linalg.norm(made(Garbage(3.0)) - third) == pytest.approx(3 * size, rel=1e-4)
    assert (made(Garbage(3.0)) != made(Garbage(3.0), seed=2)).any()
    assert (made(Garbage(0.0)) == third).all()
    assert Echo(2.0) == Echo(2.0) != Echo(2.0, 0.1)
    assert len({Echo(), Echo(1.0), Garbage(), LastBit(), LastBit()}) == 3
    assert first is received[0]


@pytest.mark.parametrize("fabricate", [Echo(10.0), Echo(3.0, 2.0), Garbage(10.0)], ids=str)
def test_reports_that_grow_from_round_to_round_stay_finite(fabricate):
    """They spoil the model, as they would; they do not end the training."""
    largest = np.finfo(np.float32).max
    received = [np.full(6, -0.5 * largest, np.float32), np.array([0.9 * largest] * 3 + [0.0] * 3, np.float32)]
    report, _ = reported(replace(BEHAVIOURS["echo"], name="my own", fabricate=fabricate), received)
    assert np.isfinite(report).all()
    federated = Federated(MODEL, DIGITS, iid_partition(len(DIGITS), [50, 50], seed=1), Training(120, 1, 0.3))
    liar = replace(BEHAVIOURS["echo"], name="my own", fabricate=fabricate)
    for threads, seeds in ((1, [1]), (2, [1]), (2, [1, 2])):
        train(federated, Profile([liar, "truthful"], 10), seeds, threads=threads)


@pytest.mark.parametrize(
    ("kind", "values", "sentence"),
    [
        (Echo, {"factor": -1.0}, "factor of Echo is -1; it must be a finite number, at least 0."),
        (Echo, {"noise": math.nan}, "noise of Echo is nan; it must be a finite number, at least 0."),
        (Garbage, {"length": math.inf}, "length of Garbage is inf; it must be a finite number, at least 0."),
    ],
)
def test_fabricators_that_cannot_be(kind, values, sentence):
    assert told(kind, **values) == sentence


@given(first=SCALES, last=SCALES, rounds=st.integers(1, 50))
def test_a_scale_goes_in_equal_steps_from_the_first_round_to_the_last(first, last, rounds):
    kind = replace(from_strategy("my own", report_scale=first), last_report_scale=last)
    scales = [kind.scale_in_round(t, rounds) for t in range(rounds)]
    assert scales[0] == first
    assert scales[-1] == pytest.approx(last if rounds > 1 else first)
    if rounds > 1 and last == 0:
        assert scales[-1] == 0
    assert np.allclose(np.diff(scales, 2), 0)
    assert min(scales) >= 0
    assert kind.changes_scale == (first != last)
    assert kind.reports_nothing == (first == last == 0)
    constant = from_strategy("my own", report_scale=first)
    assert {constant.scale_in_round(t, rounds) for t in range(rounds)} == {first}


def test_a_round_with_scale_0_sends_the_model_back_and_computes_nothing():
    received, kind = some_models(1), replace(from_strategy("my own", report_scale=0.7), last_report_scale=0.0)
    half, computed = reported(kind, received, round_=1, rounds=3)
    assert np.allclose(half, received[0] + 0.35 * 0.5, atol=1e-6)
    assert computed
    report, computed = reported(kind, received, round_=2, rounds=3)
    assert (report == received[0]).all()
    assert not computed


def test_a_federation_of_all_sorts():
    own = from_strategy("my own", labeling_effort=0.25, batch_share=2.0)
    profile = Profile(["small batch", "truthful", "free rider", "small batch", "exaggerator", own, "echo"],
                      [50, 50, 50, 3, 7, 7, 7])  # fmt: skip
    played = profile.strategies
    assert played.labeling_effort.tolist() == [1, 1, 0, 1, 1, 0.25, 0]
    assert played.batch_size.tolist() == [10, 50, 1, 1, 7, 14, 1]
    assert played.report_scale.tolist() == [1, 1, 0, 1, 2, 1, 1]
    assert profile.reports_nothing.tolist() == [False, False, True, False, False, False, False]
    assert profile.fabricators == {6: BEHAVIOURS["echo"]}
    assert profile[5] is own
    assert len(profile) == 7
    assert Profile(["truthful", "small batch"], 20).strategies.batch_size.tolist() == [20, 4]
    assert Profile(["truthful", "sloppy labeler", "truthful"], 1).error_rate.tolist() == [0, 0.2, 0]


@given(st.lists(st.tuples(NAMES, st.integers(1, 10**6)), min_size=1))
def test_each_plays_as_they_would_alone(clients):
    names, assigned = zip(*clients, strict=True)
    together = Profile(names, assigned).strategies
    for client, (name, size) in enumerate(clients):
        kind = BEHAVIOURS[name]
        assert together.labeling_effort[client] == kind.labeling_effort
        assert together.batch_size[client] == kind.batch_size(size)
        assert together.report_scale[client] == kind.report_scale


def test_strategies_as_a_profile():
    played = Strategies([1.0, 0.0, 1.0], [20.0, 10.0, 20.0], [1.0, 2.0, 1.0])
    again = Profile.of_strategies(played, 3).strategies
    for field in ("labeling_effort", "batch_size", "report_scale"):
        assert (getattr(again, field) == getattr(played, field)).all()


def test_the_registry_is_written_to_by_register_alone():
    with pytest.raises(TypeError):
        BEHAVIOURS["truthful"] = BEHAVIOURS["free rider"]
    with pytest.raises(AttributeError):
        BEHAVIOURS["truthful"].report_scale = 2.0
    own = from_strategy("twice the work", batch_share=2.0)
    try:
        assert register(own) is own
        assert register(own) is own
        assert behaviour("twice the work") is own
        assert Profile(["twice the work"], [5]).strategies.batch_size.tolist() == [10]
        other = replace(own, batch_share=3.0)
        assert told(register, other) == "the behaviour 'twice the work' exists already; choose another name."
    finally:
        del registry._REGISTERED["twice the work"]


def test_what_cannot_be_played():
    listed = ", ".join(BEHAVIOURS)
    assert told(behaviour, "lazy") == f"behaviour is 'lazy'; it must be one of: {listed}."
    assert told(behaviour, 3) == f"behaviour is 3; it must be one of: {listed}."
    assert told(Profile, ["truthful", "lazy"], 5) == f"behaviour of client 1 is 'lazy'; it must be one of: {listed}."
    assert told(Profile, "truthful", 5) == (
        "behaviours is 'truthful'; it must be a list with a behaviour per client."
    )  # fmt: skip
    assert told(Profile, [], 5) == "behaviours is []; it must be a list with a behaviour per client."
    assert told(Profile, [["truthful"]], 5) == "a behaviour is neither a name nor a Behaviour; it must be one of them."
    assert told(Profile, ["truthful"], [0]) == (
        "assigned_batch_size of client 0 is 0; it must be a whole number, at least 1."
    )
    assert told(Profile, ["truthful"] * 3, [5, 5]) == (
        "assigned_batch_size has shape (2,); it must be one number, or 3 numbers, one per client."
    )


@pytest.mark.parametrize(
    ("traits", "sentence"),
    [
        ({"labeling_effort": 1.5}, "labeling_effort is 1.5; it must be from 0 to 1."),
        ({"batch_share": -0.5}, "batch_share is -0.5; it must be a finite number, at least 0."),
        ({"error_rate": 2.0}, "error_rate is 2; it must be from 0 to 1."),
        ({"report_scale": -1.0}, "report_scale is -1; it must be a finite number, at least 0."),
        ({"report_scale": math.nan}, "report_scale is nan; it must be a finite number, at least 0."),
        ({"last_report_scale": -0.1}, "last_report_scale is -0.1; it must be a finite number, at least 0."),
        ({"last_report_scale": math.inf}, "last_report_scale is inf; it must be a finite number, at least 0."),
        (
            {"last_report_scale": 1.0, "fabricate": min},
            "truthful both fabricates its report and scales it; it must do one of them.",
        ),
        (
            {"computes": False, "report_scale": 0.0, "last_report_scale": 0.5},
            "truthful reports what it does not compute; it must compute or fabricate its report.",
        ),
        (
            {"labeling_effort": 0.0, "unlabeled": Unlabeled.OWN_MODEL},
            "truthful labels no sample to derive the other labels from; its labeling_effort must be above 0.",
        ),
        (
            {"labeling_effort": 0.0, "unlabeled": Unlabeled.NEAREST},
            "truthful labels no sample to derive the other labels from; its labeling_effort must be above 0.",
        ),
        (
            {"labeling_effort": 0.0, "unlabeled": Unlabeled.LEFT_OUT},
            "truthful leaves out every sample; its labeling_effort must be above 0.",
        ),
        (
            {"report_scale": 2.0, "fabricate": min},
            "truthful both fabricates its report and scales it; it must do one of them.",
        ),
        (
            {"computes": False},
            "truthful reports what it does not compute; it must compute or fabricate its report.",
        ),
    ],
)
def test_behaviours_that_cannot_be(traits, sentence):
    assert told(replace, BEHAVIOURS["truthful"], **traits) == sentence


def test_a_cost_is_that_of_the_samples_of_the_client():
    double = from_strategy("double", batch_share=2.0)
    assert double.batch_size(30) == 60
    assert double.batch_size(30, at_most=40) == 40
    assert double.cost(5, 2, 30, at_most=40) == 85
    idle = from_strategy("computes for nothing", report_scale=0.0)
    assert idle.cost(5, 2, 30) == 65  # whoever computes and does not send it has had the cost
    assert isinstance(idle, Behaviour)
