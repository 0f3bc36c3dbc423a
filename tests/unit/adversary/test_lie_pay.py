"""What lies gain under payment rules, from losses that are known."""

from dataclasses import replace

import numpy as np
import pytest

from truthfl import Clients, Contract, Evidence, InputError, LossModel, Training, lceme
from truthfl.adversary.measure import Honest, Lied, LieLosses, Payer, gains
from truthfl.adversary.search import KnownLosses
from truthfl.adversary.strategy import ABSENCE, TRUTH, LiePoint, ReportKind
from truthfl.contracts.baselines import LeaveOneOutPay, ShapleySharePay, flat_pay, pay_per_claimed_sample
from truthfl.learning.people.behaviour import Unlabeled

CLIENTS = Clients(
    weight=[0.25] * 4, gradient_variance=1.0, sample_cost=0.05, labeling_cost=[40.0, 50.0, 60.0, 70.0], dataset_size=200
)
TRAINING = Training(100, 1, 0.1)  # so one sample in every batch costs 5
MODEL = LossModel(constant=0.3, sampling=[0.5] * 4, labeling=[0.2] * 4, reporting=[0.01] * 4)
BATCHES = np.full(4, 40.0)
LAST_BIT = LiePoint(report=ReportKind.LAST_BIT).canonical()
LIES = (
    LiePoint(labels=0.0, rest=Unlabeled.DRAWN, batch=0.5),
    LiePoint(labels=0.5, rest=Unlabeled.DRAWN),
    LiePoint(batch=2.0, scale=2.0, last_scale=2.0),
    LAST_BIT,
)
LIAR = np.array([1, 2, 1, 3, 0])


def honest_losses(loss=0.5, without=0.6):
    """Honest work in five cases under one payer."""
    cases, unknown = np.ones(len(LIAR)), np.full(len(LIAR), np.nan)
    payer = np.zeros(len(LIAR), dtype=int)
    return Honest(LIAR, payer, loss * cases, without * cases, unknown, unknown, unknown, unknown, np.zeros(len(LIAR)))


def lied_losses(losses, delivered=1.0):
    loss = np.repeat(np.asarray(losses, dtype=float)[:, None], len(LIAR), axis=1)
    unknown = np.full_like(loss, np.nan)
    return Lied(loss, np.broadcast_to(np.asarray(delivered, dtype=float), loss.T.shape).T, unknown, unknown)


def of_model(point):
    """The loss by which the loss model answers a lie that (e, D, γ) describe."""
    gap = [MODEL.own_gap(*p)[0] for p in ((point.labels, 40 * point.batch, point.scale), (1.0, 40.0, 1.0))]
    return MODEL.truthful_loss(BATCHES) + gap[0] - gap[1]


def test_on_a_loss_model_the_gains_are_the_contracts():
    rule = lceme(CLIENTS, MODEL, TRAINING, BATCHES)
    points = LIES[:3]
    found = gains([Payer(rule, CLIENTS, TRAINING)], points, lied_losses([of_model(p) for p in points]),
                  honest_losses(loss=MODEL.truthful_loss(BATCHES)))  # fmt: skip
    for case, client in enumerate(LIAR):
        assert found.cost[case] == CLIENTS.labeling_cost[client] + 200.0
        assert found.pay[case] == pytest.approx(rule.reward(MODEL.truthful_loss(BATCHES))[client])
        for k, point in enumerate(points):
            rise = of_model(point) - MODEL.truthful_loss(BATCHES)
            saved = CLIENTS.labeling_cost[client] * (1 - point.labels) + 5.0 * 40 * (1 - point.batch)
            assert found.gain[k, case] == pytest.approx(saved - rule.slope[client] * rise)
    assert (found.gain < 1e-9).all()  # LCEME's theorem, for these three


def test_flat_pay_is_paid_for_anything_and_claims_are_believed():
    lied, honest = lied_losses([0.9] * 4), honest_losses()
    flat = gains([Payer(flat_pay(CLIENTS, MODEL, TRAINING, BATCHES), CLIENTS, TRAINING)], LIES, lied, honest)
    assert flat.gain[3] == pytest.approx(flat.cost)
    assert flat.gain[0] == pytest.approx(CLIENTS.labeling_cost[LIAR] + 5.0 * 20)
    claimed = pay_per_claimed_sample(CLIENTS, MODEL, TRAINING, BATCHES)
    found = gains([Payer(claimed, CLIENTS, TRAINING)], LIES, lied, honest)
    assert found.gain[3] == pytest.approx(found.cost + 5.0 * 160)


def test_leave_one_out_pays_for_the_loss_without_the_client():
    found = gains([Payer(LeaveOneOutPay(BATCHES, 1000.0), CLIENTS, TRAINING)], LIES, lied_losses([0.55] * 4),
                  honest_losses(loss=0.5, without=0.6))  # fmt: skip
    assert found.pay == pytest.approx(100.0)
    assert found.gain[3] == pytest.approx(50.0 - 100.0 + found.cost)


