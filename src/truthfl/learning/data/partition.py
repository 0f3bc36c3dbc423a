"""`Partition`: who holds which samples; `Federated`: model, data, partition and training parameters.

A client draws from a pool (all samples, or the samples of one class) without replacement. If the pool is too small, it
is used again in a new order until the client has enough samples. Clients draw independently, so two of them may hold
the same sample. Clients are processed in blocks, so temporary memory does not grow with their number.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from truthfl.contracts.setting import (
    FloatArray,
    IntArray,
    Training,
    client_array,
    client_whole_numbers,
    number,
    whole_number,
)
from truthfl.errors import InputError
from truthfl.learning.data.samples import LabeledSamples, as_array, numbers_below
from truthfl.learning.models.model import Labels, Model
from truthfl.learning.training.aggregation import ReportRule, is_own
from truthfl.learning.training.draws import BitArray, Purpose, below, bits, bits_at, generator, key, uniform

SAMPLES_PER_BLOCK = 1_000_000

OWN_CLASS, ALL_CLASSES, CHOICE_OF_CLASS = 0, 1, 2  # counters of draws for Purpose.SPLIT


def paper_partition(
    labels: ArrayLike, sizes: ArrayLike, *, degree: float = 0.4, seed: int, classes: int = 10
) -> Partition:
    """The paper's split: client i = 1 … N draws the share `degree` of their samples from class i mod `classes`.

    The rest is drawn from all samples, except those that the client already has, as long as others remain.
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
            f"labels has no sample of class {main_class[client]}, of which client {client} needs {own[client]}; "
            "every class must have a sample."
        )
    rows = np.empty(starts[-1], dtype=np.int64)
    for first, last in client_blocks(starts):
        clients, counts, of_class = np.arange(first, last), own[first:last], main_class[first:last]
        drawn = _draw(key(seed, Purpose.SPLIT, clients, OWN_CLASS), counts, pools.sizes[of_class])
        from_class = pools.samples(np.repeat(of_class, counts), drawn)
        rest = np.diff(starts[first : last + 1]) - counts
        from_all = _draw_rest(key(seed, Purpose.SPLIT, clients, ALL_CLASSES), rest, from_class, counts, len(true))
        is_own = owners_and_positions(counts + rest)[1] < np.repeat(counts, counts + rest)
        block = rows[starts[first] : starts[last]]
        block[is_own], block[~is_own] = from_class, from_all
    return Partition(rows, starts)


def dirichlet_partition(labels: ArrayLike, sizes: ArrayLike, *, concentration: float, seed: int) -> Partition:
    """Each client's shares of the occurring classes are drawn from a symmetric Dirichlet distribution.

    With a `concentration` near 0 a client has one class; far above 1, nearly equal shares. The class of each sample is
    drawn by these shares.
    """
    strength = number("concentration", concentration, positive=True)
    occurring, of_sample = np.unique(numbers_below("labels", labels, 2**62), return_inverse=True)
    pools, classes, starts = _Pools(of_sample, len(occurring)), np.arange(len(occurring)), _starts(sizes)
    shares = generator(seed, Purpose.SPLIT).dirichlet(np.full(len(classes), strength), size=len(starts) - 1)
    upto = np.cumsum(shares, axis=1)
    rows = np.empty(starts[-1], dtype=np.int64)
    for first, last in client_blocks(starts):
        client, position = owners_and_positions(np.diff(starts[first : last + 1]))
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
    """Every client draws uniformly from all `count` samples."""
    available, starts = whole_number("count", count, at_least=1), _starts(sizes)
    rows = np.empty(starts[-1], dtype=np.int64)
    for first, last in client_blocks(starts):
        keys, counts = key(seed, Purpose.SPLIT, np.arange(first, last), ALL_CLASSES), np.diff(starts[first : last + 1])
        rows[starts[first] : starts[last]] = _draw(keys, counts, np.full(last - first, available))
    return Partition(rows, starts)


