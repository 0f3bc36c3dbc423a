"""Flower's insides are used in one module alone, which stops with a sentence where a part is not there."""

import ast
import re
import runpy
import subprocess
import sys
from functools import reduce
from importlib import import_module
from pathlib import Path

import flwr
import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict

import truthfl
from truthfl.errors import InputError, ServiceError
from truthfl.flower_patches import (
    flower_part,
    message_bytes,
    message_from_bytes,
    set_message_id,
    set_origin,
    set_task_identity,
)

SOURCE = Path(truthfl.__file__).parent
PATCHES = SOURCE / "flower_patches.py"
PUBLIC = ("flwr.app", "flwr.clientapp", "flwr.serverapp", "flwr.serverapp.strategy", "flwr.simulation")


def names_in(tree):
    """What source code imports, reaches by dots, or has in strings."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Attribute):
            yield ast.unparse(node)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def insides_in(tree):
    """Of these, the parts of Flower that are not in its documented interface."""
    parts = [name for name in names_in(tree) if re.fullmatch(r"flwr(\.\w+)+", name)]
    return [part for part in parts if part not in PUBLIC and not is_public(*part.rsplit(".", 1))]


def is_public(module, name):
    return module in PUBLIC and name in import_module(module).__all__


def test_one_module_alone_uses_flowers_insides():
    outside = [path for path in SOURCE.rglob("*.py") if path != PATCHES]
    used = {str(path.relative_to(SOURCE)): insides_in(ast.parse(path.read_text())) for path in outside}
    assert {path: parts for path, parts in used.items() if parts} == {}


class RuntimeCode(ast.NodeTransformer):
    """Leaves out what only type checkers read."""

    def visit_If(self, node):
        return node.orelse if ast.unparse(node.test) == "TYPE_CHECKING" else node


def test_it_imports_no_inside_without_looking_it_up():
    tree = RuntimeCode().visit(ast.parse(PATCHES.read_text()))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    assert [part for node in imports for part in insides_in(node)] == []


@pytest.mark.parametrize(
    "text",
    [
        "from flwr.common.constant import ErrorCode",
        "import flwr.proto.node_pb2 as types",
        "import flwr.app\nflwr.supercore.run",
        "from flwr import common",
        "from flwr.serverapp import grid",
        "import_module('flwr.supercore.run')",
    ],
)
def test_each_way_to_flowers_insides_is_seen(text):
    assert insides_in(ast.parse(text)) != []


def test_what_flower_documents_is_not_taken_for_its_insides():
    text = "from flwr.app import Message\nimport flwr.serverapp.strategy\nflwr.serverapp.strategy.FedAvg\nlog('flwr')"
    assert insides_in(ast.parse(text)) == []


def parts_looked_up():
    """The parts of Flower that the module looks up when it is imported, as (module, name)."""
    calls = [node for node in ast.walk(ast.parse(PATCHES.read_text())) if isinstance(node, ast.Call)]
    return [
        tuple(map(ast.literal_eval, call.args))
        for call in calls
        if isinstance(call.func, ast.Name) and call.func.id == "flower_part"
    ]


PARTS = parts_looked_up()


@pytest.mark.parametrize(("module", "name"), PARTS)
def test_each_part_that_is_missing_is_said_in_a_sentence(module, name, monkeypatch):
    *holders, last = name.split(".")
    with monkeypatch.context() as patch:
        patch.delattr(reduce(getattr, holders, import_module(module)), last)
        with pytest.raises(ServiceError) as error:
            runpy.run_path(str(PATCHES))
    assert str(error.value) == sentence(f"{module}.{name}")
    runpy.run_path(str(PATCHES))


def sentence(part):
    return f"Flower {flwr.__version__} has no {part}; truthfl needs Flower 1.41: pip install 'flwr==1.41.*'."


def test_its_docstring_names_what_it_uses():
    description = ast.get_docstring(ast.parse(PATCHES.read_text()))
    named = [(f"`{module}`", f"`{name.split('.')[0]}`") for module, name in PARTS]
    assert [part for part in named if not all(name in description for name in part)] == []


@pytest.mark.parametrize("part", [("flwr.nowhere", "thing"), ("flwr.common.constant", "Nothing")])
def test_neither_a_module_nor_an_attribute_needs_to_be_there(part):
    with pytest.raises(ServiceError) as error:
        flower_part(*part)
    assert str(error.value) == sentence(".".join(part))


@pytest.mark.parametrize(
    ("field", "give_id"),
    [
        ("_message_id", lambda message: set_message_id(message, "7")),
        ("_src_node_id", lambda message: set_origin(message, 5, "7")),
        ("_reply_to_message_id", lambda message: set_origin(message, 5, "7")),
    ],
)
def test_an_id_that_messages_lack_is_said(field, give_id):
    set_task_identity(1)
    message = Message(RecordDict(), dst_node_id=5, message_type="query")
    give_id(message)
    assert vars(message.metadata).pop(field) in ("7", 5)
    with pytest.raises(ServiceError) as error:
        give_id(message)
    assert str(error.value) == sentence(f"flwr.app.Metadata.{field}")


def test_a_command_prints_the_sentence_and_nothing_else(tmp_path):
    """Not even planning, which takes longest, is begun."""
    job = SOURCE / "examples" / "mnist.toml"
    code = (
        "import sys, flwr.common.constant as constants; del constants.ErrorCode.NODE_UNAVAILABLE\n"
        "from truthfl.cli.app import main\n"
        f"sys.argv = ['truthfl', 'run', {str(job)!r}]; main()"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False)
    said = sentence("flwr.common.constant.ErrorCode.NODE_UNAVAILABLE")
    assert (ended.returncode, ended.stdout, ended.stderr) == (3, "", f"truthfl: {said}\n")
    assert list(tmp_path.iterdir()) == []


def hostile(count):
    """Contents that take much more memory and time to read than their bytes."""
    array = Array("float32", (1,), "numpy.ndarray", b"")
    yield {"c": ConfigRecord({str(number): number for number in range(count)})}
    yield {"c": ConfigRecord({"list": ["a"] * 10 * count})}
    yield {str(number): ConfigRecord() for number in range(count)}
    yield {"a": ArrayRecord({str(number): array for number in range(count)})}


def test_of_a_reply_little_is_read_besides_its_arrays():
    set_task_identity(1)
    numbers = np.arange(1_000_000, dtype=np.float32)
    model = {"a": ArrayRecord({"params": Array(numbers)}), "c": ConfigRecord({"text": "x" * 9000})}
    content = message_bytes(Message(RecordDict(model), 7, "train"))
    read = message_from_bytes(content, 10_000).content
    assert (read["a"]["params"].numpy() == numbers).all()
    assert read["c"] == model["c"]
    for broken in (content[:-1], content[: len(content) // 2], content[5:], b"\xff" * 100, b"\x0b\x0c"):
        with pytest.raises(InputError, match=r"cannot be read|longer than what is read"):
            message_from_bytes(broken, 10_000)
    for made in hostile(20_000):
        content = message_bytes(Message(RecordDict(made), 7, "train"))
        assert len(content) > 80_000
        with pytest.raises(InputError, match="besides arrays, the message is longer than what is read"):
            message_from_bytes(content, 10_000)
        assert len(message_from_bytes(content).content) == len(made)
