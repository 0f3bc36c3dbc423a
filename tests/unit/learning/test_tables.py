"""Tables: files of rows, numbers that are standardised, categories, and what is said of files that do not fit."""

import gzip
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.preprocessing import StandardScaler

from truthfl.errors import InputError
from truthfl.learning.data.federations import sample_sets
from truthfl.learning.data.samples import LabeledSamples
from truthfl.learning.tasks.tables import Tables
from truthfl.learning.tasks.task_choice import TaskChoice

PEOPLE = """age,city,label,id
30,Paris,yes,a1
40,Bergen,no,a2
50,Paris,no,a3
62.5,Rome,yes,a4
"""


def table(folder, text, name="people.csv"):
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def fitted(folder, text=PEOPLE, **settings):
    task = Tables(**{"ignore": ("id",)} | settings)
    read = task.read(table(folder, text))
    return task.fit(read, read), read


def test_a_table_is_read_without_its_labels(tmp_path):
    read = Tables().read(table(tmp_path, "﻿" + PEOPLE))
    assert read.columns == ("age", "city", "id")
    assert read.raw.tolist()[3] == ["62.5", "Rome", "a4"]
    assert read.labels == ("yes", "no", "no", "yes")
    assert read.place(3) == f"line 5 of {tmp_path / 'people.csv'}"
    assert read.take(np.array([3, 0])).place(0) == read.place(3)
    assert Tables().shown(read, 0) == "age: 30\ncity: Paris\nid: a1"


def test_cells_with_commas_and_lines_are_one_cell(tmp_path):
    read = Tables().read(table(tmp_path, 'what,label\n"a, b",x\n\n"two\nlines",y\n'))
    assert read.raw[:, 0].tolist() == ["a, b", "two\nlines"]
    assert read.places == ("line 2", "line 5")


def test_numbers_are_standardised_on_the_pilot_and_categories_are_zeros_and_ones(tmp_path):
    task = Tables(ignore=("id",))
    read = task.read(table(tmp_path, PEOPLE))
    pilot = read.take(np.array([0, 1, 2]))
    made = task.fit(pilot, read)
    assert made.classes == ("no", "yes")
    assert (made.numbers, made.categories, made.values) == (("age",), ("city",), (("Bergen", "Paris", "Rome"),))
    features = made.features(read)
    assert features.dtype == np.float32
    expected = StandardScaler().fit(np.array([[30.0], [40.0], [50.0]])).transform([[30.0], [40.0], [50.0], [62.5]])
    np.testing.assert_array_equal(features[:, 0], expected[:, 0].astype(np.float32))
    assert features[:, 1:].tolist() == [[0, 1, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]]
    LabeledSamples(features, made.positions(read.labels, "people.csv"), made.classes)


def test_other_orders_and_further_columns_make_the_same_features(tmp_path):
    made, read = fitted(tmp_path)
    other = table(tmp_path, "note,city,age\nx,Paris,30\ny,Bergen,40\nz, Paris , 50 \nw,Rome,62.5\n", "other.csv")
    theirs = made.read(other)
    assert theirs.labels is None
    np.testing.assert_array_equal(made.features(theirs), made.features(read))


def test_a_task_reads_back_from_its_document_with_every_bit(tmp_path):
    made, read = fitted(tmp_path)
    again = Tables.of_document(json.loads(json.dumps(made.document())))
    assert again == made
    np.testing.assert_array_equal(again.features(read), made.features(read))


def test_columns_may_be_named(tmp_path):
    text = "code,age,label\n1,30,a\n2,40,b\n1,50,a\n"
    assert fitted(tmp_path, text, ignore=())[0].numbers == ("code", "age")
    named = fitted(tmp_path, text, ignore=(), categories=("code",))[0]
    assert (named.numbers, named.categories, named.values) == (("age",), ("code",), (("1", "2"),))


def test_a_constant_column_is_left_as_it_is(tmp_path):
    made, read = fitted(tmp_path, "x,y,label\n0.1,1,a\n0.1,2,b\n0.1,3,a\n", ignore=())
    assert made.scales[0] == 1.0
    assert abs(made.features(read)[:, 0]).max() < 1e-6


