"""A job's [classes]: read with clear sentences, made small, signed by digest, delivered, refused if tampered with."""

import base64
import json
import zlib
from dataclasses import replace
from hashlib import sha256
from io import BytesIO

import pytest
from PIL import Image
from typer.testing import CliRunner

from helpers.participants import an_offer
from helpers.small_jobs import SMALL_JOB, known_plans  # noqa: F401
from helpers.task_jobs import CLASSES, example_folder, picture_bytes
from truthfl.cli.app import app
from truthfl.errors import InputError
from truthfl.federation.operator.kept_jobs import kept_key
from truthfl.federation.participant.signatory import Signatory
from truthfl.federation.protocol import offers as example_delivery
from truthfl.federation.protocol.messages import EXAMPLES, document_in, query_message
from truthfl.federation.protocol.offers import kept_instructions
from truthfl.federation.protocol.server import Operator, conduct_job, job_name
from truthfl.federation.simulated.participants import InProcessGrid, grid_of, simulated_participants
from truthfl.home import participant_folder
from truthfl.instructions import LARGEST, TEXT_TYPE, ClassInstructions, Example, Instructions, instructions_from
from truthfl.job import read_classes, read_job
from truthfl.learning.people.profile import Profile
from truthfl.learning.pilot.runs import PilotDesign
from truthfl.ledger.book import open_ledger
from truthfl.ledger.canonical import secret_from_seed
from truthfl.ledger.checking import check
from truthfl.ledger.receipts import receipt_fault
from truthfl.ledger.signing import new_key
from truthfl.ledger.terms import job_terms_from, offer_from
from truthfl.samples.example_files import FOLDER, kept_example, require_sound_example, small_example

QUICK = PilotDesign(seeds=3, honest_seeds=8, batch_sizes=(4, 8, 16, 32))
JOB = SMALL_JOB.replace("rounds = 30", "rounds = 6\nstep_size = 0.5")


def job_file(folder, classes=CLASSES):
    path = folder / "job.toml"
    path.write_text(JOB + classes)
    return path


@pytest.fixture
def section(tmp_path):
    example_folder(tmp_path)
    return read_job(job_file(tmp_path)).classes


def test_a_section_is_read(section):
    assert section.instructions == "Label the digit.\nIf there are two, the larger one."
    assert section.names == ("7", "1")
    assert [len(one.files) for one in section.classes] == [2, 2]
    assert section.classes[1].description == ""


@pytest.mark.parametrize(
    ("classes", "sentence"),
    [
        ("classes = 3\n", "classes is 3; it must be a section, [classes]."),
        (
            '[classes]\nexample = "x"',
            "[classes] it has no field 'example'; its fields are instructions, examples, class.",
        ),
        ("[classes]\ninstructions = 7", "[classes] instructions is 7; it must be a text."),
        (
            '[classes]\ninstructions = "a\\u0007"',
            "[classes] instructions has control characters; it must be plain text.",
        ),
        (f'[classes]\ninstructions = "{"a" * 2001}"', "instructions has 2,001 letters; it must have at most 2,000."),
        ('[classes]\nclass = "7"', "class must be tables, [[classes.class]], each with a name and a description."),
        ('[[classes.class]]\ndescription = "a"', "[classes] class lacks name in one of its tables."),
        ('[[classes.class]]\nname = "7"\nkey = "a"', "class has no field 'key'; its fields are name, description."),
        ("[[classes.class]]\nname = 7", "the name of a class is 7; it must be one line of 1 to 200 letters."),
        (
            f'[[classes.class]]\nname = "7"\ndescription = "{"a" * 1001}"',
            "the description of '7' has 1,001 letters; it must",
        ),
        ('[[classes.class]]\nname = "7"\n[[classes.class]]\nname = "7"', "the class '7' is there twice; once will do."),
        ("[classes]\nexamples = 7", "[classes] examples is 7; it must be the path of a folder."),
        ('[classes]\nexamples = "none"', "[classes] examples is 'none'; there is no folder"),
        ('[classes]\nexamples = "."', "is in no class; examples are in one subfolder per class."),
    ],
)
def test_bad_sections_get_a_sentence(tmp_path, classes, sentence):
    before = classes + JOB if classes.startswith("classes") else JOB + classes
    (tmp_path / "job.toml").write_text(before)
    with pytest.raises(InputError) as error:
        read_job(tmp_path / "job.toml")
    assert sentence in str(error.value)


