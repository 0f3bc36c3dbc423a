"""Bad input gets one sentence that names the client and the field."""

from dataclasses import replace

import numpy as np
import pytest

from truthfl import (
    Clients,
    Constants,
    InputError,
    LossModel,
    Strategies,
    Training,
    best_deviation,
    client_payoff,
    free_riding_gain,
    is_truthful,
    labeling_floor,
    lceme,
    optimal_batch_sizes,
    paper_bound,
    sound_bound,
)

GOOD = {
    "weight": [0.5, 0.3, 0.2],
    "gradient_variance": [1.0, 2.0, 3.0],
    "sample_cost": [0.1, 0.1, 0.1],
    "labeling_cost": [1.0, 1.0, 1.0],
    "dataset_size": [100, 100, 100],
    "heterogeneity": [0.0, 0.1, 0.2],
    "participation": [1.0, 0.5, 1.0],
}
CONSTANTS = {
    "smoothness": 1.0,
    "strong_convexity": 0.1,
    "label_shift": 2.0,
    "gradient_bound": 1.0,
    "initial_distance": 1.0,
    "optimal_loss": 0.0,
}


def sentence(error):
    text = str(error.value)
    assert "\n" not in text
    assert text.endswith(".")
    return text


@pytest.mark.parametrize("field", ["weight", "gradient_variance", "sample_cost", "labeling_cost"])
@pytest.mark.parametrize("value", [0.0, -1.0, np.nan, np.inf, -np.inf])
def test_what_must_be_positive(field, value):
    bad = list(GOOD[field])
    bad[1] = value
    with pytest.raises(InputError) as error:
        Clients(**{**GOOD, field: bad})
    assert sentence(error) == f"{field} of client 1 is {value:g}; it must be a positive finite number."


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("heterogeneity", [0, -1, 0], "heterogeneity of client 1 is -1; it must be a finite number, at least 0."),
        ("heterogeneity", [0, np.nan, 0], "heterogeneity of client 1 is nan; it must be a finite number, at least 0."),
        ("participation", [1, 0, 1], "participation of client 1 is 0; it must be a number above 0 up to 1."),
        ("participation", [1, 1, 1.5], "participation of client 2 is 1.5; it must be a number above 0 up to 1."),
        ("dataset_size", [9, 0, 9], "dataset_size of client 1 is 0; it must be a whole number, at least 1."),
        ("dataset_size", [9, 2.5, 9], "dataset_size of client 1 is 2.5; it must be a whole number."),
        (
            "dataset_size",
            [9, np.inf, 9],
            "dataset_size of client 1 is inf; it must be a whole number, at least 1 and at most 1e+15.",
        ),
        ("weight", [0.5, 0.3, 0.3], "weight sums to 1.1 over 3 clients; it must sum to 1."),
        ("weight", [], "weight is empty; there must be at least one client."),
        ("weight", 1.0, "weight has shape (); it must be a list with one number per client."),
        ("weight", [[0.5, 0.5]], "weight has shape (1, 2); it must be a list with one number per client."),
        (
            "sample_cost",
            [1, 2],
            "sample_cost has shape (2,); it must be one number, or 3 numbers, one per client.",
        ),
        ("sample_cost", "dear", "sample_cost is 'dear'; it must be one number or one number per client."),
        ("sample_cost", 0, "sample_cost is 0 for every client; it must be a positive finite number."),
        (
            "sample_cost",
            [-1, -2, 3],
            "sample_cost of client 0 is -1; it must be a positive finite number (1 more clients likewise).",
        ),
        ("name", ["a", "b"], "name has 2 entries; it must have 3, one per client."),
        ("name", ["a", "b", "a"], "name 'a' is given to more than one client; names must be distinct."),
    ],
)
def test_other_facts_of_clients(field, value, told):
    with pytest.raises(InputError) as error:
        Clients(**{**GOOD, field: value})
    assert sentence(error) == told


def test_a_named_client_is_named():
    with pytest.raises(InputError, match=r"sample_cost of client 2 \(Cyd\) is -1; "):
        Clients(**{**GOOD, "sample_cost": [1, 1, -1], "name": ["Ann", "Bob", "Cyd"]})


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("sample_cost", [1e31, 1, 1], "sample_cost of client 0 is 1e+31; it must be a number from 1e-30 to 1e+30."),
        ("sample_cost", [1, 1e-40, 1], "sample_cost of client 1 is 1e-40; it must be a number from 1e-30 to 1e+30."),
        (
            "weight",
            [[0.5], [0.2, 0.3]],
            "weight is [[0.5], [0.2, 0.3]]; it must be one number or one number per client.",
        ),
        ("labeling_cost", ["1", "2", "3"], "labeling_cost is ['1', '2', '3']; it must be one number or one number per"),
        (
            "labeling_cost",
            [True, True, True],
            "labeling_cost is [True, True, True]; it must be one number or one number",
        ),
        ("name", "abc", "name is 'abc'; it must be a list of 3 names."),
        ("name", 5, "name is 5; it must be a list of 3 names."),
    ],
)
def test_what_is_no_number_and_what_is_out_of_range(field, value, told):
    with pytest.raises(InputError) as error:
        Clients(**{**GOOD, field: value})
    assert sentence(error).startswith(told)


