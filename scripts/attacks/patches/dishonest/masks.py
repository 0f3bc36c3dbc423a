"""Operators who want single reports from a masked round: their requests to nodes, and what they recover.

Each attack belongs to a round. The operator knows everything that arrived, and the agreement key of Emil, a participant
who works with them. The operator's estimate of a participant's change is noted, to compare it with the true change.
"""

from dataclasses import replace

from dishonest.notes import FOLDER, keep_array, note, words_of

PROTOCOL = "truthfl.federation.protocol"
TWO_WEIGHTS, LEFT_OUT, TWO_LISTS, COUNTERS, PARTITION, WITH_EMIL = range(1, 7)  # rounds from 0
UNCHANGED, WITHOUT_ADA = 8, 9  # from the first of these on, all from one model
FAR, SECONDS, EMIL = 100.0, 20.0, "Emil"


class Round:
    """One round's sum, with the operator's possible requests and computations."""

    def __init__(self, module, round_sum):
        self.module, self.sum, self.masked = module, round_sum, round_sum.masked
        self.number, self.names = round_sum.call.round, {i: o.client.name for i, o in round_sum.offers.items()}
        self.at = {name: index for index, name in self.names.items()}
        self.reports, self.keys, self.seeds, self.with_emil = dict(round_sum.reports), {}, {}, False

    def ask(self, attack, action, documents):
        """Send documents, by index, and return the answers by index. Nodes' answers are noted."""
        masked, answers = self.masked, {}
        node_of = {own: masked.roster.node_of[self.names[own]] for own in documents}
        code, messages = self.module.with_document_code, []
        for own, document in documents.items():
            offer = self.sum.offers[own]
            whole = {"offer": offer.hash, "round": self.number} | document
            key = masked.code_keys[self.names[own]]
            messages.append(self.module.query_message(action, node_of[own], code(key, self.module.OPERATOR, whole)))
        for node, reply in masked.roster.ask(messages, timeout=SECONDS):
            note(attack=attack, action=action, reply=words_of(reply))
            if not reply.has_error():
                own = next(index for index, one in node_of.items() if one == node)
                answers[own] = self.module.document_in(reply)
        return answers

    def reports_again(self, attack, params, people=None, **fields):
        """Ask for the round again, with other fields; return the masked reports that come, by index."""
        arrays, found = self.module.model_record(params), {}
        digest = self.module.array_bytes_digest(arrays)
        offers = {own: self.sum.offers[own] for own in people or self.sum.offers}
        node_of = {own: self.masked.roster.node_of[self.names[own]] for own in offers}
        messages = [
            self.module.coded_training_message(
                self.masked.code_keys[offer.client.name],
                node_of[own],
                arrays,
                digest,
                self.sum.call.fields(offer) | {"absent": []} | fields,
            )
            for own, offer in offers.items()
        ]
        for node, reply in self.masked.roster.ask(messages, timeout=SECONDS):
            note(attack=attack, action="train", reply=words_of(reply))
            if not reply.has_error():
                own = next(index for index, one in node_of.items() if one == node)
                found[own] = reply.content.array_records["arrays"][self.module.PARAMS].numpy()
        return found

    def signed(self, missing, answers):
        """The signatures of this list among these answers, by index."""
        return {own: one["signature"] for own, one in answers.items() if one.get("missing") == sorted(missing)}

    def first_signatures(self):
        return {own: signature for own, (_, signature) in self.sum.signed.items()}

    def keys_and_shares(self, attack, signatures, keys=((), ()), shares=((), ())):
        """Ask for keys under one list and for shares under another; use the answers.

        signatures    by list, by index
        keys, shares  the nodes to ask, and the list
        """
        needed = {own: self.module.threshold(len(peers) + 1) for own, peers in self.sum.peers.items()}

        def theirs(own, missing):
            known = dict(signatures.get(tuple(missing), {}))
            if self.with_emil:
                known[self.at[EMIL]] = self.emil_signs(missing)
            return {str(peer): known[peer] for peer in self.sum.peers[own] if peer in known and peer not in missing}

        people, missing = keys
        asked = {own: {"missing": list(missing), "signatures": theirs(own, missing)} for own in people}
        for own, answer in self.ask(attack, self.module.MASK_KEYS, asked).items():
            for peer, told in answer.get("keys", {}).items():
                self.know(own, int(peer), bytes.fromhex(told))
        people, missing = shares
        asked = {
            own: {
                "missing": list(missing),
                "signatures": theirs(own, missing),
                "shares": {str(peer): self.sum.locked[peer][own].hex() for peer in self.sum.peers[own]},
            }
            for own in people
        }
        known = {own: {} for own in self.sum.offers}
        for own, answer in self.ask(attack, self.module.MASK_SHARES, asked).items():
            for owner, share in answer.get("shares", {}).items():
                known[int(owner)][own] = int(share, 16)
        for owner, told in self.shares_of_emil().items():
            known[owner][self.at[EMIL]] = told
        for owner, told in known.items():
            if len(told) >= needed[owner]:
                self.seeds[owner] = self.module.seed_from(dict(list(told.items())[: needed[owner]]))

    def know(self, one, other, key):
        self.keys[frozenset((one, other))] = key

    def emil_helps(self):
        """From here on: the masks that Emil shares, Emil's shares of others' masks, Emil's signature of any list."""
        self.with_emil = True
        from truthfl.federation.masking.shares import round_key

        for peer in self.sum.peers[self.at[EMIL]]:
            self.know(self.at[EMIL], peer, round_key(self.pair_of_emil(peer), self.sum.context))

    def emils_key(self):
        from truthfl.home import participant_folder

        return participant_folder.agreement_key(FOLDER / f"home-{EMIL}", self.sum.offers[self.at[EMIL]])

    def pair_of_emil(self, peer):
        from truthfl.federation.masking.shares import pair_key

        return pair_key(self.emils_key(), self.masked.members[peer].agreement_key, self.masked.group.digest)

    def shares_of_emil(self):
        if not self.with_emil:
            return {}
        from truthfl.federation.masking.shares import unlocked_share

        emil, told = self.at[EMIL], {}
        for owner in self.sum.peers[emil]:
            locked = self.sum.locked[owner][emil]
            told[owner] = unlocked_share(locked, self.pair_of_emil(owner), self.sum.context, owner, emil)
        return told

    def emil_signs(self, missing):
        from truthfl.ledger.signing import list_key

        return list_key(self.emils_key()).sign(self.module.survivors_text(self.sum.context, missing)).hex()

    def without_known_masks(self, people):
        """The sum of these people's reports without the known masks."""
        lines = {index: member.agreement_key for index, member in self.masked.members.items()}
        total = None
        for own in people:
            rest = self.reports[own].copy()
            known = {
                lines[peer]: self.keys[pair] for peer in lines for pair in [frozenset((own, peer))] if pair in self.keys
            }
            if known:
                rest -= self.module.mask_sum(known, lines[own], len(rest))
            if own in self.seeds:
                rest -= self.module.own_mask(self.seeds[own], len(rest))
            total = rest if total is None else total + rest
        return total

    def change(self, numbers, name):
        """These numbers as one participant's change."""
        bound = self.sum.offers[self.at[name]].job.bound_of_round(self.sum.call.changed)
        return self.module.from_fixed_point(numbers, bound) / self.masked.weights[name]

    def keep(self, attack, numbers, name):
        keep_array(f"{attack}-{name}", self.change(numbers, name))

    def keep_singles(self, attack):
        for own, name in self.names.items():
            if name != EMIL or not self.with_emil:
                self.keep(attack, self.without_known_masks([own]), name)