def taken_in_turns(partition: Partition, labels: Labels, seed: int) -> Partition:
    """Clients with as many samples of each class, who take turns through the samples.

    No sample is used a second time before all others of its class were used, so clients next to each other share none
    as long as the data suffice. A client holds a sample twice only if they need more of a class than there are.
    """
    kinds = labels[partition.rows]
    owner = np.repeat(np.arange(len(partition)), partition.sizes)
    rows = np.empty_like(partition.rows)
    for kind in np.unique(kinds).tolist():
        pool, places = np.flatnonzero(labels == kind), np.flatnonzero(kinds == kind)
        rng = generator(seed, Purpose.SPLIT, kind)
        left: IntArray = np.empty(0, dtype=np.int64)
        for own in np.split(places, np.flatnonzero(np.diff(owner[places])) + 1):
            taken = left[: len(own)]
            left = left[len(own) :]
            while len(taken) < len(own):
                again = rng.permutation(pool)
                held = np.isin(again, taken)
                again = np.concatenate((again[~held], again[held]))
                missing = len(own) - len(taken)
                taken, left = np.concatenate((taken, again[:missing])), again[missing:]
            rows[own] = taken
    return Partition(rows, partition.starts)


def client_blocks(starts: IntArray) -> Iterator[tuple[int, int]]:
    """Ranges (first, last + 1) of clients with at most `SAMPLES_PER_BLOCK` samples in all, or of a single client."""
    first = 0
    while first < len(starts) - 1:
        fitting = int(np.searchsorted(starts, starts[first] + SAMPLES_PER_BLOCK, side="right")) - 1
        last = max(fitting, first + 1)
        yield first, last
        first = last


def owners_and_positions(counts: IntArray) -> tuple[IntArray, IntArray]:
    """For counts = [2, 3]: the owner of each item, [0, 0, 1, 1, 1], and its position, [0, 1, 0, 1, 2]."""
    owner = np.repeat(np.arange(len(counts)), counts)
    return owner, np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)