def test_a_contract_keeps_what_was_announced():
    cost, batches = np.ones(3), np.full(3, 10.0)
    clients, training = Clients(**{**GOOD, "labeling_cost": cost}), Training(100, 1, 0.05)
    contract = lceme(clients, paper_bound(clients, training, Constants(**CONSTANTS)), training, batches)
    announced = contract.reward(0.5)
    cost[:], batches[:] = -1e9, 99.0
    assert contract.reward(0.5).tolist() == announced.tolist()
    assert contract.batch_size.tolist() == [10.0, 10.0, 10.0]


def test_leaving_out_whom_there_is_not():
    with pytest.raises(InputError, match="client 7 cannot be left out; clients are numbered 0 to 2"):
        Clients(**GOOD).without([7])
    with pytest.raises(InputError, match="client True cannot be left out"):
        Clients(**GOOD).without([True, False, False])
    with pytest.raises(InputError, match="leaving out every client leaves nobody"):
        Clients(**GOOD).without([0, 1, 2])


def test_parts_of_different_federations_are_not_mixed():
    clients, model, training = planned()
    contract = lceme(clients, model, training, [10, 10, 10])
    alone = Clients(weight=[1.0], gradient_variance=1, sample_cost=1, labeling_cost=1, dataset_size=5)
    for call in (best_deviation, client_payoff, free_riding_gain, is_truthful):
        with pytest.raises(InputError, match="lceme is for 3 clients, the loss model for 3, and there are 1"):
            call(contract, alone, model, training)
    with pytest.raises(InputError, match=r"strategies have shape \(4,\); they must be for the loss model's 3 clients"):
        model.gap(Strategies.truthful([1, 1, 1, 1]))


def test_one_client_and_single_numbers_for_all():
    alone = Clients(weight=[1.0], gradient_variance=1, sample_cost=1, labeling_cost=1, dataset_size=5)
    assert len(alone) == 1
    shared = Clients(**{**GOOD, "labeling_cost": 7})
    assert shared.labeling_cost.tolist() == [7.0, 7.0, 7.0]


def test_what_is_written_down_stays():
    clients = Clients(**GOOD)
    with pytest.raises(ValueError, match="read-only"):
        clients.sample_cost[0] = 0.0


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((-1, 1, 0.1), "rounds is -1; it must be at least 0."),
        ((1.5, 1, 0.1), "rounds is 1.5; it must be a whole number."),
        ((1, 0, 0.1), "local_steps is 0; it must be at least 1."),
        ((1, 1, 0.0), "step_size is 0; it must be a positive finite number."),
        ((1, 1, np.nan), "step_size is nan; it must be a positive finite number."),
        ((1, 1, "fast"), "step_size is 'fast'; it must be a number."),
        ((1, 1, 0.1, -0.5), "momentum is -0.5; it must be a finite number, at least 0."),
        ((1, 1, 0.1, 1), "momentum is 1; it must be below 1."),
    ],
)
def test_training(arguments, told):
    with pytest.raises(InputError) as error:
        Training(*arguments)
    assert sentence(error) == told


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("smoothness", 0, "smoothness is 0; it must be a positive finite number."),
        ("label_shift", -1, "label_shift is -1; it must be a positive finite number."),
        ("gradient_bound", -1, "gradient_bound is -1; it must be a finite number, at least 0."),
        ("initial_distance", np.inf, "initial_distance is inf; it must be a finite number, at least 0."),
        ("optimal_loss", np.nan, "optimal_loss is nan; it must be a finite number."),
        (
            "strong_convexity",
            2,
            "strong_convexity is 2, above smoothness 1; no function is more convex than it is smooth.",
        ),
    ],
)
def test_constants(field, value, told):
    with pytest.raises(InputError) as error:
        Constants(**{**CONSTANTS, field: value})
    assert sentence(error) == told


@pytest.mark.parametrize(("bound", "limit"), [(paper_bound, 0.5), (sound_bound, 0.25)])
def test_step_size_outside_the_bounds_range(bound, limit):
    constants, clients = Constants(**CONSTANTS), Clients(**GOOD)
    bound(clients, Training(10, 1, limit), constants)
    with pytest.raises(InputError) as error:
        bound(clients, Training(10, 1, limit * 1.01), constants)
    assert f"step_size is {limit * 1.01:g}; {bound.__name__} holds for a step size up to" in sentence(error)