def test_classes_must_be_the_jobs_own(tmp_path):
    job = read_job(job_file(tmp_path, '[[classes.class]]\nname = "seven"'))
    with pytest.raises(InputError, match=r"\[classes\] 'seven' is none of the job's classes; they are 0, 1, 2"):
        job.server_side()
    (tmp_path / "job.toml").write_text('[classes]\ninstructions = "a"\n[training]\nrounds = 3\nstep_size = 0.1')
    with pytest.raises(InputError, match=r"\[classes\] belongs to a job with \[data\]"):
        read_job(tmp_path / "job.toml")


def test_too_many_examples_and_unusable_ones(tmp_path):
    example_folder(tmp_path)
    folder = tmp_path / "examples" / "1"
    for name, content, sentence in (
        (
            "c.svg",
            b"<svg xmlns='http://www.w3.org/2000/svg'><script/></svg>",
            "is no PNG, JPEG, WebP, GIF, BMP, TIFF or HEIC picture",
        ),
        ("c.txt", b"\xff\xfe", "is not UTF-8 text"),
        ("c.txt", b"\x1b[2J", "has control characters"),
        ("c.txt", b" \n", "is empty"),
        ("c.txt", b"a" * 16_001, "has 16,001 bytes; an example must have at most 16,000"),
    ):
        (folder / name).write_bytes(content)
        with pytest.raises(InputError, match=sentence) as error:
            kept_instructions(read_job(job_file(tmp_path)).classes, tmp_path / "home")
        assert str(error.value).startswith("[classes] ")
        (folder / name).unlink()
    for number in range(7):
        (folder / f"{number}.png").write_bytes(picture_bytes())
    with pytest.raises(InputError, match="'1' has 9 examples; it must have at most 8"):
        read_job(job_file(tmp_path))


def test_examples_are_made_small_and_kept(tmp_path, section):
    given = kept_instructions(section, tmp_path / "home")
    assert [one.name for one in given.classes] == ["7", "1"]
    photo, words = given.classes[1].examples
    content = kept_example(tmp_path / "home", photo)
    assert photo.media_type == "image/jpeg"
    assert len(content) == photo.size <= LARGEST["image/jpeg"]
    assert Image.open(BytesIO(content)).size == (480, 320)
    assert kept_example(tmp_path / "home", words) == b"A stroke.\n    Or <i>two</i>."
    for example in given.examples:
        require_sound_example(kept_example(tmp_path / "home", example), example)
    assert kept_instructions(read_job_without_classes(tmp_path), tmp_path / "other") is None


def read_job_without_classes(folder):
    return read_job(job_file(folder, "")).classes


def test_an_examples_file_tells_nothing_that_came_along():
    exif = Image.Exif()
    exif[0x010E], exif[0x0112] = "taken at home", 6  # upright after a turn
    target = BytesIO()
    Image.new("RGB", (40, 20), "red").save(target, "JPEG", exif=exif, icc_profile=b"a profile")
    example, content = small_example(target.getvalue(), "photo.jpg")
    picture = Image.open(BytesIO(content))
    assert picture.size == (20, 40)
    assert not picture.getexif()
    assert b"home" not in content
    assert b"profile" not in content
    assert example.size == len(content)


