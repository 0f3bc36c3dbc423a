"""Every behaviour does what it declares."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from messages import told
from truthfl.learning.behaviours import BEHAVIOURS, behaviour, error_rates, play
from truthfl.learning.labels import assigned_labels
from truthfl.learning.partition import iid_partition
from truthfl.mechanism.strategies import Strategies

NAMES = st.sampled_from(sorted(BEHAVIOURS))


@pytest.mark.parametrize("name", BEHAVIOURS)
def test_each_behaviour_does_what_it_declares(name):
    declared, assigned = BEHAVIOURS[name], np.arange(2, 200)
    played = play([name] * len(assigned), assigned)
    honest = Strategies.truthful(assigned)
    assert (played.labeling_effort == honest.labeling_effort).all() == declared.labels_honestly
    assert (played.labeling_effort != honest.labeling_effort).all() != declared.labels_honestly
    assert (played.batch_size == honest.batch_size).all() == declared.computes_honestly
    assert (played.batch_size != honest.batch_size).all() != declared.computes_honestly
    assert (played.report_scale == honest.report_scale).all() == declared.reports_honestly
    assert (played.report_scale != honest.report_scale).all() != declared.reports_honestly
    assert declared.truthful == (declared.labels_honestly and declared.computes_honestly and declared.reports_honestly)
    assert (played.batch_size >= 1).all()
    assert (played.batch_size <= assigned).all()
    assert (played.batch_size == np.rint(played.batch_size)).all()
    assert (error_rates([name] * 3) == declared.error_rate).all()
    assert behaviour(name) is declared
    assert declared.name == name
    assert declared.description.endswith(".")
    assert declared.description.count(".") == 1


@pytest.mark.parametrize("name", BEHAVIOURS)
def test_each_behaviours_labels_are_as_good_as_its_effort(name):
    true = np.arange(1000) % 10
    partition = iid_partition(1000, [500] * 40, seed=1)
    effort, errors = play([name] * 40, 10).labeling_effort, error_rates([name] * 40)
    labels = assigned_labels(true, partition, labeling_effort=effort, error_rate=errors, classes=10, seed=2)
    right = BEHAVIOURS[name].labeling_effort * (1 - BEHAVIOURS[name].error_rate)
    guessed = (1 - BEHAVIOURS[name].labeling_effort) / 10
    assert (labels == true[partition.rows]).mean() == pytest.approx(right + guessed, abs=0.012)


def test_those_that_must_be_there():
    """Effort, share of the batch, scale of the report, error rate."""
    assert {
        name: (kind.labeling_effort, kind.batch_share, kind.report_scale, kind.error_rate)
        for name, kind in BEHAVIOURS.items()
    } == {
        "truthful": (1, 1, 1, 0),
        "lazy labeler": (0, 1, 1, 0),
        "half-hearted labeler": (0.5, 1, 1, 0),
        "sloppy labeler": (1, 1, 1, 0.2),
        "small batch": (1, 0.2, 1, 0),
        "free rider": (0, 0, 0, 0),
        "exaggerator": (1, 1, 2, 0),
        "understater": (1, 1, 0.5, 0),
        "saboteur": (0, 0.2, 2, 0),
    }
    assert [name for name, kind in BEHAVIOURS.items() if kind.truthful] == ["truthful", "sloppy labeler"]


def test_a_federation_of_all_sorts():
    played = play(["small batch", "truthful", "free rider", "small batch", "exaggerator"], [50, 50, 50, 3, 7])
    assert played.labeling_effort.tolist() == [1, 1, 0, 1, 1]
    assert played.batch_size.tolist() == [10, 50, 1, 1, 7]
    assert played.report_scale.tolist() == [1, 1, 0, 1, 2]
    assert play(["truthful", "small batch"], 20).batch_size.tolist() == [20, 4]
    assert error_rates(["truthful", "sloppy labeler", "truthful"]).tolist() == [0, 0.2, 0]


@given(st.lists(st.tuples(NAMES, st.integers(1, 10**6)), min_size=1))
def test_each_plays_as_she_would_alone(clients):
    names, assigned = zip(*clients, strict=True)
    together = play(names, assigned)
    for client, (name, size) in enumerate(clients):
        alone = play([name], [size])
        assert together.labeling_effort[client] == alone.labeling_effort[0]
        assert together.batch_size[client] == alone.batch_size[0]
        assert together.report_scale[client] == alone.report_scale[0]


def test_the_registry_cannot_be_written_to():
    with pytest.raises(TypeError):
        BEHAVIOURS["truthful"] = BEHAVIOURS["free rider"]
    with pytest.raises(AttributeError):
        BEHAVIOURS["truthful"].report_scale = 2.0


def test_what_cannot_be_played():
    listed = ", ".join(BEHAVIOURS)
    assert told(behaviour, "lazy") == f"behaviour is 'lazy'; it must be one of: {listed}."
    assert told(play, ["truthful", "lazy"], 5) == f"behaviour of client 1 is 'lazy'; it must be one of: {listed}."
    assert told(error_rates, ["lazy"]) == f"behaviour of client 0 is 'lazy'; it must be one of: {listed}."
    assert told(play, "truthful", 5) == (
        "names is 'truthful'; it must be a list with the name of a behaviour per client."
    )
    assert told(play, [], 5) == "names is []; it must be a list with the name of a behaviour per client."
    assert told(play, ["truthful"], [0]) == (
        "assigned_batch_size of client 0 is 0; it must be a whole number, at least 1."
    )
    assert told(play, ["truthful"] * 3, [5, 5]) == (
        "assigned_batch_size has shape (2,); it must be one number, or 3 numbers, one per client."
    )


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        ("labeling_effort", 1.5, "labeling_effort is 1.5; it must be from 0 to 1."),
        ("batch_share", -0.5, "batch_share is -0.5; it must be a finite number, at least 0."),
        ("error_rate", 2.0, "error_rate is 2; it must be from 0 to 1."),
        ("report_scale", -1.0, "report_scale is -1; it must be a finite number, at least 0."),
    ],
)
def test_behaviours_that_cannot_be(field, value, sentence):
    assert told(replace, BEHAVIOURS["truthful"], **{field: value}) == sentence
