"""How often clients are there, as a job says it: to the pilot, to the clients who are simulated, to the mechanism."""

import pytest

from small_jobs import ten_client_job_file
from truthfl import InputError
from truthfl.job import read_job
from truthfl.learning.pilot_design import PilotDesign
from truthfl.studies.cells import Cell, FederationSpec, federation_of


def test_participation_in_a_job_reaches_pilot_clients_and_mechanism(tmp_path):
    job = read_job(ten_client_job_file(tmp_path, "participation = 0.5"))
    scene = job.simulated_federation()
    for federated in (scene.pilot, scene.federated, job.server_side().pilot):
        assert federated.participation.tolist() == [0.5] * 10
    plan = job.plan(scene, PilotDesign(seeds=3, honest_seeds=40, batch_sizes=(4, 8, 16, 32)))
    assert plan.clients.participation.tolist() == [0.5] * 10
    rare = read_job(ten_client_job_file(tmp_path, "participation = [1, 1, 1, 1, 1, 1, 1, 1, 1, 0.9]"))
    assert rare.document()["clients"]["participation"] == [1.0] * 9 + [0.9]


def test_a_job_in_which_all_are_always_there_has_the_document_and_the_tasks_it_always_had(tmp_path):
    plain = read_job(ten_client_job_file(tmp_path))
    said = read_job(ten_client_job_file(tmp_path, "participation = 1"))
    assert said.document() == plain.document()
    assert "participation" not in plain.document()["clients"]
    places = [
        FederationSpec(plain.data, plain.model, (60,) * 4, there) for there in (None, (1.0,) * 4, (1.0, 1.0, 0.5, 1.0))
    ]
    addresses = [Cell(place, 10, 0.5).tasks([1])[0].address for place in places]
    assert addresses[0] == addresses[1] != addresses[2]
    assert federation_of(**places[2].settings()).federated.participation.tolist() == [1.0, 1.0, 0.5, 1.0]


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("0", "participation is 0 for every client; it must be a number above 0 up to 1"),
        ("1.5", "participation is 1.5 for every client; it must be"),
        ('"often"', "participation"),
        ("[0.5, 0.5]", "one number, or 10 numbers, one per client"),
        ("[1, 1, 1, 1, 1, 1, 1, 1, 1, 2]", "participation of client 9 is 2"),
    ],
)
def test_participation_that_is_no_chance_gets_a_sentence(tmp_path, value, told):
    with pytest.raises(InputError, match=told) as error:
        read_job(ten_client_job_file(tmp_path, f"participation = {value}"))
    assert str(error.value).count("\n") == 0
