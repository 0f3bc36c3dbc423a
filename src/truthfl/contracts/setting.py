"""`Clients`, `Training`, `Constants` and `Strategies`: the setting of a job as checked arrays.

The symbols are explained in docs/mechanism.md, section 1.
"""

from __future__ import annotations

import math
import operator
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from truthfl.contracts import formulas
from truthfl.errors import InputError
from truthfl.texts import LONGEST_NAME, plain_name

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

Scalar = TypeVar("Scalar", bound=np.generic)

NUMBER_OF_NAMED_OFFENDERS = 3

# Within these limits, no formula of a contract overflows or underflows.
SMALLEST, LARGEST, LARGEST_COUNT = 1e-30, 1e30, 10**15


def number(field: str, value: object, *, positive: bool = False, at_least: float | None = None) -> float:
    """The value as a float; `InputError` unless it is a finite number within its range."""
    if isinstance(value, bool | str | bytes):
        raise InputError(f"{field} is {_short(value)}; it must be a number.")
    try:
        result = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"{field} is {_short(value)}; it must be a number.") from None
    low = SMALLEST if positive else -LARGEST if at_least is None else at_least
    if not low <= result <= LARGEST:
        raise InputError(f"{field} is {result:g}; it must be {_wanted(result, positive, at_least, None)}.")
    return result


def whole_number(field: str, value: object, *, at_least: int) -> int:
    """The value as an int; `InputError` unless it is a whole number within its range."""
    try:
        result = operator.index(value) if not isinstance(value, bool) else None  # type: ignore[arg-type]
    except TypeError:
        result = None
    if result is None:
        raise InputError(f"{field} is {_short(value)}; it must be a whole number.")
    if result < at_least:
        raise InputError(f"{field} is {_short(result)}; it must be at least {at_least}.")
    if result > LARGEST_COUNT:
        raise InputError(f"{field} is {_short(result)}; it must be at most {LARGEST_COUNT:g}.")
    return result


def client_array(
    field: str,
    value: ArrayLike,
    count: int,
    label: Callable[[int], str],
    *,
    positive: bool = False,
    at_least: float | None = None,
    at_most: float | None = None,
) -> FloatArray:
    """A read-only array with one finite number per client; a single number stands for every client."""
    array = _as_floats(field, value)
    if array.shape not in ((), (count,)):
        raise InputError(f"{field} has shape {array.shape}; it must be one number, or {count} numbers, one per client.")
    low = SMALLEST if positive else -LARGEST if at_least is None else at_least
    high = LARGEST if at_most is None else at_most
    if not is_within(array, low, high):
        bad = ~((array >= low) & (array <= high))
        first = float(array[np.argmax(bad)] if array.ndim else array)
        _refuse(field, array, bad, _wanted(first, positive, at_least, at_most), label)
    return _read_only(array, count)


def client_whole_numbers(
    field: str, value: ArrayLike, count: int, label: Callable[[int], str], *, at_least: int
) -> IntArray:
    """A read-only array with one whole number per client; a single number stands for every client."""
    array = np.asarray(value) if isinstance(value, np.ndarray | np.generic | int) else None
    is_whole = array is not None and array.dtype.kind in "iu" and array.dtype != np.uint64 and array.size > 0
    whole = array if is_whole and array is not None else _as_floats(field, value)
    if whole.shape not in ((), (count,)):
        raise InputError(f"{field} has shape {whole.shape}; it must be one number, or {count} numbers, one per client.")
    if not is_within(whole, at_least, LARGEST_COUNT):
        bad = ~((whole >= at_least) & (whole <= LARGEST_COUNT))
        above = not whole.max() <= LARGEST_COUNT
        _refuse(
            field, whole, bad, f"a whole number, at least {at_least}" + above * f" and at most {LARGEST_COUNT:g}", label
        )
    if not is_whole and (whole != np.floor(whole)).any():
        _refuse(field, whole, whole != np.floor(whole), "a whole number", label)
    return _read_only(whole.astype(np.int64, copy=False), count)


def client_count(field: str, value: ArrayLike) -> int:
    """How many clients there are, from the field that must have one number for each."""
    array = _as_floats(field, value)
    if array.ndim != 1:
        raise InputError(f"{field} has shape {array.shape}; it must be a list with one number per client.")
    return len(array)


