"""A hash tree over many values: its root commits to all of them, and a short path proves that one is among them.

The tree of RFC 6962, section 2.1: leaves and inner nodes are hashed with different first bytes, and where a level has
an odd number of nodes, the last one is a node of the next level too. Hashes are SHA-256.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256

LEAF, NODE = b"\x00", b"\x01"


@dataclass(frozen=True, eq=False)
class MerkleTree:
    """A tree of at least one value.

    levels   hashes of the leaves, of the nodes above them, …, of the root alone
    """

    levels: tuple[tuple[bytes, ...], ...]

    @property
    def root(self) -> bytes:
        return self.levels[-1][0]

    def path(self, index: int) -> list[bytes]:
        """The hashes beside the way from the leaf at this index to the root, from below."""
        hashes = []
        for level in self.levels[:-1]:
            if index ^ 1 < len(level):
                hashes.append(level[index ^ 1])
            index //= 2
        return hashes


def merkle_tree(values: Sequence[bytes]) -> MerkleTree:
    """The tree over these values, of which there is at least one."""
    level = tuple(sha256(LEAF + value).digest() for value in values)
    levels = [level]
    while len(level) > 1:
        pairs = zip(level[::2], level[1::2], strict=False)
        level = (*(sha256(NODE + left + right).digest() for left, right in pairs), *level[len(level) & ~1 :])
        levels.append(level)
    return MerkleTree(tuple(levels))


def root_by_path(value: bytes, index: int, count: int, path: Sequence[bytes]) -> bytes | None:
    """The root of a tree of `count` values with this one at `index`; None if the path has another length."""
    node, last, rest = sha256(LEAF + value).digest(), count - 1, list(path)
    while last > 0:
        if index ^ 1 <= last:
            if not rest:
                return None
            beside = rest.pop(0)
            left, right = (beside, node) if index & 1 else (node, beside)
            node = sha256(NODE + left + right).digest()
        index, last = index // 2, last // 2
    return None if rest else node