def two_weights(one, params):
    """Send terms with twice the weight and repeat the round: the difference would be the report."""
    attack, masked = "masks-two-weights", one.masked
    from truthfl.federation.masking.shares import group_of, mask_terms_document

    members = [replace(member, weight=2 * member.weight) for member in masked.members.values()]
    group = group_of(masked.taking_part[0], masked.total / 2, members)
    papers = {offer.client.index: masked.acceptances[offer.client.name] for offer in masked.taking_part}
    terms = {
        own: {"terms": mask_terms_document(masked.operator_key, offer, group, masked.peers[own], papers)}
        for own, offer in one.sum.offers.items()
    }
    one.ask(attack, one.module.MASK_TERMS, terms)
    again = one.reports_again(attack, params, weight=2.0)
    for own, report in again.items():
        one.keep(attack, report - one.reports[own], one.names[own])


def left_out(one, params):
    """Repeat the opened round without Ada: the difference of both sums would be Ada's report."""
    attack, ada = "masks-left-out", one.at["Ada"]
    others = [own for own in one.at.values() if own != ada]
    again = one.reports_again(attack, params, others, attempt=1, absent=[ada])
    for changed in (one.sum.call.changed, one.sum.call.changed - 1):  # another number makes another mask
        again |= one.reports_again(attack, params, others, attempt=1, changed=max(changed, 0), absent=[ada])
    answers = one.ask(attack, one.module.MASK_LIST, {own: {"missing": [ada]} for own in others})
    signatures = {(ada,): one.signed([ada], answers), (): one.first_signatures()}
    one.keys_and_shares(attack, signatures, (others, [ada]), (others, [ada]))
    one.emil_helps()
    total = one.without_known_masks([ada])
    for own, report in again.items():
        total += one.reports[own] - report
    one.keep(attack, total, "Ada")


