"""Participants whose reports are not what they computed: huge, flipped, without their code, or missing."""

import os
import signal
from typing import NamedTuple

PARTICIPANT = "truthfl.federation.participant.participant"
CLIENT_APP = "truthfl.federation.participant.client_app"
HUGE, TIMES, DIES_IN_ROUND, SHARE_OF_BOUND = 1e6, -10.0, 2, 0.8
ESCAPE, LONG_TYPE = "f\x1b[2J", 100_000


class HonestReport(NamedTuple):
    """An honest report, its common model, its round counted from 0, and the number of rounds.

    bound   on the length of its change
    """

    report: object
    common: object
    round: int
    rounds: int
    bound: float


def other_report(change):
    """Make reports `change(honest report)`."""

    def apply(module):
        make = module.Participant.report

        def report(self, offer_hash, common, round_):
            job = self.accepted_offer(offer_hash).job
            bound = job.bound_of_round(round_)
            return change(HonestReport(make(self, offer_hash, common, round_), common, round_, job.rounds, bound))

        module.Participant.report = report

    return apply


def huge(honest):
    import numpy as np

    return np.full_like(honest.report, HUGE)


def huge_in_last_round(honest):
    return huge(honest) if honest.round == honest.rounds - 1 else honest.report


def flipped(honest):
    return (honest.common + TIMES * (honest.report - honest.common)).astype(honest.report.dtype)


def spoiling(honest):
    """A change of four fifths of the bound, opposite to the honest one."""
    import numpy as np

    away = honest.common - honest.report
    length = max(float(np.linalg.norm(away.astype(np.float64))), 1e-9)
    return (honest.common + SHARE_OF_BOUND * honest.bound / length * away).astype(honest.report.dtype)


def spoils_at_the_end(honest):
    return spoiling(honest) if honest.round == honest.rounds - 1 else honest.report


def spoils_by_turns(honest):
    return spoiling(honest) if honest.round % 2 else honest.report


def pushes(honest):
    """Oppose the honest change, so that the others' next changes must be longer than usual; every third is honest."""
    turned = honest.common - (honest.report - honest.common)
    return (spoiling(honest), turned.astype(honest.report.dtype), honest.report)[honest.round % 3]


def dies(honest):
    if honest.round == DIES_IN_ROUND:
        os.kill(os.getpid(), signal.SIGKILL)
    return honest.report


def without_code(module):
    honest = module.round_record

    def record(*arguments):
        made = honest(*arguments)
        del made["mac"]
        return made

    module.round_record = record


def with_another_code(module):
    """Make the code with a key not agreed on with the operator, such as another participant's."""
    honest = module.with_code

    def with_code(key, *arguments):
        return honest(None if key is None else bytes(len(key)), *arguments)

    module.with_code = with_code


def long_type(module):
    """The report gives its array's type a name of 15 MB; the audition's model is honest."""
    require, make_record, in_round = module.require_from_operator, module.model_record, []

    def require_from_operator(*arguments):
        in_round.append(True)
        require(*arguments)

    def model_record(params):
        arrays = make_record(params)
        if in_round:
            in_round.clear()
            for array in arrays.values():
                array.dtype = ESCAPE * (LONG_TYPE // len(ESCAPE))
        return arrays

    module.require_from_operator, module.model_record = require_from_operator, model_record


def unclipped(module):
    """Do not shorten the masked report to the bound; make it as long as possible."""
    honest = module.in_fixed_point

    def in_fixed_point(change, weight, bound):
        made = honest(change, weight, bound)
        made[:] = 2**31 - 1
        return made

    module.in_fixed_point = in_fixed_point


CHANGES = {
    "unclipped": {"truthfl.federation.masking.participant": unclipped},
    "huge": {PARTICIPANT: other_report(huge)},
    "huge at the end": {PARTICIPANT: other_report(huge_in_last_round)},
    "flipped": {PARTICIPANT: other_report(flipped)},
    "spoils at the end": {PARTICIPANT: other_report(spoils_at_the_end)},
    "spoils by turns": {PARTICIPANT: other_report(spoils_by_turns)},
    "pushes": {PARTICIPANT: other_report(pushes)},
    "dies": {PARTICIPANT: other_report(dies)},
    "no code": {CLIENT_APP: without_code},
    "another code": {CLIENT_APP: with_another_code},
    "long type": {CLIENT_APP: long_type},
}
