"""The hash tree over a job's entries, and the proof in a receipt that its documents are among them."""

from copy import deepcopy
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.participants import Ada
from truthfl.ledger.documents import signed
from truthfl.ledger.receipts import merkle_tree, receipt_fault, root_by_path

VALUES = st.lists(st.binary(min_size=32, max_size=32), min_size=1, max_size=70)


def recursive_root(values):
    """As RFC 6962, section 2.1 defines it: split at the largest power of two below the number of values."""
    if len(values) == 1:
        return sha256(b"\x00" + values[0]).digest()
    split = 1
    while 2 * split < len(values):
        split *= 2
    return sha256(b"\x01" + recursive_root(values[:split]) + recursive_root(values[split:])).digest()


@pytest.mark.properties
@given(VALUES)
def test_the_root_is_that_of_the_definition(values):
    assert merkle_tree(values).root == recursive_root(values)


def test_the_root_of_the_reference_vectors():
    """Google's Certificate Transparency test vectors of RFC 6962 trees: the roots of the first 1, 2, 3 and 8 leaves."""
    leaves = ["", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f"]
    values = [bytes.fromhex(leaf) for leaf in leaves]
    roots = {
        1: "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
        2: "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
        3: "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
        8: "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
    }
    for count, root in roots.items():
        assert merkle_tree(values[:count]).root.hex() == root


@pytest.mark.properties
@given(VALUES, st.data())
def test_a_path_proves_its_value_at_its_index_and_nothing_else(values, data):
    tree, count = merkle_tree(values), len(values)
    index = data.draw(st.integers(0, count - 1))
    path = tree.path(index)
    assert root_by_path(values[index], index, count, path) == tree.root
    assert root_by_path(bytes(32) if values[index] != bytes(32) else b"1" * 32, index, count, path) != tree.root
    assert root_by_path(values[index], index, count, [*path, bytes(32)]) is None
    if path:
        assert root_by_path(values[index], index, count, path[:-1]) is None
        other = data.draw(st.integers(0, count - 1).filter(lambda at: values[at] != values[index]) | st.none())
        if other is not None:
            assert root_by_path(values[index], other, count, tree.path(other)) != tree.root


@pytest.fixture
def paper(tmp_path):
    ada = Ada(tmp_path)
    offer = ada.gets_offer()
    ada.accepts(offer)
    return ada, ada.gets_receipt(offer)["document"]


def drop_link(proof):
    del proof["links"][1], proof["paths"][1]


def swap_links(proof):
    for part in ("links", "paths"):
        proof[part][0], proof[part][1] = proof[part][1], proof[part][0]


def repeat_link(proof):
    for part in ("links", "paths"):
        proof[part].insert(1, proof[part][0])


CHANGES = {
    "another root": (lambda proof: proof.update(root="0" * 64), "is not among those that its proof is of"),
    "a wider range": (lambda proof: proof.update(last=proof["last"] + 40), "is not among those"),
    "another start": (lambda proof: proof.update(first=proof["first"] - 1 or 5), "proof"),
    "no range": (lambda proof: proof.update(first="1"), "its proof is of no range of entries"),
    "a link less": (drop_link, "is not in the ledger by its proof, or twice"),
    "a link twice": (repeat_link, "twice, out of order or out of its range"),
    "another order": (swap_links, "twice, out of order or out of its range"),
    "a path less": (lambda proof: proof["paths"].pop(), "there must be as many"),
    "a short path": (lambda proof: proof["paths"][0].pop(), "is not among those that its proof is of"),
    "a long path": (lambda proof: proof["paths"][0].append("0" * 64), "is not among those that its proof is of"),
    "no hash in a path": (lambda proof: proof["paths"][0].__setitem__(0, "x"), "it is not a receipt"),
    "another payload": (lambda proof: proof["links"][0].update(payload="0" * 64), "its hash is not the one"),
    "one part more": (lambda proof: proof.update(more=1), "its proof must have the parts"),
    "no links": (lambda proof: proof.update(links=[], paths=[]), "its proof has 0 links"),
}


@pytest.mark.parametrize("change", list(CHANGES))
def test_a_proof_that_does_not_hold_is_found_though_the_operator_signed_it(paper, change):
    ada, document = paper
    assert receipt_fault(signed(ada.operator, document)) is None
    changed, (act, words) = deepcopy(document), CHANGES[change]
    act(changed["proof"])
    assert words in receipt_fault(signed(ada.operator, changed))


@pytest.mark.parametrize("part", ["proof", "salts", "rounds", "final"])
def test_a_receipt_without_a_part_is_none(paper, part):
    ada, document = paper
    lacking = {name: value for name, value in document.items() if name != part}
    assert receipt_fault(signed(ada.operator, lacking)) == "it does not have the parts of a receipt"