def two_lists(one, _):
    """Tell each participant that another one is missing; they hand over keys and shares."""
    attack, order = "masks-two-lists", sorted(one.names)
    one.emil_helps()
    following = {own: order[(at + 1) % len(order)] for at, own in enumerate(order)}
    answers = one.ask(attack, one.module.MASK_LIST, {own: {"missing": [following[own]]} for own in order})
    signatures = {(): one.first_signatures()}
    for own, answer in answers.items():
        signatures.setdefault(tuple(answer["missing"]), {})[own] = answer["signature"]
    for missing in list(signatures):
        longer = [own for own in order if own not in missing]
        told = one.ask(attack, one.module.MASK_LIST, {own: {"missing": list(missing)} for own in longer})
        for own, answer in told.items():
            signatures.setdefault(tuple(answer["missing"]), {})[own] = answer["signature"]
    for missing in sorted(signatures, key=len, reverse=True):
        one.keys_and_shares(attack, signatures, (order, missing), (order, missing))
    one.keep_singles(attack)


def partition(one, _):
    """Cleo, Dora and Emil open the list on which nobody is missing; Ada and Ben hear that these three are."""
    attack = "masks-partition"
    mine, others = [one.at[name] for name in ("Ada", "Ben")], [one.at[name] for name in ("Cleo", "Dora", EMIL)]
    answers = one.ask(attack, one.module.MASK_LIST, {own: {"missing": sorted(others)} for own in mine})
    signatures = {(): one.first_signatures(), tuple(sorted(others)): one.signed(others, answers)}
    one.keys_and_shares(attack, signatures, (mine, sorted(others)), (others, []))
    one.keep_singles(attack)
    keep_array(f"{attack}-both", one.without_known_masks(mine))


def with_emil(one, _):
    """The same with Emil's key: Cleo and Dora open the one list, Ada and Ben with Emil the other."""
    attack = "masks-partition-with-emil"
    mine, others = [one.at[name] for name in ("Ada", "Ben")], sorted(one.at[name] for name in ("Cleo", "Dora"))
    one.emil_helps()
    one.keys_and_shares(attack, {(): one.first_signatures()}, shares=(others, []))
    answers = one.ask(attack, one.module.MASK_LIST, {own: {"missing": others} for own in mine})
    one.keys_and_shares(attack, {tuple(others): one.signed(others, answers)}, (mine, others), (mine, others))
    one.keep_singles(attack)
    keep_array(f"{attack}-both", one.change(one.without_known_masks(mine), "Ada"))


AFTER = {TWO_WEIGHTS: two_weights, LEFT_OUT: left_out}
INSTEAD = {TWO_LISTS: two_lists, PARTITION: partition, WITH_EMIL: with_emil}