def names(value: Sequence[str] | None, count: int) -> tuple[str, ...] | None:
    """One distinct name per client, or none at all."""
    if value is None:
        return None
    if isinstance(value, str) or not isinstance(value, Sequence) or not all(isinstance(n, str) for n in value):
        raise InputError(f"name is {_short(value)}; it must be a list of {count} names.")
    result = tuple(value)
    if len(result) != count:
        raise InputError(f"name has {len(result)} entries; it must have {count}, one per client.")
    if not "".join(result).isprintable() or not all(map(str.strip, result)) or max(map(len, result)) > LONGEST_NAME:
        for one in result:
            plain_name("a name", one)
    if len(set(result)) != count:
        twice = Counter(result).most_common(1)[0][0]
        raise InputError(f"name {twice!r} is given to more than one client; names must be distinct.")
    return result


def list_clients(positions: Sequence[int], describe: Callable[[int], str]) -> str:
    """A few of them by name, and the number of the others."""
    shown = [describe(position) for position in positions[:NUMBER_OF_NAMED_OFFENDERS]]
    more = len(positions) - len(shown)
    return "; ".join(shown) + (f"; and {more} more" if more else "")


def is_within(array: NDArray[np.generic], low: float, high: float) -> bool:
    """Whether all numbers are from `low` to `high`; NaN is not."""
    return not array.size or (bool(array.min() >= low) and bool(array.max() <= high))


def inner(first: FloatArray, second: FloatArray | IntArray) -> float:
    """Σ first_i second_i, the same on every machine and for any number of threads (BLAS does not promise that)."""
    return float(np.multiply(first, second).sum())


def rounded_down(value: float, digits: int = 6) -> float:
    """A positive value rounded down to this number of significant digits."""
    scale = 10.0 ** (digits - 1 - math.floor(math.log10(value)))
    return math.floor(value * scale * (1.0 + 1e-13)) / scale


def rounded_up(value: float, digits: int = 8) -> float:
    """A positive value rounded up to this number of significant digits."""
    scale = 10.0 ** (digits - 1 - math.floor(math.log10(value)))
    return math.ceil(value * scale * (1.0 - 1e-13)) / scale


def _as_floats(field: str, value: ArrayLike) -> FloatArray:
    try:
        raw = np.asarray(value)
        if raw.dtype.kind not in "iuf" and raw.size:
            raise InputError(f"{field} is {_short(value)}; it must be one number or one number per client.")
        array = np.asarray(raw, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"{field} is {_short(value)}; it must be one number or one number per client.") from None
    if array.size == 0:
        raise InputError(f"{field} is empty; there must be at least one client.")
    return array


def _short(value: object) -> str:
    text = repr(value) if not isinstance(value, int) or abs(value) < 10**20 else f"a number of {len(hex(value))} digits"
    return text if len(text) <= 60 else text[:57] + "..."


def _wanted(value: float, positive: bool, at_least: float | None, at_most: float | None) -> str:
    if np.isfinite(value) and (value > LARGEST or (positive and 0 < value < SMALLEST)):
        low = SMALLEST if positive else -LARGEST if at_least is None else at_least
        return f"a number from {low:g} to {LARGEST:g}"
    if at_most is not None:
        return f"a number {'above 0' if positive else f'from {at_least:g}'} up to {at_most:g}"
    if positive:
        return "a positive finite number"
    return "a finite number" if at_least is None else f"a finite number, at least {at_least:g}"


def _refuse(
    field: str, array: NDArray[np.generic], bad: NDArray[np.bool_], wanted: str, label: Callable[[int], str]
) -> None:
    if array.ndim == 0:
        raise InputError(f"{field} is {array.item():g} for every client; it must be {wanted}.")
    positions = np.flatnonzero(bad)
    first = int(positions[0])
    others = f" ({len(positions) - 1} more clients likewise)" if len(positions) > 1 else ""
    raise InputError(f"{field} of {label(first)} is {array[first].item():g}; it must be {wanted}{others}.")


def _read_only(array: NDArray[Scalar], count: int) -> NDArray[Scalar]:
    view = np.broadcast_to(array, (count,)).view()
    view.flags.writeable = False
    return view


WEIGHT_SUM_TOLERANCE = 1e-6