def planned():
    clients, training = Clients(**GOOD), Training(100, 1, 0.05)
    return clients, paper_bound(clients, training, Constants(**CONSTANTS)), training


@pytest.mark.parametrize(
    ("batches", "told"),
    [
        ([10, 200, 10], "batch_size of client 1 is 200; their dataset_size is 100, and a batch cannot be larger."),
        (
            [10, 10, 0.1],
            "batch_size of client 2 is 0.1; it must be at least 0.1732, because below that they gain by not labeling.",
        ),
        ([10, np.nan, 10], "batch_size of client 1 is nan; it must be a positive finite number."),
        ([10, 10], "batch_size has shape (2,); it must be one number, or 3 numbers, one per client."),
    ],
)
def test_assignments_that_no_contract_takes(batches, told):
    with pytest.raises(InputError) as error:
        lceme(*planned(), batches)
    assert sentence(error) == told


@pytest.mark.parametrize("as_printed", [False, True])
def test_the_floor_is_enforced_exactly(as_printed):
    clients, training = Clients(**{**GOOD, "participation": 1.0}), Training(100, 1, 0.05)
    model = paper_bound(clients, training, Constants(**CONSTANTS))
    floor = labeling_floor(clients, model, training, as_printed=as_printed)
    lceme(clients, model, training, floor, as_printed=as_printed)
    with pytest.raises(InputError, match=r"batch_size of client 0 .* they gain by not labeling"):
        lceme(clients, model, training, floor * (1 - 1e-6), as_printed=as_printed)


def test_loss_models_that_hide_a_clients_work():
    clients, _, training = planned()
    blind = LossModel(constant=0.0, sampling=[1.0, 0.0, 1.0], labeling=1.0, reporting=1.0)
    with pytest.raises(InputError, match="sampling of client 1 in the loss model is 0"):
        labeling_floor(clients, blind, training)
    other = LossModel(constant=0.0, sampling=[1.0, 1.0], labeling=1.0, reporting=1.0)
    with pytest.raises(InputError, match="the loss model is for 2 clients; there are 3"):
        optimal_batch_sizes(clients, other, training)
    with pytest.raises(InputError, match="labeling of client 2 is nan"):
        LossModel(constant=0.0, sampling=[1.0, 1.0, 1.0], labeling=[1.0, 1.0, np.nan], reporting=1.0)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (([0.5, 2.0], [1, 1], [1, 1]), "labeling_effort of client 1 is 2; it must be a number from 0 to 1."),
        (([1, 1], [1, 0], [1, 1]), "batch_size of client 1 is 0; it must be a positive finite number."),
        (([1, 1], [1, 1], [np.nan, 1]), "report_scale of client 0 is nan; it must be a finite number, at least 0."),
        (([1, 1, 1], [1, 1], [1, 1]), "the parts of Strategies differ in shape; each must have one number per client."),
    ],
)
def test_strategies(given, told):
    with pytest.raises(InputError) as error:
        Strategies(*given)
    assert sentence(error) == told


def test_as_printed_is_for_clients_who_are_always_there_and_no_budget():
    clients, model, training = planned()
    with pytest.raises(InputError, match=r"participation of client 1 is 0\.5; the paper's formulas"):
        labeling_floor(clients, model, training, as_printed=True)
    with pytest.raises(InputError, match="budget is given with as_printed=True"):
        optimal_batch_sizes(clients, model, training, budget=5, as_printed=True)


@pytest.mark.parametrize("value", [0, -1, np.nan, np.inf])
def test_worth_and_budget_must_be_positive(value):
    with pytest.raises(InputError, match=f"loss_value is {value:g}; it must be a positive finite number"):
        optimal_batch_sizes(*planned(), loss_value=value)
    with pytest.raises(InputError, match=f"budget is {value:g}; it must be a positive finite number"):
        optimal_batch_sizes(*planned(), budget=value)


def test_a_loss_that_is_not_finite_settles_nothing():
    with pytest.raises(InputError, match="test_loss is not finite"):
        lceme(*planned(), [10, 10, 10]).reward(np.nan)


def test_replace_checks_what_it_changes_and_keeps_the_rest():
    people = Clients(
        weight=[0.5, 0.5], gradient_variance=1, sample_cost=[1, 2], labeling_cost=3, dataset_size=4, name=["Ada", "Ben"]
    )
    dearer = replace(people, sample_cost=2 * people.sample_cost)
    assert dearer.sample_cost.tolist() == [2, 4]
    assert (dearer.name, dearer.dataset_size.tolist()) == (("Ada", "Ben"), [4, 4])
    with pytest.raises(InputError, match=r"sample_cost of client 1 \(Ben\) is 0"):
        replace(people, sample_cost=[1, 0])
