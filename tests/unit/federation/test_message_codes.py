"""Reports and training messages are from whom they say, whatever connection they came by."""

from dataclasses import replace

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord

from helpers.auditions import Meddler
from helpers.bare_rounds import BareRounds
from helpers.commands import told
from helpers.databases import KEY
from helpers.participants import Ada, an_offer, recoded
from truthfl.federation.participant.client_app import require_from_operator
from truthfl.federation.protocol.enrolment import Roster, require_proof
from truthfl.federation.protocol.messages import (
    OPERATOR,
    PARAMS,
    PARTICIPANT,
    array_bytes_digest,
    code_key,
    document_in,
    has_code,
    has_document_code,
    model_digest,
    model_record,
    received_model,
    text_record,
    with_code,
)
from truthfl.home import participant_folder
from truthfl.ledger.book import open_ledger
from truthfl.ledger.canonical import MOST_DEPTH, canonical_bytes, read_document
from truthfl.ledger.documents import answer, answer_fault, signed
from truthfl.ledger.signing import (
    AgreementKey,
    agreement_line,
    is_agreement_line,
    kept_agreement_key,
    read_agreement_key,
)
from truthfl.ledger.terms import offer_from

FIELDS = {"offer": "ab" * 32, "round": 3}


def keys():
    """The key of the codes, as both sides derive it."""
    operator, ada = AgreementKey.generate(), AgreementKey.generate()
    offer = FIELDS["offer"]
    one, other = code_key(operator, agreement_line(ada), offer), code_key(ada, agreement_line(operator), offer)
    assert one == other
    assert one != code_key(ada, agreement_line(operator), "cd" * 32)
    return one


class Sent:
    """A message with this text."""

    def __init__(self, text):
        self.content = text_record(text)


@pytest.mark.parametrize(("begin", "end"), [("[", "]"), ('{"x":', "}")])
def test_documents_that_are_too_deep_are_refused_wherever_the_stack_ends(begin, end):
    """There is a depth that can be read and not written down again; no message gets near it."""
    deepest = MOST_DEPTH - 1
    for depth in (deepest, deepest + 1, *range(300, 1200)):
        text = '{"mac":"aa","x":' + begin * depth + ("1" if end == "}" else "") + end * depth + "}"
        if depth == deepest:
            assert not has_document_code(b"k" * 32, PARTICIPANT, document_in(Sent(text)))
            assert canonical_bytes({"kept": read_document(text)})
        else:
            assert told(document_in, Sent(text)).startswith(("the document has values", "the document is not valid"))


def test_a_document_that_cannot_be_written_has_no_code():
    for wrong in (float("nan"), "\ud800", {1: 2, "1": object()}):
        assert not has_document_code(b"k" * 32, PARTICIPANT, {"mac": "aa", "x": wrong})
    assert not has_document_code(b"k" * 32, PARTICIPANT, {"mac": "\ud800"})


def test_a_code_covers_sender_fields_and_arrays():
    key, arrays = keys(), "12" * 32
    coded = with_code(key, PARTICIPANT, FIELDS, arrays)
    assert has_code(key, PARTICIPANT, ConfigRecord(coded), arrays)
    assert not has_code(key, OPERATOR, coded, arrays)
    assert not has_code(key, PARTICIPANT, coded, "34" * 32)
    assert not has_code(keys(), PARTICIPANT, coded, arrays)
    for changed in ({"round": 4}, {"offer": "cd" * 32}, {"changed": 1}, {"mac": b"x" * 32}, {"mac": "text"}):
        assert not has_code(key, PARTICIPANT, coded | changed, arrays)
    assert not has_code(key, PARTICIPANT, FIELDS, arrays)
    assert not has_code(key, PARTICIPANT, coded | {"strange": b"bytes"}, arrays)


def test_the_digest_of_arrays_covers_names_types_shapes_and_bytes():
    arrays = [
        Array("float32", (2,), "numpy.ndarray", b"12345678"),
        Array("float32", (2, 1), "numpy.ndarray", b"12345678"),
    ]
    arrays += [Array("int32", (2,), "numpy.ndarray", b"12345678"), Array("float32", (2,), "numpy.ndarray", b"12345679")]
    records = [ArrayRecord({"params": array}) for array in arrays] + [ArrayRecord({"other": arrays[0]})]
    assert len({array_bytes_digest(record) for record in records}) == len(records)


def test_a_digest_that_a_record_keeps_is_of_what_is_in_it():
    record = model_record(np.float32([1, 2]))
    assert received_model(record)[1] == received_model(record)[1] == model_digest(np.float32([1, 2]))
    first = array_bytes_digest(record)
    assert array_bytes_digest(record) == first
    record[PARAMS].data = model_record(np.float32([1, 3]))[PARAMS].data
    assert array_bytes_digest(record) == array_bytes_digest(model_record(np.float32([1, 3]))) != first
    assert received_model(record)[1] == model_digest(np.float32([1, 3]))
    record[PARAMS].shape = (2, 1)
    assert array_bytes_digest(record) != array_bytes_digest(model_record(np.float32([1, 3])))
    assert received_model(record)[0].tolist() == [1, 3]


def test_agreement_keys_are_kept_for_their_owner_alone(tmp_path):
    path = tmp_path / "keys" / "job"
    first = agreement_line(kept_agreement_key(path))
    assert agreement_line(kept_agreement_key(path)) == first
    assert path.stat().st_mode & 0o777 == 0o600
    assert "no agreement key" in told(read_agreement_key, tmp_path / "nothing")