def attacked_rounds(module):
    """Rounds in which the operator attacks after the sum was opened, or instead of opening it."""
    collected, opened, learn_seeds = module._collected, module._opened, module.Sum.learn_seeds
    take, send_terms = module.Sum.take, module.MaskedRounds.send_terms

    def collect(masked, params, call, offers, *more):
        if call.round == COUNTERS:
            masked.send_terms(offers)
            far = Round(module, module.Sum(masked, None, call, {o.client.index: o for o in offers}, {}, b""))
            for fields in ({"attempt": 50}, {"changed": 0}, {"changed": call.round, "attempt": 50}, {"unchanged": 50}):
                for own, report in far.reports_again("masks-counters", params + FAR, **fields).items():
                    keep_array(f"masks-counters-{far.names[own]}", report)
        found = collected(masked, params, call, offers, *more)
        found.params = params
        return found

    def learn_and_keep(self, missing):
        self.seeds = learn_seeds(self, missing)
        return self.seeds

    def take_all_but_ada(self, offer, reply, size):
        reason = take(self, offer, reply, size)
        if self.call.round == WITHOUT_ADA and offer.client.name == "Ada" and reason is None:
            self.reports.pop(offer.client.index)
            return "no report in time"
        return reason

    def open_or_attack(round_sum):
        one, number = Round(module, round_sum), round_sum.call.round
        again = hasattr(round_sum.masked, "second")
        if number in INSTEAD and not again:
            INSTEAD[number](one, round_sum.params)
            return None, "the operator has other plans"
        change, refused = opened(round_sum)
        one.seeds = getattr(round_sum, "seeds", None) or {}
        if change is None or again:
            return change, refused
        if number == 0:
            keep_array("sum", change)
            for own, report in one.reports.items():
                keep_array(f"masked-{one.names[own]}", report)
        if number in AFTER:
            AFTER[number](one, round_sum.params)
        if number >= UNCHANGED:
            with_ada = one.at["Ada"] in one.reports
            keep_array(f"{'with' if with_ada else 'without'}-Ada-{number}", change)
            return None, "the operator says that the sum is too long"
        return change, refused

    def false_terms_first(self, offers):
        """Emil has the number -1: the share for Emil is then the seed itself."""
        if not self.informed and not hasattr(self, "second"):
            from truthfl.federation.masking.shares import group_of, mask_terms_document

            number = {o.client.index: -1 if o.client.name == EMIL else o.client.index for o in self.taking_part}
            members = {number[i]: replace(member, index=number[i]) for i, member in self.members.items()}
            papers = {number[o.client.index]: self.acceptances[o.client.name] for o in self.taking_part}
            group = group_of(self.taking_part[0], self.total, list(members.values()))
            honest = [offer for offer in self.taking_part if offer.client.name != EMIL]
            for offer in honest:
                peers = [index for index in members if index != offer.client.index]
                terms = mask_terms_document(self.operator_key, offer, group, peers, papers)
                code = module.with_document_code(
                    self.code_keys[offer.client.name], module.OPERATOR, {"offer": offer.hash, "terms": terms}
                )
                message = module.query_message(module.MASK_TERMS, self.roster.node_of[offer.client.name], code)
                for _, reply in self.roster.ask([message], timeout=SECONDS):
                    note(attack="masks-seed-itself", reply=words_of(reply))
        send_terms(self, offers)

    module._collected, module._opened, module.Sum.learn_seeds = collect, open_or_attack, learn_and_keep
    module.Sum.take, module.MaskedRounds.send_terms = take_all_but_ada, false_terms_first
    module.SumsFromModel.fault = lambda *_: None
    module.Sum._hide_each_other = lambda _, left: bool(left)  # an operator does not ask whether a sum hides reports


