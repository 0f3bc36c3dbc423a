"""Honest participants who keep their own changes, to compare them with what the operator saw."""

from dishonest.notes import keep_array


def diary(module):
    honest = module.Participant.report

    def report(self, offer_hash, common, round_):
        made = honest(self, offer_hash, common, round_)
        keep_array(f"true-{self.name}-{round_}", made - common)
        return made

    module.Participant.report = report


CHANGES = {"diary": {"truthfl.federation.participant.participant": diary}}