def test_old_jobs_and_offers_stay_what_they_are(tmp_path):
    example_folder(tmp_path)
    job = read_job(job_file(tmp_path))
    plain = replace(job, classes=read_job_without_classes(tmp_path))
    assert "classes" not in plain.document()
    assert set(job.document()) - set(plain.document()) == {"classes"}
    before = job.document()
    (tmp_path / "examples" / "7" / "a.png").write_bytes(picture_bytes(21))
    assert job.document() != before
    offer = an_offer(new_key(), new_key())
    assert offer.job.document()["instructions"] is None


def test_instructions_in_an_offer(tmp_path, section):
    given = kept_instructions(section, tmp_path / "home")
    terms = an_offer(new_key(), new_key(), instructions=given).job
    document = json.loads(json.dumps(terms.document()))
    assert job_terms_from(document) == terms
    assert instructions_from(document["instructions"]) == given

    def refused(change):
        changed = json.loads(json.dumps(document))
        change(changed["instructions"])
        with pytest.raises(InputError, match="this is no offer: ") as error:
            job_terms_from(changed)
        return str(error.value)

    assert "none of the job's classes" in refused(lambda told: told["classes"][0].update(name="cat"))
    assert "not of the known form" in refused(lambda told: told.update(html="<b>"))
    assert "must be lists" in refused(lambda told: told.update(classes=7))
    assert "must be a text" in refused(lambda told: told.update(text=None))
    assert "is there twice" in refused(lambda told: told["classes"].append(told["classes"][0]))
    assert "9 examples" in refused(
        lambda told: told["classes"][0].update(examples=told["classes"][0]["examples"][:1] * 9)
    )
    one = lambda told: told["classes"][0]["examples"][0]  # noqa: E731
    assert "hexadecimal" in refused(lambda told: one(told).update(sha256="../../etc/passwd"))
    assert "type 'image/svg+xml'" in refused(lambda told: one(told).update(media_type="image/svg+xml"))
    assert "it must be one of" in refused(lambda told: one(told).update(media_type=["text/html"]))
    assert "100001 bytes" in refused(lambda told: one(told).update(size=100_001))


def test_all_together_have_limits():
    example = Example("ab" * 32, "image/jpeg", 90_000)
    with pytest.raises(
        InputError, match="there are 48 examples with 4,320,000 bytes; all together must be at most 400"
    ):
        Instructions("", tuple(ClassInstructions(str(k), "", (example,) * 8) for k in range(6)))
    with pytest.raises(
        InputError, match="the descriptions have 101,200 letters; together they must have at most 100,000"
    ):
        Instructions("", tuple(ClassInstructions(f"{k:012d}", "a" * 1000) for k in range(100)))


