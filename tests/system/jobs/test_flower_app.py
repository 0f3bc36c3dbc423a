"""A custom Flower strategy in a paid job: planned, run, settled and resumed as every job."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, RecordDict
from flwr.serverapp.strategy import FedAdam

from helpers.auditions import ALLOWED, Meddler, Plans, Setting, audition_job, audition_job_file, other_reply
from helpers.participants import recoded
from helpers.small_jobs import known_plans  # noqa: F401
from truthfl.federation.protocol.final_model import audit
from truthfl.federation.protocol.messages import MODEL, PARAMS
from truthfl.federation.simulated.participants import FIRST_NODE
from truthfl.flower import Operator, PaidStrategy, fixed_draws, kept_key, open_ledger
from truthfl.job import read_job
from truthfl.ledger.checking import check
from truthfl.ledger.job_view import job_view
from truthfl.page.documents import offer_view, receipt_view

BEN = FIRST_NODE + 1
EXAMPLE = Path(__file__).parents[3] / "examples" / "flower_app"


@pytest.fixture(scope="module")
def plans():
    return Plans()


def with_adam(folder):
    """The audition job with a strategy from a file beside it."""
    (folder / "own.py").write_text("from flwr.serverapp.strategy import FedAdam\n\nadam = FedAdam(eta=0.05)\n")
    job = read_job(audition_job_file(folder, ("[server]\n", '[server]\naggregation = "own.py:adam"\n')))
    return replace(job, server=replace(job.server, most_pay=ALLOWED))


def is_report(reply):
    return MODEL in reply.content and reply.metadata.message_type == "train" and reply.metadata.src_node_id == BEN


def nan_in_round_three(people):
    """Changes Ben's third report."""
    trained = []

    def change(reply):
        trained.extend([reply] if is_report(reply) else [])
        if len(trained) != 3 or not is_report(reply):
            return [reply]
        array = reply.content[MODEL][PARAMS].numpy().copy()
        array[0] = np.nan
        arrays = ArrayRecord({PARAMS: Array(array)})
        return [recoded(people[BEN].folder, other_reply(RecordDict(dict(reply.content) | {MODEL: arrays}), reply))]

    return change


def test_a_strategy_in_the_job_file_is_planned_run_and_settled(tmp_path, plans):
    """FedAdam, with an audition; Ben's third report is NaN and refused as elsewhere."""
    setting = Setting(tmp_path, plans, job=with_adam(tmp_path))
    found = setting.go(Meddler(setting.grid, nan_in_round_three(setting.people)))
    assert check(setting.entries()) is None
    opened, terms = setting.entries()[0], found.agreement.terms
    assert (terms.aggregation, terms.masked) == ("own", False)
    assert "own.py:adam " in opened.document["job"]["server"]["aggregation"]
    assert str(tmp_path) not in opened.payload
    reasons = [entry.document["reason"] for entry in found.rejections]
    assert reasons == ["it has NaN or infinity"]
    assert found.delivered["Ben"] == len(found.rounds) - 1
    assert all(found.settlements[offer.client.name].document["pay"] > 0 for offer in found.agreement.offers)
    files = [tmp_path / "out" / "models" / f"{found.name}{end}" for end in (".npy", "-test.npz")]
    assert audit(found, *files) is None
    home = setting.people[FIRST_NODE].folder
    assert offer_view(home, None, None, None)["offer"] is not None
    assert receipt_view(home)["receipt"] is not None


class Killed(BaseException):
    """Ends the server as a signal does."""


def test_killed_after_a_round_and_resumed(tmp_path, plans):
    """The plan is that of the same strategy in the file."""
    setting = Setting(tmp_path, plans, job=audition_job(tmp_path))
    rounds, in_file = [], with_adam(tmp_path)

    def plan(job, side):
        return plans(replace(job, server=replace(job.server, aggregation=in_file.server.aggregation)), side)

    def dies(reply):
        rounds.extend([reply] if is_report(reply) else [])
        if len(rounds) == 5:
            raise Killed
        return [reply]

    grids = [Meddler(setting.grid, dies), setting.grid]
    with open_ledger(setting.folder / "ledger.db") as book:
        draws, key = fixed_draws(5), kept_key(setting.folder / "operator")
        operator = Operator(book, setting.folder, key, draws.secret, draws.seed)
        paid = [PaidStrategy(FedAdam(eta=0.05), setting.job, operator) for _ in range(2)]
        assert paid[0].name == paid[1].name
        with pytest.raises(Killed):
            paid[0].start(grids[0], make_plan=plan)
        assert 0 < len(job_view(paid[0].name, book.entries(paid[0].name)).rounds) < 12
        result = paid[1].start(grids[1], make_plan=plan)
        assert check(book.entries()) is None
    assert len(paid[1].view.rounds) == 12
    assert len(paid[1].view.receipts) == 4
    (model,) = result.arrays.to_numpy_ndarrays()
    assert model.shape == (650,)
