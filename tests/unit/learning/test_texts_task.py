"""Texts as a task: files of texts, words as bytes, and what is said of files that do not fit."""

import json

import numpy as np
import pytest
from sklearn.feature_extraction.text import HashingVectorizer

from truthfl.errors import InputError
from truthfl.learning.data.federations import sample_sets
from truthfl.learning.models.softmax import SoftmaxRegression
from truthfl.learning.tasks.task import ReadSamples
from truthfl.learning.tasks.task_choice import TaskChoice
from truthfl.learning.tasks.texts import Texts, docstrings_in
from truthfl.learning.training.compute import supports


def texts_of(*texts):
    raw = np.empty(len(texts), dtype=object)
    raw[:] = texts
    return ReadSamples(raw)


def written(folder, name, content):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_words_are_bytes_that_scikit_learns_hashing_gives():
    samples = texts_of("The cat sat. THE END", "a dog", "", "the cat sat")
    features = Texts(buckets=64).features(samples)
    assert features.dtype == np.uint8
    assert set(np.unique(features)) == {0, 255}
    theirs = HashingVectorizer(n_features=64, alternate_sign=False, norm=None, binary=True).transform(samples.raw)
    np.testing.assert_array_equal(features, 255 * theirs.toarray().astype(np.uint8))
    assert features[2].sum() == 0


def test_features_depend_on_the_text_alone():
    texts = [f"text {k} of {k % 7} words" for k in range(2100)]  # more than one block
    features = Texts(buckets=128).features(texts_of(*texts))
    order = np.random.default_rng(1).permutation(len(texts))
    np.testing.assert_array_equal(Texts(buckets=128).features(texts_of(*texts).take(order)), features[order])


def test_pairs_of_words():
    one, two = Texts(), Texts(words=2)
    samples = texts_of("not good", "good not")
    assert (one.features(samples)[0] == one.features(samples)[1]).all()
    assert (two.features(samples)[0] != two.features(samples)[1]).any()


def test_texts_are_trained_by_the_kernel():
    assert supports(SoftmaxRegression(1024, 4, 1e-3), Texts().features(texts_of("a word")))


def test_csv_and_jsonl_files(tmp_path):
    csv_file = written(tmp_path, "a.csv", 'label,text\nx,"two\nlines"\ny, word \nx,\n')
    read = Texts().read(csv_file)
    assert (read.raw.tolist(), read.labels, read.places) == (["two\nlines", "word"], ("x", "y"), ("line 3", "line 4"))
    assert read.problems == ("line 5 holds no text.",)
    lines = [{"body": "one", "kind": 3}, {"body": "two", "kind": 4}, {"kind": 4}, {"body": "\ud800", "kind": "x"}]
    jsonl = written(tmp_path, "a.jsonl", "\n\n".join(map(json.dumps, lines)) + "\nnot json\n")
    read = Texts(text="body", label="kind").read(jsonl)
    assert (read.raw.tolist(), read.labels) == (["one", "two", "?"], ("3", "4", "x"))
    assert read.problems == ("line 5 holds no text.", "line 8 holds no text.")
    bare = Texts().read(written(tmp_path, "b.jsonl", '"one"\n{"text": "two"}\n'))
    assert (bare.raw.tolist(), bare.labels) == (["one", "two"], None)
    assert Texts().shown(bare, 1) == "two"


def test_what_is_written_is_read_again(tmp_path):
    read = Texts().read(written(tmp_path, "a.csv", 'text,label\n"a ""quoted"", text",x\n"two\nlines",y\n'))
    Texts().write(tmp_path / "b.csv", read)
    again = Texts().read(tmp_path / "b.csv")
    assert (again.raw.tolist(), again.labels) == (read.raw.tolist(), read.labels)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", "x", "holds no texts; it must be a .csv or .jsonl file"),
        ("a.csv", "body\nx\n", "line 1 of .*a.csv has no column 'text'"),
        ("a.csv", "", "line 1 of .*a.csv has no column 'text'"),
        ("a.csv", "text\n", "has no text; it must have at least one"),
        ("a.csv", b"text\ncaf\xe9\n", r"cannot be read as UTF-8 \(byte 0xe9 at 8\); save it as UTF-8"),
        ("a.jsonl", b'{"text": "caf\xe9"}\n', r"cannot be read as UTF-8 \(byte 0xe9 at 13\); save it as UTF-8"),
        ("a.csv", "text,label\none,a\ntwo,\n", "line 3 of .*a.csv has no class in 'label'; all must have one, or none"),
    ],
    ids=range(7),
)
def test_files_that_hold_no_texts(tmp_path, name, content, message):
    with pytest.raises(InputError, match=message):
        Texts().read(written(tmp_path, name, content))


def test_too_long_a_text_is_left_out(tmp_path):
    read = Texts().read(written(tmp_path, "a.csv", f"text\n{'x' * 20_001}\nshort\n"))
    assert read.problems == ("line 2 has 20,001 letters; at most 20,000 are shown.",)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("text\none\ntwo\n", "pilot.csv has no column 'label'; the operator's data must have the true classes."),
        ("text,label\none,a\ntwo,a\n", "the labels in .*pilot.csv are all 'a'; there must be two classes or more."),
    ],
)
def test_operators_files_that_do_not_do(tmp_path, content, message):
    with pytest.raises(InputError, match=message):
        sample_sets(TaskChoice("texts"), str(written(tmp_path, "pilot.csv", content)), 1, 1, 1)
    with pytest.raises(
        InputError, match=r"there is no file 'x'; source must be a .csv or .jsonl file, or \"docstrings\"."
    ):
        sample_sets(TaskChoice("texts"), "x", 1, 1, 1)


@pytest.mark.parametrize(
    "settings",
    [{"buckets": 8}, {"buckets": 100_000}, {"buckets": 64.5}, {"words": 3}, {"text": ""}, {"text": "label"}, {"x": 1}],
    ids=str,
)
def test_settings_that_do_not_do(settings):
    with pytest.raises(InputError):
        Texts.of_document(settings)


def test_docstrings_are_sorted_by_what_they_describe(tmp_path):
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "t.py").write_text('"""Left out."""')
    (tmp_path / "broken.py").write_text("def (")
    (tmp_path / "a.py").write_text(
        '"""A module."""\nclass A:\n  """A class."""\n  if True:\n    def m(self):\n      """A method."""\n'
        '      def f():\n        """A function."""\n'
    )
    (tmp_path / "b.py").write_text('"""A module."""\nasync def f():\n    """  Waits.\n\n    Long.\n    """\n')
    read = docstrings_in(tmp_path)
    assert dict(zip(read.raw.tolist(), read.labels, strict=True)) == {
        "A module.": "module",
        "A class.": "class",
        "A method.": "method",
        "A function.": "function",
        "Waits.\n\nLong.": "function",
    }
    assert read.places[0] == "line 1 of a.py"
    assert sorted(docstrings_in(tmp_path, 1).labels) == ["class", "function", "method", "module"]