def second_offers(module):
    """Make new offers after the rounds: of the same job, and of others with its batches or with unequal terms."""
    train = module.train_rounds

    def train_rounds(roster, training, test, progress):
        params = train(roster, training, test, progress)
        terms, old = training.agreement.terms, training.taking_part.offers
        others = [offer for offer in old if offer.client.name != "Ada"]
        for attack, offers, more in (
            ("masks-second-offer", others, {"version": 2}),
            ("masks-same-seed", others, {"name": "same-seed"}),
            ("masks-seed-beyond", others, {"name": "seed-beyond", "seed": terms.seed + 2**64}),
        ):
            second_job(attack, roster, training, [replace(one, job=replace(terms, **more)) for one in offers])
        fresh = replace(terms, name="other-bounds", seed=terms.seed + 1, round_seconds=SECONDS)
        wide = replace(fresh, report_bounds=tuple((at, bound * 1e8) for at, bound in fresh.report_bounds))
        offers = [replace(one, job=fresh if one.client.name == "Ada" else wide) for one in old]
        second_job("masks-other-bounds", roster, training, offers, lambda offer: {"terms": offer.job_digest})
        fresh = replace(fresh, name="all-weight", seed=terms.seed + 2)
        offers = [replace(one, job=fresh) for one in old]

        def all_weight_to_ada(offer):
            return {"total": offer.client.weight} if offer.client.name == "Ada" else {}

        second_job("masks-all-weight", roster, training, offers, all_weight_to_ada)
        fresh = replace(fresh, name="weights-in-offers", seed=terms.seed + 3)
        weight = {one.client.name: 0.999996 if one.client.name == "Ada" else 1e-6 for one in old}
        offers = [replace(one, job=fresh, client=replace(one.client, weight=weight[one.client.name])) for one in old]
        second_job("masks-weights-in-offers", roster, training, offers)
        return params

    def second_job(attack, roster, training, unsigned, told=lambda _: {}):
        """Make these offers and run their first round.

        told  by offer: what else the terms of the masks tell this participant about the group
        """
        import numpy as np

        from truthfl.federation.masking import server as masked_rounds
        from truthfl.federation.protocol.messages import OFFER, code_key, document_in, query_message
        from truthfl.federation.protocol.reports import RoundCall
        from truthfl.ledger.documents import signed_offer
        from truthfl.ledger.signing import read_agreement_key

        own_key = read_agreement_key(FOLDER / "served" / "agreement-keys" / roster.job_name)
        offers, keys, papers = [], {}, {}
        for one in unsigned:
            name = one.client.name
            offer = signed_offer(replace(one, original=None, signature=""), training.operator_key)
            message = query_message(OFFER, roster.node_of[name], offer.envelope())
            for _, reply in roster.ask([message], timeout=SECONDS):
                answer = None if reply.has_error() else document_in(reply).get("answer")
                note(
                    attack=attack,
                    action="offer",
                    reply=words_of(reply) if answer is None else answer["document"]["kind"],
                )
                if answer is not None and answer["document"]["kind"] == "acceptance":
                    offers.append(offer)
                    papers[name] = answer
                    keys[name] = code_key(own_key, answer["document"]["agreement_key"], offer.hash)
        if len(offers) < 3:
            return
        total = sum(offer.client.weight for offer in offers)
        masked = masked_rounds.MaskedRounds(roster, offers, total, keys, papers, training.operator_key)
        masked.second = True
        start = training.model.init(offers[0].job.seed)
        honest = masked_rounds.mask_terms_document

        def terms_document(key, offer, group, *rest):
            return honest(key, offer, replace(group, **told(offer)), *rest)

        masked_rounds.mask_terms_document = terms_document
        outcome = masked_rounds.run_masked_round(masked, start, RoundCall(0), offers)
        masked_rounds.mask_terms_document = honest
        for _, _, reason in outcome.rejected:
            note(attack=attack, action="train", reply=reason)
        with_ada = any(offer.client.name == "Ada" for offer in offers)
        if np.array_equal(outcome.params, start) or with_ada != ("Ada" in outcome.taken):
            return
        change = total * (outcome.params - start)
        weight = training.weight_of(next(one for one in training.taking_part.offers if one.client.name == "Ada"))
        if with_ada:  # the others' reports are nearly nothing beside Ada's
            keep_array(f"{attack}-Ada", change)
        else:
            keep_array(f"{attack}-Ada", (np.load(FOLDER / "seen" / "sum.npy") - change) / weight)

    module.train_rounds = train_rounds


def known_batches(module):
    """All rounds from nearly one model: sums are then linear in the samples' gradients."""
    import numpy as np

    from truthfl.learning.training.draws import Purpose, below, bits, key

    opened, rows, sums = module._opened, [], []

    def drawn(offer, round_):
        draws = key(offer.job.seed, Purpose.BATCH, offer.client.index, round_, 0)
        return below(bits(draws, offer.client.batch_size), offer.client.samples)

    def keep_and_stay(round_sum):
        change, refused = opened(round_sum)
        if change is None:
            return change, refused
        offers = [one.client.index for one in round_sum.masked.taking_part]
        places, row = np.cumsum([0, *(one.client.samples for one in round_sum.masked.taking_part)]), []
        row = np.zeros(places[-1])
        for own, offer in round_sum.offers.items():
            weight = round_sum.masked.weights[offer.client.name] / offer.client.batch_size
            np.add.at(row, places[offers.index(own)] + drawn(offer, round_sum.call.round), weight)
        rows.append(row)
        sums.append(change)
        if round_sum.call.round + 1 == round_sum.masked.taking_part[0].job.rounds:
            gradients = np.linalg.lstsq(np.array(rows), np.array(sums), rcond=1e-9)[0]
            first = round_sum.masked.taking_part[0]
            own = gradients[: first.client.samples]
            reports = [own[drawn(first, round_)].mean(axis=0) for round_ in range(len(sums))]
            keep_array(f"masks-known-batches-{first.client.name}", np.array(reports))
            keep_array("masks-known-batches-sums", np.array(sums))
        return (1e-6 * np.random.default_rng(len(sums)).normal(size=change.shape)).astype(np.float32), None

    module._opened = keep_and_stay


CHANGES = {
    "known-batches": {"truthfl.federation.masking.server": known_batches},
    "masks": {"truthfl.federation.masking.server": attacked_rounds, f"{PROTOCOL}.server": second_offers},
}