def bomb(side):
    """A PNG file of so many pixels a side, all black, in few bytes."""

    def chunk(kind, data):
        return len(data).to_bytes(4, "big") + kind + data + zlib.crc32(kind + data).to_bytes(4, "big")

    header = side.to_bytes(4, "big") * 2 + bytes([1, 0, 0, 0, 0])
    rows = zlib.compress(bytes(side * (side // 8 + 1)), 9)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def named(content, media_type="image/png"):
    """An example as an operator without scruples might sign it."""
    return Example(sha256(content).hexdigest(), media_type, len(content))


class Receiver:
    """Ada's computer, to which a server sends offers and examples."""

    def __init__(self, folder):
        self.key, self.operator = new_key(), new_key()
        self.person = Signatory(name="Ada", samples=200, key=self.key, folder=folder / "ada", decide=lambda _: None)

    def offer(self, *examples):
        told = Instructions("", (ClassInstructions("7", "", examples),))
        return an_offer(self.key, self.operator, instructions=told)

    def gets(self, offer, files, envelope=None):
        encoded = {digest: base64.b64encode(content).decode() for digest, content in files.items()}
        self.person.keep_examples({"offer": envelope or offer.envelope(), "examples": encoded})

    def kept(self):
        folder = self.person.folder / FOLDER
        return sorted(file.name for file in folder.iterdir()) if folder.exists() else []


def test_a_participant_takes_the_examples_that_the_operator_signed(tmp_path):
    ada, content = Receiver(tmp_path), picture_bytes()
    example = named(content)
    offer = ada.offer(example)
    assert ada.person.lacks_examples(offer.envelope())
    ada.gets(offer, {example.sha256: content, "cd" * 32: b"another file"})
    assert ada.kept() == [example.sha256]
    assert not ada.person.lacks_examples(offer.envelope())
    assert not Receiver(tmp_path).person.lacks_examples(offer.envelope())  # started again
    (tmp_path / "ada" / FOLDER / example.sha256).write_bytes(b"damaged")
    assert ada.person.lacks_examples(offer.envelope())
    assert ada.person.answer_offer(offer.envelope()) is None
    assert [one.job.instructions for one in participant_folder.offers(ada.person.folder)] == [offer.job.instructions]


HOSTILE = [
    (
        b"<svg xmlns='http://www.w3.org/2000/svg'><script>1</script></svg>",
        "image/png",
        "is no image/png, as the offer says",
    ),
    (b"<html><script>1</script></html>", "image/jpeg", "is no image/jpeg, as the offer says"),
    (picture_bytes(kind="JPEG"), "image/png", "is no image/png, as the offer says"),
    (bomb(20_000), "image/png", "has 20,000×20,000 pixels; at most 480×480 are taken"),
    (picture_bytes(481, 10), "image/png", "has 481×10 pixels"),
    (picture_bytes(200, 200, noise=True)[:5000], "image/png", "is broken"),
    (b"\x89PNG\r\n\x1a\n<script>", "image/png", "is a broken picture"),
    (b"\xff\xd8\xff<script>" + bytes(20), "image/jpeg", "is a broken picture"),
    (b"\xff\xfe\x00", TEXT_TYPE, "is not UTF-8 text"),
    ("right \u202e left".encode(), TEXT_TYPE, "has control characters"),
]


@pytest.mark.parametrize(("content", "media_type", "sentence"), HOSTILE)
def test_hostile_examples_are_refused(tmp_path, content, media_type, sentence):
    """Also those that the operator signed."""
    ada, example = Receiver(tmp_path), named(content, media_type)
    with pytest.raises(InputError, match=sentence):
        ada.gets(ada.offer(example), {example.sha256: content})
    assert ada.kept() == []
    news, over = participant_folder.news(ada.person.folder)
    assert news.startswith("An offer came that cannot be shown: the example ")
    assert not over


def test_other_examples_than_the_signed_ones_are_refused(tmp_path):
    ada, content = Receiver(tmp_path), picture_bytes()
    example = named(content)
    offer = ada.offer(example)
    for files, sentence in (
        ({example.sha256: picture_bytes(21)}, "is another file than the one in the signed offer"),
        ({example.sha256: content + b"\0"}, "is another file than the one in the signed offer"),
        ({example.sha256: bytes(200_000)}, "did not come, or is too long"),
        ({}, "did not come, or is too long"),
    ):
        with pytest.raises(InputError, match=sentence):
            ada.gets(offer, files)
    for files, sentence in (([], "did not come"), ({example.sha256: "%%%"}, "came damaged")):
        with pytest.raises(InputError, match=sentence):
            ada.person.keep_examples({"offer": offer.envelope(), "examples": files})
    with pytest.raises(InputError, match="has no offer to which its examples belong"):
        ada.person.keep_examples({"examples": {}})
    forged = named(picture_bytes(22))
    unsigned = {**ada.offer(forged).envelope(), "signature": offer.envelope()["signature"]}
    with pytest.raises(InputError, match="the offer to Ada is refused"):
        ada.gets(None, {forged.sha256: picture_bytes(22)}, unsigned)
    assert ada.kept() == []


class Whole:
    """A whole job in this process whose class examples travel by messages."""

    def __init__(self, folder):
        example_folder(folder)
        self.job, self.folder = read_job(job_file(folder)), folder / "out"
        scene = self.job.simulated_federation()
        labels = Profile(self.job.clients.behaviour, 1).labels(scene.federated, 5)
        self.people = simulated_participants(self.job, scene, self.folder, labels)
        self.grid = grid_of(self.people)

    def go(self, grid=None):
        with open_ledger(self.folder / "ledger.db") as book:
            key = kept_key(self.folder / "operator")
            operator = Operator(book, self.folder, key, secret_from_seed(5), 5)
            name = job_name(book, self.job, 5)
            plan = lambda job, side: job.plan(side, QUICK)  # noqa: E731
            return conduct_job(grid or self.grid, self.job, name, operator, plan, lambda *_: None)


class Tampering(InProcessGrid):
    """A grid on which the examples to one client are changed on their way."""

    def __init__(self, grid, node):
        self.__dict__.update(vars(grid))
        self.node, self.messages = node, 0

    def push_messages(self, messages):
        return super().push_messages([self._changed(message) for message in messages])

    def _changed(self, message):
        if EXAMPLES not in message.metadata.message_type or message.metadata.dst_node_id != self.node:
            return message
        self.messages += 1
        document = document_in(message)
        first = sorted(document["examples"])[0]
        document["examples"][first] = base64.b64encode(picture_bytes(33)).decode()
        return query_message(EXAMPLES, self.node, document)


def test_a_whole_job_delivers_them_to_everybody(tmp_path):
    whole = Whole(tmp_path)
    found = whole.go()
    terms = found.agreement.terms
    assert len(list(terms.instructions.examples)) == 4
    for person in whole.people.values():
        offer = participant_folder.offers(person.folder)[-1]
        assert offer.job.instructions == terms.instructions
        for example in terms.instructions.examples:
            require_sound_example(kept_example(person.folder, example), example)
        receipt = participant_folder.receipts(person.folder)[-1]
        assert receipt_fault(receipt) is None
        assert offer_from(receipt["document"]["offer"]).job.instructions == terms.instructions
    with open_ledger(whole.folder / "ledger.db") as book:
        check(book.entries())


def test_somebody_who_gets_others_than_the_signed_ones_does_not_answer(tmp_path, monkeypatch):
    whole = Whole(tmp_path)
    whole.job = replace(whole.job, server=replace(whole.job.server, answer_seconds=2.0))
    monkeypatch.setattr(example_delivery, "MOST_TIMES", 2)
    ada = min(whole.people)
    grid = Tampering(whole.grid, ada)
    found = whole.go(grid)
    assert grid.messages == 2
    assert "Ada" not in [offer.client.name for offer in found.agreement.offers]
    assert participant_folder.offers(whole.people[ada].folder) == []
    reasons = [one.document["reason"] for one in found.rejections if one.document["client"] == "Ada"]
    assert any("is another file than the one in the signed offer" in reason for reason in reasons)
    assert "no answer in time" in reasons


def test_a_server_whose_examples_are_gone_says_so(tmp_path):
    key, operator = new_key(), new_key()
    offer = an_offer(key, operator, instructions=Instructions("", (ClassInstructions("7", "", (named(b"x"),)),)))
    delivery = example_delivery.ExampleDelivery(None, tmp_path)
    with pytest.raises(InputError, match=r"is not in .* any more, and offers name it; put it back from a backup"):
        delivery.send({1: offer})


def test_label_takes_instructions(tmp_path, section):
    only = tmp_path / "classes.toml"
    only.write_text(CLASSES)
    assert read_classes(only) == section
    (tmp_path / "none.toml").write_text("[data]")
    with pytest.raises(InputError, match=r"lacks the section \[classes\]"):
        read_classes(tmp_path / "none.toml")
    (tmp_path / "texts.csv").write_text("text\na\nb\n")
    command = ["label", "--data", str(tmp_path / "texts.csv"), "--home", str(tmp_path / "home"), "--instructions"]
    ran = CliRunner().invoke(app, [*command, str(only), "--classes", "a,b"])
    assert str(ran.exception) == "[classes] '7' is none of the job's classes; they are a, b."