def _draw(keys: BitArray, counts: IntArray, pool_sizes: IntArray) -> IntArray:
    """For each key, `counts` numbers below its pool's size; a number is repeated only after the pool was used up."""
    draw, turn = owners_and_positions(-(-counts // np.maximum(pool_sizes, 1)))
    left = counts[draw] - turn * pool_sizes[draw]
    return _draw_distinct(bits_at(keys[draw], turn), np.minimum(left, pool_sizes[draw]), pool_sizes[draw])


def _draw_distinct(keys: BitArray, counts: IntArray, pool_sizes: IntArray) -> IntArray:
    """For each key, `counts` distinct numbers below its pool's size, all choices equally likely.

    Up to half of a pool: draw with replacement and redraw duplicates. More than half: permute the whole pool.
    """
    drawn = np.empty(int(counts.sum()), dtype=np.int64)
    permuted = 2 * counts > pool_sizes
    for size in np.unique(pool_sizes[permuted]):
        of_size = np.flatnonzero(permuted & (pool_sizes == size))
        at_once = max(1, SAMPLES_PER_BLOCK // int(size))
        for block in np.split(of_size, range(at_once, len(of_size), at_once)):
            order = np.argsort(bits(keys[block], int(size)), axis=1, kind="stable")
            drawn[_items(counts, block)] = order[np.arange(size) < counts[block, None]]
    owner, position = owners_and_positions(counts)
    unsettled, attempt = np.flatnonzero(~permuted), 0
    again = _items(counts, unsettled)
    while again.size:
        attempt_keys = bits_at(keys, np.full(len(keys), attempt))
        drawn[again] = below(bits_at(attempt_keys[owner[again]], position[again]), pool_sizes[owner[again]])
        items = _items(counts, unsettled)
        items = items[np.argsort(owner[items] * pool_sizes.max() + drawn[items], kind="stable")]
        duplicate = (drawn[items[1:]] == drawn[items[:-1]]) & (owner[items[1:]] == owner[items[:-1]])
        again = items[1:][duplicate]
        unsettled, attempt = np.unique(owner[again]), attempt + 1
    return drawn


def _items(counts: IntArray, chosen: IntArray) -> IntArray:
    """The positions of the chosen owners' items in an array that is ordered by owner, `counts` items each."""
    return np.repeat((np.cumsum(counts) - counts)[chosen], counts[chosen]) + owners_and_positions(counts[chosen])[1]


def _draw_rest(keys: BitArray, counts: IntArray, held_rows: IntArray, own: IntArray, available: int) -> IntArray:
    """For each client, `counts` of all samples, without their `own` ones in `held_rows` if enough others remain."""
    held = np.unique(np.repeat(np.arange(len(own)), own) * available + held_rows)
    number_held = np.bincount(held // available, minlength=len(own))
    enough = counts <= available - number_held
    held, number_held = held[enough[held // available]], np.where(enough, number_held, 0)
    rank = _draw(keys, counts, available - number_held)
    # With held samples h_0 < h_1 < …, the sample of rank r among the others is r + (number of j with h_j − j ≤ r).
    client = np.repeat(np.arange(len(counts)), counts)
    passed = np.searchsorted(held - owners_and_positions(number_held)[1], client * available + rank, side="right")
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


@dataclass(frozen=True, eq=False)
class Partition:
    """The samples of N clients.

    rows    positions in the data, ordered by client
    starts  (N + 1,) the start of each client's rows, and the total number of rows
    """

    rows: IntArray
    starts: IntArray

    if TYPE_CHECKING:  # lists are allowed: `__post_init__` makes arrays of them

        def __init__(self, rows: ArrayLike, starts: ArrayLike) -> None: ...

    def __post_init__(self) -> None:
        positions = numbers_below("rows", self.rows, 2**62)
        offsets = numbers_below("starts", self.starts, len(positions) + 1)
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
        """The number of samples of each client."""
        return np.diff(self.starts)

    def rows_of(self, client: int) -> IntArray:
        """The rows of one client."""
        if not 0 <= client < len(self):
            raise InputError(f"client is {client}; it must be from 0 to {len(self) - 1}.")
        return self.rows[self.starts[client] : self.starts[client + 1]]

    def weights(self) -> FloatArray:
        """p_i: each client's share of all samples."""
        return np.asarray(self.sizes / len(self.rows))


@dataclass(frozen=True, eq=False)
class Federated:
    """The setting of training runs; the clients' behaviour, labels and the seed are passed to `train`.

    `replace` keeps the weights, also with a different partition; `of_others` does not.

    weight         p_i, by default each client's share of all samples
    participation  q_i, by default 1
    rule           what the server does with reports, by default the mean of all
    merged         how many clients each one stands for, by default 1; in private training each of these adds noise
    """

    model: Model
    data: LabeledSamples
    partition: Partition
    training: Training
    _: KW_ONLY
    weight: FloatArray = None  # type: ignore[assignment]
    participation: FloatArray = 1.0  # type: ignore[assignment]
    merged: FloatArray = 1.0  # type: ignore[assignment]
    rule: ReportRule = field(default_factory=ReportRule)

    if TYPE_CHECKING:  # numbers and lists are allowed: `__post_init__` makes arrays of them

        def __init__(
            self,
            model: Model,
            data: LabeledSamples,
            partition: Partition,
            training: Training,
            *,
            weight: ArrayLike | None = None,
            participation: ArrayLike = 1.0,
            merged: ArrayLike = 1.0,
            rule: ReportRule = ...,
        ) -> None: ...

    def __post_init__(self) -> None:
        rows, count = self.partition.rows, len(self.partition)
        if len(rows) and int(rows.max()) >= len(self.data):
            raise InputError(
                f"the partition contains sample {int(rows.max())}; the data have {len(self.data)} samples."
            )
        shares: ArrayLike | None = self.weight
        weight = client_array(
            "weight", self.partition.weights() if shares is None else shares, count, _label, positive=True
        )
        q = client_array("participation", self.participation, count, _label, positive=True, at_most=1.0)
        merged = client_array("merged", self.merged, count, _label, positive=True)
        for name, array in (("weight", weight), ("participation", q), ("merged", merged)):
            object.__setattr__(self, name, array)
        if self.training.momentum and is_own(self.rule.aggregation):
            raise InputError(
                f"momentum is {self.training.momentum:g} and reports are combined by a custom strategy, which keeps "
                "its own; momentum must be 0."
            )

    def of_others(
        self, partition: Partition, *, weight: ArrayLike | None = None, participation: ArrayLike = 1.0
    ) -> Federated:
        """The same training and data with other clients, none of them merged."""
        return Federated(
            self.model,
            self.data,
            partition,
            self.training,
            weight=weight,
            participation=participation,
            rule=self.rule,
        )

    def samples_of(self, client: int) -> slice:
        """The positions of a client's samples among all clients' samples."""
        return slice(int(self.partition.starts[client]), int(self.partition.starts[client + 1]))

    def true_labels(self) -> Labels:
        """The correct labels of all clients' samples, ordered by client."""
        return self.data.labels[self.partition.rows]


def _label(position: int) -> str:
    return f"client {position}"
