"""Who holds which samples. Looks at `images`, `draws`, `errors` and the mechanism's `checks`.

One rule for federations of every size: a client draws from a pool (all samples, or those of one class) without
replacement; a pool that has too few is gone through again, in a new order, until she has enough. Clients draw
independently of each other, so two of them may hold the same sample, and what one holds does not depend on who else
is there. Work is done in blocks of clients, so memory beyond the result does not grow with their number.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from truthfl.errors import InputError
from truthfl.learning.draws import BitArray, Purpose, below, bits, bits_at, generator, key, uniform
from truthfl.learning.images import as_array, numbers_below
from truthfl.mechanism.checks import FloatArray, IntArray, client_whole_numbers, number, whole_number

SAMPLES_PER_BLOCK = 1_000_000

OWN_CLASS, ALL_CLASSES, CHOICE_OF_CLASS = 0, 1, 2  # what a client's draw is for, beside its seed and purpose


def paper_partition(
    labels: ArrayLike, sizes: ArrayLike, *, degree: float = 0.4, seed: int, classes: int = 10
) -> Partition:
    """The paper's split: client i = 1 … N has a share `degree` of her samples from class i mod `classes` (for ten
    classes, the last digit of i), the rest from all samples; those she has already are left out while others remain.
    """
    number_of_classes = whole_number("classes", classes, at_least=1)
    true = numbers_below("labels", labels, number_of_classes)
    pools = _Pools(true, number_of_classes)
    share = number("degree", degree, at_least=0)
    if share > 1:
        raise InputError(f"degree is {share:g}; it must be from 0 to 1.")
    starts = _starts(sizes)
    main_class = np.arange(1, len(starts)) % number_of_classes
    own = np.rint(share * np.diff(starts)).astype(np.int64)
    without = np.flatnonzero((pools.sizes[main_class] == 0) & (own > 0))
    if without.size:
        client = int(without[0])
        raise InputError(
            f"labels has no sample of class {main_class[client]}, of which client {client} is to hold {own[client]}; "
            "every class must have a sample."
        )
    rows = np.empty(starts[-1], dtype=np.int64)
    for first, last in client_blocks(starts):
        clients, counts, of_class = np.arange(first, last), own[first:last], main_class[first:last]
        drawn = _draw(key(seed, Purpose.SPLIT, clients, OWN_CLASS), counts, pools.sizes[of_class])
        mine = pools.samples(np.repeat(of_class, counts), drawn)
        others = np.diff(starts[first : last + 1]) - counts
        theirs = _draw_others(key(seed, Purpose.SPLIT, clients, ALL_CLASSES), others, mine, counts, len(true))
        own_part = numbered(counts + others)[1] < np.repeat(counts, counts + others)
        block = rows[starts[first] : starts[last]]
        block[own_part], block[~own_part] = mine, theirs
    return Partition(rows, starts)


def dirichlet_partition(labels: ArrayLike, sizes: ArrayLike, *, concentration: float, seed: int) -> Partition:
    """Each client has her own shares of the classes that occur, drawn from a symmetric Dirichlet distribution: near 0
    she has one class, far above 1 all of them alike. Each sample's class is drawn by these shares.
    """
    strength = number("concentration", concentration, positive=True)
    occurring, of_sample = np.unique(numbers_below("labels", labels, 2**62), return_inverse=True)
    pools, classes, starts = _Pools(of_sample, len(occurring)), np.arange(len(occurring)), _starts(sizes)
    shares = generator(seed, Purpose.SPLIT).dirichlet(np.full(len(classes), strength), size=len(starts) - 1)
    upto = np.cumsum(shares, axis=1)
    rows = np.empty(starts[-1], dtype=np.int64)
    for first, last in client_blocks(starts):
        client, position = numbered(np.diff(starts[first : last + 1]))
        chance = uniform(key(seed, Purpose.SPLIT, first + client, CHOICE_OF_CLASS, position))
        chosen = np.zeros(len(client), dtype=np.int64)
        for k in classes[:-1]:
            chosen += chance >= upto[first + client, k]
        counts = np.bincount(client * len(classes) + chosen, minlength=(last - first) * len(classes))
        of_class = np.tile(classes, last - first)
        keys = key(seed, Purpose.SPLIT, np.arange(first, last)[:, None], OWN_CLASS, classes).ravel()
        drawn = _draw(keys, counts, pools.sizes[of_class])
        rows[starts[first] : starts[last]] = pools.samples(np.repeat(of_class, counts), drawn)
    return Partition(rows, starts)


def iid_partition(count: int, sizes: ArrayLike, *, seed: int) -> Partition:
    """Every client draws from all `count` samples alike."""
    available, starts = whole_number("count", count, at_least=1), _starts(sizes)
    rows = np.empty(starts[-1], dtype=np.int64)
    for first, last in client_blocks(starts):
        keys, counts = key(seed, Purpose.SPLIT, np.arange(first, last), ALL_CLASSES), np.diff(starts[first : last + 1])
        rows[starts[first] : starts[last]] = _draw(keys, counts, np.full(last - first, available))
    return Partition(rows, starts)


def client_blocks(starts: IntArray) -> Iterator[tuple[int, int]]:
    """First and last + 1 of runs of clients who together have no more samples than fit a block; or of one client."""
    first = 0
    while first < len(starts) - 1:
        fitting = int(np.searchsorted(starts, starts[first] + SAMPLES_PER_BLOCK, side="right")) - 1
        last = max(fitting, first + 1)
        yield first, last
        first = last


def numbered(counts: IntArray) -> tuple[IntArray, IntArray]:
    """For counts = [2, 3]: whose each item is, [0, 0, 1, 1, 1], and which of hers, [0, 1, 0, 1, 2]."""
    owner = np.repeat(np.arange(len(counts)), counts)
    return owner, np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)


def _draw(keys: BitArray, counts: IntArray, pool_sizes: IntArray) -> IntArray:
    """For each key, that many of the numbers below its pool's size, all different as long as the pool lasts."""
    asked, turn = numbered(-(-counts // np.maximum(pool_sizes, 1)))
    left = counts[asked] - turn * pool_sizes[asked]
    return _draw_different(bits_at(keys[asked], turn), np.minimum(left, pool_sizes[asked]), pool_sizes[asked])


def _draw_different(keys: BitArray, counts: IntArray, pool_sizes: IntArray) -> IntArray:
    """For each key, that many different numbers below its pool's size, every choice as likely as every other.

    From up to half of a pool: draw, and draw again what came twice. From more of it: put all of it in random order.
    """
    drawn = np.empty(int(counts.sum()), dtype=np.int64)
    most = 2 * counts > pool_sizes
    for size in np.unique(pool_sizes[most]):
        asked = np.flatnonzero(most & (pool_sizes == size))
        at_once = max(1, SAMPLES_PER_BLOCK // int(size))
        for some in np.split(asked, range(at_once, len(asked), at_once)):
            order = np.argsort(bits(keys[some], int(size)), axis=1, kind="stable")
            drawn[_items(counts, some)] = order[np.arange(size) < counts[some, None]]
    owner, position = numbered(counts)
    unsettled, attempt = np.flatnonzero(~most), 0
    again = _items(counts, unsettled)
    while again.size:
        attempt_keys = bits_at(keys, np.full(len(keys), attempt))
        drawn[again] = below(bits_at(attempt_keys[owner[again]], position[again]), pool_sizes[owner[again]])
        items = _items(counts, unsettled)
        items = items[np.argsort(owner[items] * pool_sizes.max() + drawn[items], kind="stable")]
        same = (drawn[items[1:]] == drawn[items[:-1]]) & (owner[items[1:]] == owner[items[:-1]])
        again = items[1:][same]
        unsettled, attempt = np.unique(owner[again]), attempt + 1
    return drawn


def _items(counts: IntArray, chosen: IntArray) -> IntArray:
    """Where the items of the chosen ones are, when everybody's items lie one after another."""
    return np.repeat((np.cumsum(counts) - counts)[chosen], counts[chosen]) + numbered(counts[chosen])[1]


def _draw_others(keys: BitArray, counts: IntArray, mine: IntArray, own: IntArray, available: int) -> IntArray:
    """From all available samples, without those already hers (`own` many of `mine`) where enough others remain."""
    held = np.unique(np.repeat(np.arange(len(own)), own) * available + mine)
    number_held = np.bincount(held // available, minlength=len(own))
    enough = counts <= available - number_held
    held, number_held = held[enough[held // available]], np.where(enough, number_held, 0)
    rank = _draw(keys, counts, available - number_held)
    # The sample of rank r among those not held is r + (how many of the held, the j-th being h_j, have h_j − j ≤ r).
    client = np.repeat(np.arange(len(counts)), counts)
    passed = np.searchsorted(held - numbered(number_held)[1], client * available + rank, side="right")
    return np.asarray(rank + passed - (np.cumsum(number_held) - number_held)[client])


def _starts(sizes: ArrayLike) -> IntArray:
    array = as_array("sizes", sizes)
    if array.ndim != 1 or array.size == 0:
        raise InputError(f"sizes has shape {array.shape}; it must be a list with one whole number per client.")
    checked = client_whole_numbers("sizes", array, len(array), "client {}".format, at_least=1)
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(checked)])


class _Pools:
    """The samples of each class, as positions in the data."""

    def __init__(self, labels: IntArray, classes: int) -> None:
        self.sizes: IntArray = np.bincount(labels, minlength=classes)
        self._sorted = np.argsort(labels, kind="stable")
        self._starts = np.cumsum(self.sizes) - self.sizes

    def samples(self, of_class: IntArray, rank: IntArray) -> IntArray:
        return np.asarray(self._sorted[self._starts[of_class] + rank])


@dataclass(frozen=True, init=False, eq=False)
class Partition:
    """Which samples each of N clients holds.

    rows    positions in the data, client after client
    starts  (N + 1,) where each client's rows begin, and where the last one's end
    """

    rows: IntArray
    starts: IntArray

    def __init__(self, rows: ArrayLike, starts: ArrayLike) -> None:
        positions = numbers_below("rows", rows, 2**62)
        offsets = numbers_below("starts", starts, len(positions) + 1)
        if len(offsets) < 2 or offsets[0] != 0 or offsets[-1] != len(positions) or (np.diff(offsets) < 1).any():
            raise InputError(
                f"starts does not divide {len(positions)} rows among clients; it must rise from 0 to {len(positions)}, "
                "so that everybody has a sample."
            )
        object.__setattr__(self, "rows", positions)
        object.__setattr__(self, "starts", offsets)

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def sizes(self) -> IntArray:
        """How many samples each client has."""
        return np.diff(self.starts)

    def rows_of(self, client: int) -> IntArray:
        """One client's samples."""
        if not 0 <= client < len(self):
            raise InputError(f"client is {client}; it must be from 0 to {len(self) - 1}.")
        return self.rows[self.starts[client] : self.starts[client + 1]]

    def weights(self) -> FloatArray:
        """p_i: each client's share of all samples."""
        return np.asarray(self.sizes / len(self.rows))