@pytest.mark.parametrize("line", ["", "00" * 32, "01" + "00" * 31, "zz" * 32, "AB" * 32, "ab" * 31, 7, None])
def test_what_is_no_agreement_key(line):
    """Zero and one are points with which the secret is the same for everybody."""
    assert not is_agreement_line(line)


def with_agreement_key(ada):
    operator = agreement_line(AgreementKey.generate())
    offer = an_offer(ada.key, ada.operator, agreement_key=operator, report_bounds=((0, 2.5), (9, 0.5)))
    participant_folder.put_offer(ada.home, offer)
    return offer


def test_an_acceptance_has_an_agreement_key_that_its_signer_keeps(tmp_path):
    ada = Ada(tmp_path)
    offer = with_agreement_key(ada)
    accepted = ada.accepts(offer)
    line = accepted["document"]["agreement_key"]
    assert line == agreement_line(participant_folder.agreement_key(ada.home, offer))
    assert answer_fault(accepted, offer) is None
    files = list((ada.home / "agreements").iterdir())
    assert [path.stat().st_mode & 0o777 for path in files] == [0o600]


def test_an_answer_without_a_proper_agreement_key_is_no_answer(tmp_path):
    ada = Ada(tmp_path)
    offer = with_agreement_key(ada)
    agreement = AgreementKey.generate()
    for changes in ({"agreement_key": "00" * 32}, {"agreement_key": ""}, {"list_key": "ab"}, {"list_key": None}):
        document = answer(offer, ada.key, accepted=True, agreement=agreement)["document"] | changes
        assert "is no public key" in answer_fault(signed(ada.key, document), offer)
    lacking = answer(offer, ada.key, accepted=False)
    assert "agreement_key" not in lacking["document"]
    assert answer_fault(lacking, offer) is None
    lacking["document"]["kind"] = "acceptance"
    assert answer_fault(lacking, offer) == "it does not have the parts of an answer"


def test_terms_of_rounds_are_checked(tmp_path):
    ada = Ada(tmp_path)
    plain = an_offer(ada.key, ada.operator).document()["job"]
    assert (plain["report_bounds"], plain["aggregation"], plain["masked"]) == ([], "mean", False)
    offer = with_agreement_key(ada)
    assert offer_from(offer.document()).job == offer.job
    for changes, words in (
        ({"agreement_key": "xy"}, "hexadecimal digits"),
        ({"agreement_key": ""}, "hexadecimal digits"),
        ({"report_bounds": ((0, float("inf")),)}, "report_bounds are not pairs"),
        ({"report_bounds": ((0, True),)}, "report_bounds are not pairs"),
        ({"report_bounds": ((1, 1.0),)}, "report_bounds are not pairs"),
        ({"report_bounds": ((0, 1.0), (0, 2.0))}, "report_bounds are not pairs"),
        ({"report_bounds": ((0, 1.0, 2.0),)}, "report_bounds are not pairs"),
        ({"aggregation": "best"}, "in a known way"),
        ({"masked": True, "report_bounds": ()}, "masked reports need"),
    ):
        document = replace(offer, job=replace(offer.job, **changes), original=None).document()
        assert words in told(offer_from, document)


def test_one_connection_does_not_enrol_another_participant(tmp_path):
    """Neither with Ada's name and public key, nor with a description that Ada signed for another challenge or job."""
    job = BareRounds(tmp_path, 2)
    ada, ben = job.people[1000], job.people[1001]
    ben.describe = ada.describe
    with open_ledger(tmp_path / "ledger.db", KEY) as ledger:
        roster = Roster(job.grid, ledger, "job-1", ("client 0", "client 1"), job.server, (8, 8, 1))
        roster.refresh()
        reasons = [entry.document["reason"] for entry in ledger.entries("job-1", "rejection")]
    assert roster.node_of == {"client 0": 1000}
    assert reasons == ["a client's description is not signed by the key that it names, for this server."]
    require_proof(ada.signed_description("job-1", "ab"), "job-1", "ab")
    for name, challenge in (("job-1", "cd"), ("job-2", "ab")):
        assert "for this server" in told(require_proof, ada.signed_description("job-1", "ab"), name, challenge)
    assert "is not signed" in told(require_proof, ada.describe(), "job-1", "ab")


def test_a_report_from_another_connection_and_a_forged_training_message_are_refused(tmp_path):
    """Ben's connection sends a report in Ada's name; and his node gets a message that is not the operator's."""
    job = BareRounds(tmp_path, 3, rounds=1, masked=False)

    def forge(reply):
        if reply.metadata.message_type != "train" or reply.metadata.src_node_id != 1000:
            return [reply]
        return [recoded(job.people[1001].folder, reply, job.people[1000].folder)]

    _, view = job.go(Meddler(job.grid, forge))
    assert [(entry.document["client"], entry.document["reason"][:13]) for entry in view.rejections] == [
        ("client 0", "not authentic")
    ]
    offer = job.training.agreement.offers[1]
    record = ConfigRecord({"offer": offer.hash, "round": 0, "mac": b"0" * 32})
    arrays = ArrayRecord({"params": Array(np.zeros(650, np.float32))})
    assert "its code is wrong" in told(require_from_operator, job.people[1001], record, arrays)