def test_an_npz_file_is_a_table_too(tmp_path):
    rows = np.array([[1.5, 2.0], [0.1, -3.0]], dtype=np.float32)
    path = tmp_path / "rows.npz"
    np.savez(path, rows=rows, columns=["a", "b"], labels=[1, 0], classes=["no", "yes"])
    read = Tables().read(path)
    assert (read.columns, read.labels) == (("a", "b"), ("yes", "no"))
    np.testing.assert_array_equal(read.raw.astype(np.float32), rows)
    np.savez(path, rows=np.array([["x", "1"]]), columns=["a", "b"], labels=[7])
    assert Tables().read(path).labels == ("7",)
    np.savez(path, rows=np.array([["x", "yes"]]), columns=["a", "label"])
    assert Tables().read(path).labels == ("yes",)
    np.savez(path, images=rows)
    with pytest.raises(InputError, match="is no table; it must hold the arrays 'rows' and 'columns'"):
        Tables().read(path)
    np.savez(path, rows=rows, columns=["a"])
    with pytest.raises(InputError, match=r"rows of shape \(2, 2\); it must be \(rows, 1\)"):
        Tables().read(path)
    np.savez(path, rows=rows, columns=["a", "b"], labels=[1, 2], classes=["no", "yes"])
    with pytest.raises(InputError, match="labels up to 2; they must be positions among 2 classes"):
        Tables().read(path)