def test_rounds_whose_reports_are_refused_are_not_paid():
    rule = lceme(CLIENTS, MODEL, TRAINING, BATCHES)
    payer = [Payer(rule, CLIENTS, TRAINING)]
    loss = MODEL.truthful_loss(BATCHES)
    found = gains(payer, [LAST_BIT, ABSENCE], lied_losses([loss, loss], [0.75, 0.0]), honest_losses(loss=loss))
    assert found.gain[0] == pytest.approx(0.75 * found.pay - (found.pay - found.cost))
    assert found.gain[1] == pytest.approx(-(found.pay - found.cost))


def test_each_case_is_paid_by_the_plan_of_its_draw():
    rules = [lceme(CLIENTS, MODEL, TRAINING, BATCHES, margin=margin) for margin in (0.0, 50.0)]
    honest = replace(honest_losses(), payer=np.array([0, 1, 1, 0, 1]))
    found = gains([Payer(rule, CLIENTS, TRAINING) for rule in rules], LIES, lied_losses([0.6] * 4), honest)
    for case, number in enumerate(honest.payer):
        alone = gains([Payer(rules[number], CLIENTS, TRAINING)], LIES, lied_losses([0.6] * 4), honest_losses())
        assert found.pay[case] == alone.pay[case]
        assert (found.gain[:, case] == alone.gain[:, case]).all()


def test_shapley_pay_is_the_share_of_the_drop_and_never_negative():
    rule = ShapleySharePay(BATCHES, 400.0)
    cases = len(LIAR)
    joined = np.tile(0.5 + 0.01 * np.arange(cases), (2, 1))
    joined[1] += 10.0  # a lie that harms every coalition
    honest = Honest(LIAR, np.zeros(cases, dtype=int), np.full(cases, 0.5), np.full(cases, np.nan), joined[0],
                    np.full(cases, 0.7), np.full(cases, 2.5), np.full(cases, np.nan), np.zeros(cases))  # fmt: skip
    lied = Lied(np.full((2, cases), 0.5), np.ones((2, cases)), joined, np.full((2, cases), np.nan))
    found = gains([Payer(rule, CLIENTS, TRAINING)], LIES[:2], lied, honest)
    assert found.pay.mean() == pytest.approx(400.0 * (0.7 - joined[0].mean()) / 2.0)
    saved = [float(TRUTH.cost(cost, 5.0, 40, 200) - LIES[1].cost(cost, 5.0, 40, 200)) for cost in CLIENTS.labeling_cost]
    assert found.gain[1].mean() == pytest.approx((np.array(saved)[LIAR] - found.pay).mean())


def test_a_custom_rule_that_pays_by_shapley_values_is_paid_by_them():
    class PerUnit(Contract):
        kind = "per unit"
        needs = frozenset({Evidence.SHAPLEY})
        batch_size = BATCHES

        def pay(self, seen):
            return 100.0 * np.asarray(seen.contribution.own) * np.ones(4)

    cases = len(LIAR)
    honest = replace(
        honest_losses(), joined=np.full(cases, 0.55), alone=np.full(cases, 0.7), nobody=np.full(cases, 2.5)
    )
    lied = replace(lied_losses([0.5] * 4), joined=np.full((4, cases), 0.6))
    found = gains([Payer(PerUnit(), CLIENTS, TRAINING)], LIES, lied, honest)
    assert found.pay == pytest.approx(15.0)
    assert np.isfinite(found.gain).all()


@pytest.mark.parametrize(
    ("pay", "sentence"),
    [(lambda _: np.ones(3), "pays an array of shape"), (lambda seen: np.asarray(seen.test_loss) * np.nan, "no finite")],
)
def test_a_rule_that_pays_nonsense_is_one_sentence(pay, sentence):
    own = type("Nonsense", (Contract,), {"kind": "nonsense", "batch_size": BATCHES, "pay": lambda _, s: pay(s)})
    with pytest.raises(InputError, match=f"the contract 'nonsense' .*{sentence}"):
        gains([Payer(own(), CLIENTS, TRAINING)], LIES, lied_losses([0.5] * 4), honest_losses())


def test_what_is_known_is_not_trained_again():
    trained = []

    def train(groups):
        results = []
        for points, cases in groups:
            trained.extend((point, case) for point in points for case in cases)
            loss = np.array([[10.0 * LIES.index(p) + c if p in LIES else -1.0 for c in cases] for p in points])
            empty = np.full(len(cases), np.nan)
            unknown = np.full_like(loss, np.nan)
            results.append(LieLosses(loss, np.ones_like(loss), unknown, empty, empty, unknown, np.zeros(len(cases))))
        return results

    known = KnownLosses(LIAR, np.zeros_like(LIAR), train)
    first = known.lied(LIES[:2], 2)
    assert first.loss.tolist() == [[0, 1], [10, 11]]
    second = known.lied([LIES[2], LIES[0], ABSENCE], 4)
    assert second.loss.tolist() == [[20, 21, 22, 23], [0, 1, 2, 3], [-1] * 4]
    assert known.lied(LIES[:1], 3).loss.tolist() == [[0, 1, 2]]
    assert len(trained) == len(set(trained)) == known.runs == 2 * 5 + 2 * 2 + 4 + 2
    assert known.honest().first(2).loss.shape == (2,)