@dataclass(frozen=True, eq=False, kw_only=True)
class Clients:
    """All N clients, one array per field. A single number applies to every client (except `weight`).

    Arrays are not copied and must not be changed while this object is in use. A contract has its own copies.

    weight             p_i  share of client i in the aggregate, above 0, summing to 1
    gradient_variance  σ_i² variance of one sample's gradient
    sample_cost        c_p  the client's cost of one sample in one round's gradient
    labeling_cost      c_l  the client's cost of labeling their data set once
    dataset_size       n_i  number of the client's samples
    heterogeneity      d_i  F_i(w*) − F_i(w_i*), how far the client's own optimum is from the common one
    participation      q_i  probability that the client participates in a round
    name               names in messages; "client 0", "client 1", … if not given
    """

    weight: FloatArray
    gradient_variance: FloatArray
    sample_cost: FloatArray
    labeling_cost: FloatArray
    dataset_size: IntArray
    heterogeneity: FloatArray = 0.0  # type: ignore[assignment]
    participation: FloatArray = 1.0  # type: ignore[assignment]
    name: tuple[str, ...] | None = None

    if TYPE_CHECKING:  # numbers and lists are allowed: `__post_init__` makes arrays of them

        def __init__(
            self,
            *,
            weight: ArrayLike,
            gradient_variance: ArrayLike,
            sample_cost: ArrayLike,
            labeling_cost: ArrayLike,
            dataset_size: ArrayLike,
            heterogeneity: ArrayLike = 0.0,
            participation: ArrayLike = 1.0,
            name: Sequence[str] | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        count = client_count("weight", self.weight)
        object.__setattr__(self, "name", names(self.name, count))
        for field in ("weight", "gradient_variance", "sample_cost", "labeling_cost"):
            array = client_array(field, getattr(self, field), count, self.label, positive=True)
            object.__setattr__(self, field, array)
        sizes = client_whole_numbers("dataset_size", self.dataset_size, count, self.label, at_least=1)
        distance = client_array("heterogeneity", self.heterogeneity, count, self.label, at_least=0.0)
        q = client_array("participation", self.participation, count, self.label, positive=True, at_most=1.0)
        for field, checked in (("dataset_size", sizes), ("heterogeneity", distance), ("participation", q)):
            object.__setattr__(self, field, checked)
        total = float(self.weight.sum())
        if abs(total - 1.0) > WEIGHT_SUM_TOLERANCE:
            raise InputError(f"weight sums to {total:g} over {count} clients; it must sum to 1.")

    def __len__(self) -> int:
        return len(self.weight)

    def label(self, position: int) -> str:
        """The name of the client at this position in messages."""
        return f"client {position}" if self.name is None else f"client {position} ({self.name[position]})"

    def without(self, positions: Iterable[int]) -> Clients:
        """The same federation with some clients left out and the weights of the rest scaled to sum to 1.

        The loss model depends on the weights and must be recomputed for the remaining clients.
        """
        stay = np.ones(len(self), dtype=bool)
        for position in positions:
            if isinstance(position, bool | np.bool_) or not 0 <= position < len(self):
                raise InputError(f"client {position} cannot be left out; clients are numbered 0 to {len(self) - 1}.")
            stay[position] = False
        if not stay.any():
            raise InputError("leaving out every client leaves nobody; at least one client must stay.")
        kept = {one.name: getattr(self, one.name)[stay] for one in fields(self) if one.name != "name"}
        kept["weight"] = kept["weight"] / kept["weight"].sum()
        stays = None if self.name is None else tuple(name for name, its in zip(self.name, stay, strict=True) if its)
        return replace(self, **kept, name=stays)


@dataclass(frozen=True)
class Training:
    """Training parameters: T `rounds`, H `local_steps` in each, step size η, and the server's `momentum`.

    A round leads to w_t + Δ_t + momentum · (w_t − w_{t−1}); Δ_t is the sum of the weighted reports, and w_{−1} is w_0.

    There may be 0 rounds where training starts from solo models. LCEME's formulas refuse that (`require_rounds`).
    """

    rounds: int
    local_steps: int = 1
    step_size: float = 0.05
    momentum: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "rounds", whole_number("rounds", self.rounds, at_least=0))
        object.__setattr__(self, "local_steps", whole_number("local_steps", self.local_steps, at_least=1))
        object.__setattr__(self, "step_size", number("step_size", self.step_size, positive=True))
        object.__setattr__(self, "momentum", number("momentum", self.momentum, at_least=0.0))
        if self.momentum >= 1.0:
            raise InputError(f"momentum is {self.momentum:g}; it must be below 1.")

    @property
    def total_steps(self) -> int:
        """T·H."""
        return self.rounds * self.local_steps