def test_a_parquet_file_is_a_table_where_pyarrow_is(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "rows.parquet"
    parquet.write_table(pyarrow.table({"age": [1.5, None], "label": ["a", "b"]}), path)
    read = Tables().read(path)
    assert (read.columns, read.labels, read.raw.tolist()) == (("age",), ("a", "b"), [["1.5"], [""]])


def test_a_parquet_file_without_pyarrow(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(InputError, match=r"rows.parquet needs the package pyarrow; install it, or save the table as"):
        Tables().read(table(tmp_path, "", "rows.parquet"))


def test_what_is_written_is_read_again(tmp_path):
    made, read = fitted(tmp_path, 'age,city,label\n30,"Paris, Texas",yes\n40,Bergen,no\n', ignore=())
    path = tmp_path / "out" / "ada.csv"
    made.write(path, read)
    again = made.read(path)
    assert (again.raw.tolist(), again.labels, again.columns) == (read.raw.tolist(), read.labels, read.columns)


@pytest.mark.parametrize(
    ("name", "load"),
    [("breast_cancer", load_breast_cancer), ("wine", load_wine), ("iris", load_iris), ("digits", load_digits)],
)
def test_tables_that_come_along_are_scikit_learns(name, load):
    read, theirs = Tables().operator_samples(name), load()
    np.testing.assert_array_equal(read.raw.astype(np.float64), theirs.data)
    assert read.labels == tuple(str(theirs.target_names[label]) for label in theirs.target)
    assert len(set(read.columns)) == theirs.data.shape[1]


def test_three_sets_of_one_table():
    sets = sample_sets(TaskChoice("tables"), "wine", 60, 50, 1)
    assert [len(part) for part in (sets.clients, sets.pilot, sets.test)] == [68, 60, 50]
    np.testing.assert_allclose(sets.pilot.features.mean(axis=0), 0, atol=1e-6)
    assert len(sets.clients_read) == 68
    assert sets.clients.classes == ("class_0", "class_1", "class_2")


BAD_FILES = [
    ("age,label\n1,a\n", "a.txt", "is no table; it must be a .csv, .npz, .parquet file"),
    ("", "a.csv", "is empty; its first line must be the names of its columns"),
    ("age,label\n", "a.csv", "has no rows"),
    ("age;label\n1;a\n", "a.csv", "columns must be separated by commas"),
    ("age,age\n1,2\n", "a.csv", "has the column 'age' more than once"),
    (",age\n1,2\n", "a.csv", "column 1 of .* has no name"),
    ("age,label\n1\n", "a.csv", "line 2 of .*a.csv has 1 cells; its header has 2"),
    ("age,label\n1,a\n2,\n", "a.csv", "line 3 of .*a.csv has no class in 'label'; all must have one, or none"),
    ('age,label\n"1,a\n', "a.csv", "cannot be read .*; it must be a .csv file in UTF-8"),
    (
        "age,city\n1,Orl\xe9ans\n".encode("latin-1"),
        "a.csv",
        r"cannot be read as UTF-8 \(byte 0xe9 at 14\); save it as UTF-8",
    ),
    (gzip.compress(b"age"), "a.csv", "cannot be read as UTF-8"),
    (b"nothing", "a.npz", "is not an .npz file"),
]


@pytest.mark.parametrize(("content", "name", "message"), BAD_FILES, ids=range(len(BAD_FILES)))
def test_files_that_are_no_tables(tmp_path, content, name, message):
    with pytest.raises(InputError, match=message):
        Tables().read(table(tmp_path, content, name))


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(InputError, match=r"none.csv does not exist; name a .csv file"):
        Tables().read(tmp_path / "none.csv")


BAD_ROWS = [
    ("city\nParis\n", "has no column 'age'; the job's columns are age, city."),
    ("age,city\n30,Paris\nx,Paris\n", "line 3 of .*ada.csv has 'x' in column age; it must be a number."),
    ("age,city\n,Paris\n", "line 2 of .*ada.csv has '' in column age; it must be a number."),
    ("age,city\nnan,Paris\n", "has 'nan' in column age; it must be a number."),
    ("age,city\n1e300,Paris\n", "line 2 of .*ada.csv has a number in column age that is too large to use."),
    ("age,city\n30,Oslo\n", "line 2 of .*ada.csv has 'Oslo' in column city; the job knows Bergen, Paris, Rome."),
    ("age,city\n30,\x1b[31m\n", r"has '\\x1b\[31m' in column city; the job knows"),
]


@pytest.mark.parametrize(("content", "message"), BAD_ROWS, ids=range(len(BAD_ROWS)))
def test_rows_that_do_not_fit_the_job(tmp_path, content, message):
    made, _ = fitted(tmp_path)
    with pytest.raises(InputError, match=message):
        made.features(made.read(table(tmp_path, content, "ada.csv")))


def test_only_some_names_are_listed(tmp_path):
    made, _ = fitted(tmp_path, "city,label\n" + "".join(f"c{k},{'ab'[k % 2]}\n" for k in range(9)), ignore=())
    with pytest.raises(InputError, match=r"has 'x' in column city; the job knows c0, c1, c2, c3, c4, …\."):
        made.features(made.read(table(tmp_path, "city\nx\n", "ada.csv")))


@pytest.mark.parametrize(
    ("text", "settings", "message"),
    [
        (
            "name,label\n" + "".join(f"p{k},a\n" for k in range(60)),
            {},
            "column name has 60 different values, and line 2",
        ),
        ("age,label\n1,a\n", {"numbers": ("size",)}, "people.csv has no column 'size'; it has age."),
        ("label\na\n", {}, "people.csv has no columns to learn from beside 'label'"),
        ("age,label\n1,a\n2,b\n", {"numbers": ("age",), "ignore": ("age",)}, "'age' is named twice"),
        ("age,label\n1,a\n2,b\n", {"label": ""}, "label is ''; it must be the name of a column"),
        ("age,label\nx,a\n2,b\n", {"numbers": ("age",)}, "line 2 of .*people.csv has 'x' in column age"),
    ],
    ids=range(6),
)
def test_operators_tables_that_cannot_be_fitted(tmp_path, text, settings, message):
    with pytest.raises(InputError, match=message):
        fitted(tmp_path, text, **{"ignore": ()} | settings)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("age,city\n1,Rome\n", "pilot.csv has no column 'label'; the operator's data must have the true classes."),
        ("age,label\n1,a\n2,a\n", "the labels in .*pilot.csv are all 'a'; there must be two classes or more."),
        ("age,label\n" + "".join(f"1,{k}\n" for k in range(1100)), "have 1,100 different values, as '0'; there may be"),
    ],
)
def test_operators_labels_that_are_no_classes(tmp_path, text, message):
    with pytest.raises(InputError, match=message):
        sample_sets(TaskChoice("tables"), str(table(tmp_path, text, "pilot.csv")), 1, 1, 1)


def test_an_unknown_source():
    with pytest.raises(
        InputError, match=r"there is no file 'brest'; source must be a .csv, .npz or .parquet file, or one of \"bre"
    ):
        sample_sets(TaskChoice("tables"), "brest", 1, 1, 1)
    assert not Path("brest").exists()


@pytest.mark.parametrize(
    "change",
    [
        {"means": [1.0, 2.0]},
        {"means": ["x"]},
        {"means": [True]},
        {"scales": [0.0]},
        {"scales": [float("inf")]},
        {"values": []},
        {"values": [["a", "a"]]},
        {"values": [["a" * 300]]},
        {"values": [[1]]},
        {"values": "Paris"},
        {"numbers": ["age", "age"]},
        {"numbers": [["age"]]},
        {"label": 3},
        {"size": 3},
    ],
    ids=str,
)
def test_documents_of_others_are_checked(tmp_path, change):
    made, read = fitted(tmp_path)
    with pytest.raises(InputError):
        Tables.of_document(made.document() | change).features(read)
