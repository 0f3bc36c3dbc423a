"""What `truthfl plan` warns of is shown to the operator who approves the plan of a served job, too."""

from dataclasses import replace

import pytest

from helpers.auditions import QUICK, Plans, audition_job
from helpers.small_jobs import small_job_file
from truthfl.adversary.pilot_lies import plan_warnings, search_on_pilot
from truthfl.cli.plan import shown_plan
from truthfl.contracts.planning import plan_worth
from truthfl.job import read_job
from truthfl.learning.data.partition import Federated
from truthfl.learning.privacy import PrivateModel


def warned(job, plan, lies):
    absence = lies.absence
    return plan_warnings(plan, lies, plan_worth(plan, job.server.loss_value, absence.mean, absence.error))


def with_presence(plan, share):
    return replace(plan, clients=replace(plan.clients, participation=share))


def test_of_a_contract_on_the_joint_loss(tmp_path, capsys):
    job = read_job(small_job_file(tmp_path))
    plan = job.plan(job.server_side(), QUICK)
    lies = search_on_pilot(plan.side, plan)
    dear = replace(plan.clients, labeling_cost=100 * plan.clients.labeling_cost)  # so not to label pays
    plan = with_presence(replace(plan, clients=dear), 0.5)
    shown_plan(job, plan, lies).print()
    shown, found = " ".join(capsys.readouterr().out.split()), warned(job, plan, lies)
    for start, words in (("Beware", "by sending the model back unworked"), ("Clients", "reports are not masked")):
        (sentence,) = (one for one in found if words in one)
        assert sentence.startswith(start)
        assert sentence in shown
    assert not any("masked" in one for one in warned(job, with_presence(plan, 1.0), lies))


@pytest.fixture(scope="module")
def audition(tmp_path_factory):
    job = audition_job(tmp_path_factory.mktemp("job"))
    plan = Plans()(job, job.server_side())
    return job, plan, search_on_pilot(plan.side, plan)


@pytest.mark.parametrize(("noise", "share"), [(0.0, 1.0), (0.3, 1.0), (0.3, 0.5)])
def test_of_an_audition(audition, noise, share):
    job, plan, lies = audition
    pilot = plan.side.pilot
    private = Federated(PrivateModel(pilot.model, 2.0, noise), pilot.data, pilot.partition, pilot.training)
    plan = with_presence(replace(plan, side=replace(plan.side, pilot=private)), share)
    found, shown = warned(job, plan, lies), shown_plan(job, plan, lies).sentences
    assert any("leaves out their own noise" in one for one in found) == (noise > 0)
    assert any("reports are not masked" in one for one in found) == (share < 1)
    assert set(found) <= set(shown)
