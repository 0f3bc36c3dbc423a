"""Who joins when the job has begun, and who is away when its server goes on."""

import time
from dataclasses import replace

import pytest

from audition_jobs import Plans, Setting, audition_job
from known_plans import known_plans  # noqa: F401
from truthfl.federation.protocol import enrolment
from truthfl.federation.protocol.enrolment import LATE_NEWS
from truthfl.federation.simulated.grid import InProcessGrid
from truthfl.federation.simulated.participants import FIRST_NODE
from truthfl.ledger import participant_folder

DORA = FIRST_NODE + 3


@pytest.fixture(scope="module")
def plans():
    return Plans()


class Comings(InProcessGrid):
    """A grid on which a node is there only while `is_there(grid)`; it counts training messages."""

    def __init__(self, grid, node, is_there):
        self.__dict__.update(vars(grid))
        self.node, self.is_there, self.trained, self.asked = node, is_there, 0, []

    def get_node_ids(self):
        return [node for node in super().get_node_ids() if node != self.node or self.is_there(self)]

    def _reply_to(self, message, number):
        self.trained += message.metadata.message_type == "train"
        self.asked.append((message.metadata.dst_node_id, message.metadata.message_type))
        return super()._reply_to(message, number)


def one_second(folder, **server):
    job = audition_job(folder)
    return replace(job, server=replace(job.server, enrol_seconds=0.2, **server))


def test_who_joins_after_the_offers_is_told_that_the_job_runs_without_her(tmp_path, plans, monkeypatch):
    monkeypatch.setattr(enrolment, "SECONDS_BETWEEN_REFRESHES", 0.0)  # or this small job may be over before the next
    setting = Setting(tmp_path, plans, job=one_second(tmp_path))
    there = Comings(setting.grid, DORA, lambda grid: any(kind.endswith("labels") for _, kind in grid.asked))
    found = setting.go(there)
    assert [offer.client.name for offer in found.agreement.offers] == ["Ada", "Ben", "Cleo"]
    sentence, over = participant_folder.news(setting.people[DORA].folder)
    assert over
    assert "the job runs without Dora: it has begun" in sentence
    assert "Dora" not in found.enrolments


def test_who_enrols_while_offers_are_out_is_told_when_they_are_accepted(tmp_path, plans, monkeypatch):
    setting = Setting(tmp_path, plans, job=one_second(tmp_path))
    asked = []
    ben = setting.people[FIRST_NODE + 1]
    decide = ben.decide
    monkeypatch.setattr(ben, "decide", lambda offer: asked.append(offer) or (decide(offer) if len(asked) > 2 else None))
    found = setting.go(Comings(setting.grid, DORA, lambda _: bool(asked)))
    assert "Dora" in found.enrolments
    assert participant_folder.news(setting.people[DORA].folder) == (LATE_NEWS, True)


def test_a_server_that_goes_on_waits_for_those_who_take_part(tmp_path, plans):
    setting = Setting(tmp_path, plans, job=audition_job(tmp_path))
    stop_after = 5

    class CrashError(Exception):
        pass

    class Crashing(Comings):
        def push_messages(self, messages):
            if self.trained >= 4 * stop_after:
                raise CrashError
            return super().push_messages(messages)

    with pytest.raises(CrashError):
        setting.go(Crashing(setting.grid, None, lambda _: True))
    begun = time.monotonic()
    found = setting.go(Comings(setting.grid, DORA, lambda _: time.monotonic() > begun + 1.0))
    assert found.delivered["Dora"] == len(found.rounds)


def test_but_not_for_ever(tmp_path, plans, monkeypatch):
    monkeypatch.setattr(enrolment, "RECONNECT_SECONDS", 0.3)
    setting = Setting(tmp_path, plans, job=audition_job(tmp_path))

    class CrashError(Exception):
        pass

    class Crashing(Comings):
        def push_messages(self, messages):
            if self.trained >= 20:
                raise CrashError
            return super().push_messages(messages)

    with pytest.raises(CrashError):
        setting.go(Crashing(setting.grid, None, lambda _: True))
    found = setting.go(Comings(setting.grid, DORA, lambda _: False))
    assert 1 <= found.delivered["Dora"] < len(found.rounds)
    assert found.delivered["Ada"] == len(found.rounds)