def require_rounds(training: Training, field: str = "rounds") -> None:
    """Raise `InputError` if there are no rounds."""
    whole_number(field, training.rounds, at_least=1)


@dataclass(frozen=True, kw_only=True)
class Constants:
    """Constants of the loss functions.

    smoothness        L   every F_i is L-smooth
    strong_convexity  μ   every F_i is μ-strongly convex, μ ≤ L
    label_shift       β   bound on E‖∇f(w, ξ) − ∇f(w, ξ')‖², where ξ' is ξ with a random label
    gradient_bound    G²  bound on E‖∇F_i(w_t)‖² (the square itself)
    initial_distance  R²  E‖w_0 − w*‖² (the square itself)
    optimal_loss      F̂*  an estimate of F(w*) from above
    """

    smoothness: float
    strong_convexity: float
    label_shift: float
    gradient_bound: float
    initial_distance: float
    optimal_loss: float = 0.0

    def __post_init__(self) -> None:
        for field in ("smoothness", "strong_convexity", "label_shift"):
            object.__setattr__(self, field, number(field, getattr(self, field), positive=True))
        for field in ("gradient_bound", "initial_distance"):
            object.__setattr__(self, field, number(field, getattr(self, field), at_least=0.0))
        object.__setattr__(self, "optimal_loss", number("optimal_loss", self.optimal_loss))
        if self.strong_convexity > self.smoothness:
            raise InputError(
                f"strong_convexity is {self.strong_convexity:g}, above smoothness {self.smoothness:g}; "
                "no function is more convex than it is smooth."
            )


def batch_price(clients: Clients, training: Training) -> FloatArray:
    """T q_i c_p: client i's expected cost of one more sample in every batch of the job (section 2c).

    c_p is the cost of one sample in one *round*, whatever H is, as in the paper.
    """
    price: FloatArray = formulas.batch_price(training.rounds, clients.participation, clients.sample_cost)
    return price


@dataclass(frozen=True, init=False, eq=False)
class Strategies:
    """Every client's real behaviour; arrays of shape (N,), or (…, N) for many profiles at once.

    labeling_effort     e_i  1: correct labels, 0: labels drawn at random
    batch_size          D_i  samples in each local step's batch
    report_scale        γ_i  the client sends w_{t−1} + γ_i (w_i − w_{t−1})
    claimed_batch_size       the batch size that the client claims; by default the real one
    """

    labeling_effort: FloatArray
    batch_size: FloatArray
    report_scale: FloatArray
    claimed_batch_size: FloatArray

    def __init__(
        self,
        labeling_effort: ArrayLike,
        batch_size: ArrayLike,
        report_scale: ArrayLike,
        claimed_batch_size: ArrayLike | None = None,
    ) -> None:
        claimed = batch_size if claimed_batch_size is None else claimed_batch_size
        try:
            arrays = np.broadcast_arrays(
                *(np.asarray(a, dtype=float) for a in (labeling_effort, batch_size, report_scale, claimed))
            )
        except ValueError:
            raise InputError("the parts of Strategies differ in shape; each must have one number per client.") from None
        effort, batch, scale, claim = arrays
        for field, bad, wanted in (
            ("labeling_effort", ~((effort >= 0) & (effort <= 1)), "a number from 0 to 1"),
            ("batch_size", ~((batch > 0) & np.isfinite(batch)), "a positive finite number"),
            ("report_scale", ~((scale >= 0) & np.isfinite(scale)), "a finite number, at least 0"),
            ("claimed_batch_size", ~((claim >= 0) & np.isfinite(claim)), "a finite number, at least 0"),
        ):
            if bad.any():
                where = np.argwhere(np.atleast_1d(bad))[0]
                value = np.atleast_1d(dict(zip(self.__dataclass_fields__, arrays, strict=True))[field])[tuple(where)]
                raise InputError(f"{field} of client {where[-1]} is {value:g}; it must be {wanted}.")
        for field, array in zip(self.__dataclass_fields__, arrays, strict=True):
            object.__setattr__(self, field, array)

    @classmethod
    def truthful(cls, batch_size: ArrayLike) -> Strategies:
        """All clients label, use the assigned batch sizes and report what they computed."""
        return cls(1.0, batch_size, 1.0)
