"""Operators who lie: unsigned offers, wrong rounds and models, false dropouts, receipts and tests."""

from dataclasses import replace

from dishonest.notes import keep_array, note, words_of

PROTOCOL = "truthfl.federation.protocol"
SAME_MODEL_ROUND, FAR_MODEL_ROUND, STOLEN_ROUND = 1, 2, 3  # counted from 0
MILLION, FAR = 10**6, 100.0
STRUCK, TWICE_PAID = "Ben", "Dora"


def unsigned_first(module):
    """First send each participant their offer without its signature."""
    from truthfl.federation.protocol import reports

    make, ask, tried, noted = reports.query_message, module.Roster.ask, set(), []

    def query_message(action, node, document):
        if action == module.OFFER and node not in tried:
            tried.add(node)
            return make(action, node, document["document"])
        return make(action, node, document)

    def ask_and_note(self, messages, **options):
        sent = list(messages)
        replies = ask(self, sent, **options)
        first = bool(sent) and module.OFFER in sent[0].metadata.message_type and not noted
        for _, reply in replies if first else ():
            noted.append(True)
            note(attack="offer-unsigned", reply=words_of(reply))
        return replies

    reports.query_message, module.Roster.ask = query_message, ask_and_note


def strange_rounds(module):
    """Ask all for round 10**6, from the first model again, and from a model far away, each time with the code.

    Hold back Ben's report of one round, as if Ben had dropped out, and remove the masks that the others reveal.
    """
    collected, opened, take, stolen = module._collected, module._opened, module.Sum.take, {}

    def ask(attack, masked, params, call, offers):
        arrays = module.model_record(params)
        digest, keys = module.array_bytes_digest(arrays), masked.code_keys
        messages = [
            module.coded_training_message(
                keys[offer.client.name],
                masked.roster.node_of[offer.client.name],
                arrays,
                digest,
                call.fields(offer) | {"absent": []},
            )
            for offer in offers
        ]
        for _, reply in masked.roster.ask(messages, timeout=masked.seconds):
            note(attack=attack, reply=words_of(reply))

    def collect(masked, params, call, offers, *more):
        first = masked.__dict__.setdefault("first_model", params)
        masked.send_terms(offers)
        if call.round == SAME_MODEL_ROUND:
            ask("round-a-million", masked, params, replace(call, round=MILLION), offers)
            ask("round-zero-model", masked, first, call, offers)
        if call.round == FAR_MODEL_ROUND:
            ask("round-far", masked, params + FAR, call, offers)
        return collected(masked, params, call, offers, *more)

    def take_or_steal(self, offer, reply, size):
        reason, index, name = take(self, offer, reply, size), offer.client.index, offer.client.name
        if reason is None and self.call.round == 0:
            keep_array(f"masked-{name}", self.reports[index])
        if reason is None and self.call.round == STOLEN_ROUND and name == STRUCK:
            stolen[index] = self.reports.pop(index)
            return "no report in time"
        return reason

    def open_and_look(round_sum):
        change, refused = opened(round_sum)
        if round_sum.call.round == 0:
            keep_array("sum", change)
        lines = {index: member.agreement_key for index, member in round_sum.masked.members.items()}
        for index, report in stolen.items() if round_sum.call.round == STOLEN_ROUND else ():
            keys = {
                lines[own]: key
                for own, told in round_sum.told_keys.items()
                for peer, key in told.items()
                if peer == index
            }
            rest = report - module.mask_sum(keys, lines[index], len(report))
            bound = round_sum.offers[index].job.bound_of_round(round_sum.call.changed)
            keep_array("stolen", module.from_fixed_point(rest, bound) / round_sum.masked.weights[STRUCK])
            note(attack="spy-by-false-dropout", reply=f"{len(keys)} masks were told")
        return change, refused

    module._collected, module._opened, module.Sum.take = collect, open_and_look, take_or_steal


def second_receipt(module):
    """Send Dora a second receipt with less pay, also signed by the operator."""
    send = module.send_receipts

    def send_receipts(roster, key):
        from truthfl.federation.protocol.messages import query_message
        from truthfl.ledger.documents import signed
        from truthfl.ledger.receipts import signed_receipt

        send(roster, key)
        entries = roster.ledger.entries()
        view = module.job_view(roster.job_name, [entry for entry in entries if entry.job == roster.job_name])
        offer = next(offer for offer in view.agreement.offers if offer.client.name == TWICE_PAID)
        document = signed_receipt(offer, view, entries, key)["document"]
        document["settlement"] = document["settlement"] | {"pay": 0}
        message = query_message(module.RECEIPT, roster.node_of[TWICE_PAID], signed(key, document))
        for _, reply in module.ask_nodes(roster.grid, [message], timeout=module.REPLY_TIMEOUT):
            note(attack="receipt-twice", reply=words_of(reply))

    module.send_receipts = send_receipts


def other_model_tested(module):
    """Test a worse model than the trained one, which lowers pay."""
    test = module.Evaluation.document

    def document(self, params, *arguments):
        return test(self, params * 0.5, *arguments)

    module.Evaluation.document = document


def auditions_denied(module):
    """Keep the models of Ben and Cleo and claim that they were not opened; Cleo gets no word that theirs arrived."""
    test, confirm = module._test, module._confirm_openings

    def confirm_openings(roster, agreement, opened, key):
        return confirm(roster, agreement, {name: one for name, one in opened.items() if name != "Cleo"}, key)

    def test_others(roster, agreement, opened, refusals, *more):
        kept = {name: one for name, one in opened.items() if name not in ("Ben", "Cleo")}
        refusals.of_client |= dict.fromkeys(("Ben", "Cleo"), module.NOT_OPENED)
        return test(roster, agreement, kept, refusals, *more)

    module._test, module._confirm_openings = test_others, confirm_openings


CHANGES = {
    "lying operator": {
        f"{PROTOCOL}.offers": unsigned_first,
        "truthfl.federation.masking.server": strange_rounds,
        f"{PROTOCOL}.receipt_delivery": second_receipt,
    },
    "auditions denied": {f"{PROTOCOL}.auditions": auditions_denied},
    "other model": {f"{PROTOCOL}.server": other_model_tested},
}
