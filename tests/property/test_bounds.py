"""Both bounds: against the slow versions that read like the proofs, and against exact training."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from helpers import mechanisms as paper
from helpers.mechanisms import federations
from truthfl import Clients, Strategies, Training, paper_bound, sound_bound
from truthfl.learning.models.quadratic import QuadraticFederation, describe, train_exactly
from truthfl.studies.reproduce.errata import biased_descent, example

pytestmark = pytest.mark.properties


def random_federation(generator, largest=8):
    """A random federation with fewer than `largest` clients and coordinates; all other values vary widely."""
    count, width = (int(k) for k in generator.integers(1, largest, size=2))
    smoothness, condition = 10.0 ** generator.uniform(-1, 1), 10.0 ** generator.uniform(0, 2)
    weight = generator.dirichlet(np.full(count, generator.uniform(0.3, 5.0))) + 1e-4
    always = generator.random() < 0.5
    return QuadraticFederation(
        curvature=smoothness * condition ** -generator.uniform(0, 1, (count, width)),
        optimum=generator.normal(size=(count, width)) * 10.0 ** generator.uniform(-2, 1),
        label_bias=generator.normal(size=(count, width)) * 10.0 ** generator.uniform(-2, 1),
        noise=10.0 ** generator.uniform(-3, 2, count),
        weight=weight / weight.sum(),
        availability=np.ones(count) if always else generator.uniform(0.1, 1.0, count),
        start=generator.normal(size=width) * 10.0 ** generator.uniform(-1, 1),
    )


def random_dishonesty(generator, count):
    """Random strategies: half of the clients do not label, half scale their reports by 0 to 2.5; batches below 200."""
    lies = generator.random(count) < 0.5
    return Strategies(
        labeling_effort=(generator.random(count) < 0.5).astype(float),
        batch_size=generator.integers(1, 200, count).astype(float),
        report_scale=np.where(lies, generator.uniform(0.0, 2.5, count), 1.0),
    )


def some_strategies(generator, count):
    return Strategies(generator.integers(0, 2, count), generator.integers(1, 99, count), generator.uniform(0, 3, count))


@given(federations(max_clients=4, participation=False, bounds=(paper_bound,)), st.integers(0, 2**32))
def test_paper_bound_is_theorem_1(federation, seed):
    training = replace(federation.training, rounds=min(federation.training.rounds, 40))
    played = some_strategies(np.random.default_rng(seed), len(federation.clients))
    fast = paper_bound(federation.clients, training, federation.constants).gap(played)
    assert fast == pytest.approx(paper.theorem_1(federation.clients, training, federation.constants, played), rel=1e-9)


@given(federations(max_clients=4, bounds=(sound_bound,)), st.integers(0, 2**32))
def test_sound_bound_is_the_recursion_of_its_proof(federation, seed):
    training = replace(federation.training, rounds=min(federation.training.rounds, 40))
    played = some_strategies(np.random.default_rng(seed), len(federation.clients))
    fast = float(sound_bound(federation.clients, training, federation.constants).gap(played))
    slow = paper.sound_recursion(federation.clients, training, federation.constants, played)
    assert fast == pytest.approx(slow, rel=1e-9)


def test_participation_of_1_changes_nothing_and_less_raises_the_noise():
    always = {"weight": [0.5, 0.5], "gradient_variance": 2, "sample_cost": 1, "labeling_cost": 1, "dataset_size": 9}
    _, training, constants = example()
    for bound in (paper_bound, sound_bound):
        whole = bound(Clients(**always), training, constants)
        same = bound(Clients(**always, participation=[1, 1]), training, constants)
        half = bound(Clients(**always, participation=[0.5, 1]), training, constants)
        assert (whole.sampling == same.sampling).all()
        assert whole.constant == same.constant < half.constant
        assert half.sampling[0] > whole.sampling[0]
        assert half.sampling[1] == pytest.approx(whole.sampling[1])
    paper_half = paper_bound(Clients(**always, participation=[0.5, 1]), training, constants)
    assert paper_half.sampling[0] == pytest.approx(2 * paper_bound(Clients(**always), training, constants).sampling[0])


def dishonest_training(seed, bound, step_limit):
    """Expected gap after exact training of a random quadratic federation of dishonest clients, and the bound."""
    generator = np.random.default_rng(seed)
    federation = random_federation(generator)
    played = random_dishonesty(generator, len(federation.weight))
    step = generator.uniform(0.02, 1.0) / (step_limit * federation.curvature.max())
    training = Training(int(generator.integers(1, 100)), int(generator.integers(1, 11)), step)
    outcome = train_exactly(federation, training, played)
    if outcome.gradient_bound > 1e20:  # the lies made training diverge
        return None, None
    clients, constants = describe(federation, outcome.gradient_bound)
    return outcome.gap, float(bound(clients, training, constants).gap(played))


@given(st.integers(0, 2**63))
def test_sound_bound_holds_with_dishonest_clients(seed):
    gap, bound = dishonest_training(seed, sound_bound, step_limit=4)
    assume(gap is not None)
    assert gap <= bound


@pytest.mark.parametrize("step_size", [0.1, 0.01, 0.001])
def test_a_client_who_does_not_label_breaks_the_papers_bound_and_not_the_sound_one(step_size):
    """SGD settles at w = 1/2, loss gap 1/8, whatever the step; the printed bound tends to η (mechanism, section 2b)."""
    outcome, printed, sound = biased_descent(step_size)
    assert outcome.gap == pytest.approx(0.125, rel=1e-6)
    assert printed == pytest.approx(step_size, rel=1e-6)
    assert printed < outcome.gap < sound


def test_exact_training_agrees_with_simulated_training():
    """The mean over many noisy runs, absences and all, is what `train_exactly` says."""
    generator = np.random.default_rng(5)
    federation = random_federation(generator)
    count, width = federation.curvature.shape
    federation = replace(federation, availability=np.full(count, 0.6))
    played = random_dishonesty(generator, count)
    training = Training(8, 3, 0.2 / federation.curvature.max())
    runs = 40_000
    w = np.tile(federation.start, (runs, 1))
    for _ in range(training.rounds):
        step = np.zeros_like(w)
        for i in range(count):
            local = w.copy()
            for _ in range(training.local_steps):
                noise = generator.normal(size=local.shape) * np.sqrt(federation.noise[i] / played.batch_size[i] / width)
                bias = (1 - played.labeling_effort[i]) * federation.label_bias[i]
                local -= training.step_size * (federation.curvature[i] * (local - federation.optimum[i]) + bias + noise)
            there = generator.random((runs, 1)) < federation.availability[i]
            share = federation.weight[i] / federation.availability[i] * played.report_scale[i]
            step += np.where(there, share * (local - w), 0.0)
        w += step
    pull = (federation.weight[:, None] * federation.curvature).sum(axis=0)
    gaps = 0.5 * (pull * np.square(w - federation.solution)).sum(axis=1)
    exact = train_exactly(federation, training, played).gap
    assert abs(gaps.mean() - exact) < 5 * gaps.std() / np.sqrt(runs)
