"""Sections of a job file: [clients], [task], [privacy], [server] and [contract].

They are checked when a job is read, before anything is trained or written. The limits are for jobs with data: planning
any other job takes the same time for any number of rounds.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from truthfl.contracts.contract import Contract, CostDistribution, Prices, require_multiple
from truthfl.contracts.lceme.private_costs import VirtualCost
from truthfl.contracts.loss_model import paper_bound, sound_bound
from truthfl.contracts.payoff import WarnFactors
from truthfl.contracts.registry import find_contract, register_named, source_of
from truthfl.contracts.setting import FloatArray, client_array, client_whole_numbers, names, number, whole_number
from truthfl.custom_code import in_folder, without_folder
from truthfl.errors import InputError
from truthfl.instructions import SECONDS_A_LABEL
from truthfl.learning.people.behaviour import Behaviour
from truthfl.learning.people.behaviours import behaviour as known_behaviour
from truthfl.learning.tasks.task import Task
from truthfl.learning.tasks.task_choice import PICTURES, TaskChoice, task_choice
from truthfl.learning.training.aggregation import MEAN, is_own, require_aggregation
from truthfl.texts import LONGEST_PAYMENT_NOTE, is_plain, plain

if TYPE_CHECKING:
    from truthfl.job.jobs import DataJob


YEAR = 366 * 86_400


@dataclass(frozen=True)
class SizeLimit:
    """The largest value of a field, and why there is a limit."""

    field: str
    largest: int
    reason: str


CLIENTS = SizeLimit("[clients] name", 10_000, "each is a node that the server asks, and has rows of the ledger")
SAMPLES = SizeLimit(
    "[clients] dataset_size", 10_000_000, "a simulation holds a copy of all clients' samples, 8 GB of MNIST pictures"
)
PILOT = SizeLimit("[data] pilot_samples", 10_000_000, "they are held in memory")
TEST_SET = SizeLimit("[data] test_samples", 10_000_000, "they are held in memory")
TEST_DRAWS = SizeLimit(
    "[server] test_samples", 10_000_000, "all draws are tested at once, in 2 GB of memory with pictures of 8×8 pixels"
)
ROUNDS = SizeLimit("[training] rounds", 100_000, "each is a row of the ledger, and a plan tries hundreds of trainings")
STEPS = SizeLimit("[training] rounds times local_steps", 1_000_000, "a plan tries hundreds of trainings")
FILTERS = SizeLimit("[model] filters", 1000, "a plan trains many such models at once, in memory")
WAITING = SizeLimit("seconds", YEAR, "nobody waits longer than a year")
NOISE = SizeLimit("[privacy] noise", 1000, "nothing is learned under more noise")
CLIP = SizeLimit("[privacy] clip", 1_000_000, "no gradient is as long")


def require_sizes(job: DataJob) -> None:
    """Raise `InputError` if a size of the job is above its limit."""
    for limit, size, value in _sizes(job):
        if value > limit.largest:
            raise InputError(f"{size} is {_number(value)}; it must be at most {limit.largest:,}: {limit.reason}.")


def _sizes(job: DataJob) -> Iterator[tuple[SizeLimit, str, float]]:
    """Each limit, with the name of the limited size in messages, and the size's value."""
    training, clients = job.training, job.clients
    yield CLIENTS, "the number of [clients]", len(clients)
    yield SAMPLES, f"{SAMPLES.field} of all clients together", sum(clients.dataset_size)
    yield PILOT, PILOT.field, job.data.pilot_samples
    yield TEST_SET, TEST_SET.field, job.data.test_samples or 0
    yield TEST_DRAWS, TEST_DRAWS.field, job.server.test_samples
    yield ROUNDS, ROUNDS.field, training.rounds
    yield STEPS, STEPS.field, training.total_steps
    yield FILTERS, FILTERS.field, job.model.filters
    for one in fields(TimeLimits):
        yield WAITING, f"[server] {one.name}", getattr(job.server, one.name)
    yield NOISE, NOISE.field, job.privacy.noise
    yield CLIP, CLIP.field, job.privacy.clip


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


@dataclass(frozen=True, eq=False)
class Participants:
    """The clients of a job on data; see `participants`, which makes and checks them.

    labeling_cost  of labeling all samples once
    stated         (not in a file) which clients state their own sample cost, in a job with a distribution of costs;
                   None for all
    """

    name: tuple[str, ...]
    dataset_size: tuple[int, ...]
    labeling_cost: FloatArray
    sample_cost: FloatArray
    participation: FloatArray
    behaviour: tuple[str | Behaviour, ...]
    stated: tuple[bool, ...] | None = None

    def label(self, position: int) -> str:
        """The name of the client at this position in messages."""
        return self.name[position]

    @property
    def label_cost(self) -> FloatArray:
        """The cost of one label."""
        return np.asarray(self.labeling_cost / np.array(self.dataset_size))

    def __len__(self) -> int:
        return len(self.name)


def participants(
    dataset_size: Any,
    sample_cost: Any,
    labeling_cost: Any = None,
    label_cost: Any = None,
    behaviour: Any = "truthful",
    name: Any = None,
    participation: Any = 1.0,
) -> Participants:
    """The clients of section [clients]. A single value applies to all clients; at least one field must be a list.

    dataset_size   number of samples
    sample_cost    cost of one sample in one round's gradient
    labeling_cost  cost of labeling all samples once
    label_cost     cost of one label; given instead of `labeling_cost`
    behaviour      the client's behaviour in simulations: a name registered in `learning.behaviours`, or (not in a
                   file) a `Behaviour`
    name           the client's name in tables and messages
    participation  q, the probability of participating in a round
    """
    if (labeling_cost is None) == (label_cost is None):
        raise InputError("either label_cost (of one label) or labeling_cost (of all samples) must be given.")
    given = (name, dataset_size, labeling_cost, label_cost, sample_cost, behaviour, participation)
    count = next((len(value) for value in given if _is_list(value)), 0)
    if count == 0:
        raise InputError("no field is a list; give a list of names, or of dataset_size, one per client.")
    all_names = names(name, count) or tuple(f"client {i}" for i in range(count))
    _require_different(all_names)
    label = all_names.__getitem__
    sizes = client_whole_numbers("dataset_size", dataset_size, count, label, at_least=1)
    if label_cost is not None:
        labeling_cost = client_array("label_cost", label_cost, count, label, positive=True) * sizes
    labeling = client_array("labeling_cost", labeling_cost, count, label, positive=True)
    computing = client_array("sample_cost", sample_cost, count, label, positive=True)
    q = client_array("participation", participation, count, label, positive=True, at_most=1.0)
    behaviours = tuple(behaviour) if _is_list(behaviour) else (behaviour,) * count
    if len(behaviours) != count:
        raise InputError(f"behaviour has {len(behaviours)} entries; it must have {count}, one per client.")
    for name_or_behaviour in behaviours:
        known_behaviour(name_or_behaviour)
    return Participants(all_names, tuple(sizes.tolist()), labeling, computing, q, behaviours)


def _require_different(given: Sequence[str]) -> None:
    """Raise `InputError` if two names look the same but differ in spaces or in the encoding of an accent."""
    first: dict[str, str] = {}
    for one in given:
        other = first.setdefault(" ".join(unicodedata.normalize("NFC", one).split()), one)
        if other is not one:
            raise InputError(f"the names {other!r} and {one!r} look the same; names must be distinct.")


def _is_list(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def task_from(values: object, folder: Path) -> TaskChoice:
    """The task that a section [task] names; pictures if it is empty. A FILE.py is read from `folder`."""
    if not isinstance(values, Mapping):
        raise InputError(f"task is {values!r}; it must be a section, [task].")
    if not values:
        return PICTURES
    if "use" not in values:
        raise InputError('[task] lacks use; it is "pictures", "tables", "texts", "FILE.py:Class" or "module:Class".')
    settings = {name: value for name, value in values.items() if name != "use"}
    try:
        choice = task_choice(values["use"], settings, folder)
        _require_settings(TaskChoice(choice.use).load(), settings)
        choice.load()
    except InputError as error:
        raise type(error)(f"[task] {error}") from None
    return choice


def _require_settings(task: Task, settings: Mapping[str, object]) -> None:
    """Raise `InputError` unless these are fields that a job file may set."""
    known = [one.name for one in fields(task) if one.name not in task.fitted]
    for name in settings:
        if name in task.fitted:
            raise InputError(f"{name} is measured on the operator's data; the fields are use, {', '.join(known)}.")
        if name not in known:
            raise InputError(f"has no field {name!r}; its fields are use, {', '.join(known)}.")


@dataclass(frozen=True)
class PrivacySettings:
    """The fields of section [privacy].

    secure_aggregation  whether reports are masked, so that the server sees only their sum. True: always; with fewer
                        than three clients, there is no job. False: never. None, the default: if there are at least
                        three clients, the server takes the mean and asks everybody in every round
    clip                the length to which training shortens each sample's gradient; 0 for no limit
    noise               the standard deviation of the noise in each step's sum of gradients, as a multiple of `clip`
    """

    secure_aggregation: bool | None = None
    clip: float = 0.0
    noise: float = 0.0

    def __post_init__(self) -> None:
        if self.secure_aggregation is not None and not isinstance(self.secure_aggregation, bool):
            raise InputError(f"secure_aggregation is {self.secure_aggregation!r}; it must be true or false.")
        number("noise", self.noise, at_least=0.0)
        if number("clip", self.clip, at_least=0.0) == 0 < self.noise:
            raise InputError(f"noise is {self.noise:g}, and clip is not given; noise is a multiple of clip.")

    def document(self) -> dict[str, Any]:
        """The fields that are not the default, as JSON values."""
        values = asdict(self)
        return {item.name: values[item.name] for item in fields(self) if values[item.name] != item.default}


FIELD = "cost_distribution"
EXAMPLE = '{name = "uniform", loc = 0.0005, scale = 0.002}'


def cost_distribution(values: object) -> CostDistribution:
    """The SciPy distribution of this name with these parameters; checks that costs can be screened by it."""
    import scipy.stats

    if not isinstance(values, Mapping) or not isinstance(values.get("name"), str):
        raise InputError(f"{FIELD} is {values!r}; it must have the name of a SciPy distribution, as {EXAMPLE}.")
    name = values["name"]
    kind = getattr(scipy.stats, name, None)
    if not isinstance(kind, scipy.stats.rv_continuous):
        raise InputError(f"{FIELD} has the name {name!r}; SciPy has no continuous distribution of that name.")
    shapes = [shape.strip() for shape in (kind.shapes or "").split(",") if shape.strip()]
    known, given = (
        [*shapes, "loc", "scale"],
        {parameter: value for parameter, value in values.items() if parameter != "name"},
    )
    for parameter, value in given.items():
        if parameter not in known:
            raise InputError(f"{FIELD} has no parameter {parameter!r}; those of {name} are {', '.join(known)}.")
        number(f"{FIELD} {parameter}", value)
    missing = [shape for shape in shapes if shape not in given]
    if missing:
        raise InputError(f"{FIELD} lacks {', '.join(missing)}; the parameters of {name} are {', '.join(known)}.")
    return _screenable(kind(**{parameter: float(value) for parameter, value in given.items()}))


def cost_range(values: Mapping[str, Any]) -> tuple[float, float]:
    """The lowest and the highest cost."""
    low, high = cost_distribution(values).support()
    return float(low), float(high)


def _screenable(distribution: CostDistribution) -> CostDistribution:
    low, high = distribution.support()
    if not low < high:  # also for NaN, which SciPy returns for parameters out of bounds
        raise InputError(f"{FIELD} has parameters for which SciPy knows no distribution; a scale is above 0.")
    try:
        VirtualCost(distribution)
    except InputError as error:
        raise InputError(f"{FIELD}: {error}") from None
    return distribution


BOUNDS = {"paper": paper_bound, "sound": sound_bound}
DEFAULT_CONTRACT = "audition"  # of jobs on data
CONSTANTS_CONTRACT = "lceme"  # of jobs without data
LONGEST_CURRENCY = 20
# Currencies of ISO 4217 that have no hundredths.
WHOLE = frozenset("BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF".split())  # noqa: SIM905
THOUSANDTHS = frozenset("BHD IQD JOD KWD LYD OMR TND".split())  # noqa: SIM905


def _is_word(text: str) -> bool:
    """Whether it is short and consists of printable characters without spaces."""
    return 0 < len(text) <= LONGEST_CURRENCY and text.isprintable() and not any(map(str.isspace, text))


def usual_minor_units(currency: str) -> int:
    """How many minor units one unit of this currency has; 1 if it is not a code of three capital letters."""
    if len(currency) != 3 or not (currency.isascii() and currency.isalpha() and currency.isupper()):
        return 1
    return 1 if currency in WHOLE else 1000 if currency in THOUSANDTHS else 100


@dataclass(frozen=True)
class TimeLimits:
    """How long clients have to enrol, to answer an offer, to label, to send the solo model, and to report."""

    enrol_seconds: float = 600.0
    answer_seconds: float = 86_400.0
    label_seconds: float = 604_800.0
    audition_seconds: float = 3600.0
    round_seconds: float = 600.0

    def __post_init__(self) -> None:
        for one in fields(TimeLimits):
            number(one.name, getattr(self, one.name), positive=True)

    def label_time_warnings(self, most_labels: int) -> list[str]:
        """The warning if a client who labels by hand has too little time for their samples."""
        needed = SECONDS_A_LABEL * most_labels
        if needed <= self.label_seconds:
            return []
        return [
            f"Beware: up to {most_labels:,} labels at {SECONDS_A_LABEL:g} seconds each take {needed:,.0f} seconds, and "
            f"label_seconds is {self.label_seconds:,.0f}: a participant who labels by hand will not finish in time."
        ]


@dataclass(frozen=True)
class MoneySettings:
    """The money of a job, and how clients get it.

    currency      name of the money
    minor_units   number of the ledger's whole units in one unit of the job's money; by default 100 for EUR and other
                  codes of ISO 4217, 1 for JPY and the like, 1000 for KWD and the like, and 1 for a currency that is not
                  such a code
    payment_note  how and when clients are paid, for clients to read: at most 300 letters, in the signed offers
    """

    currency: str = "cent"
    minor_units: int = None  # type: ignore[assignment]  # follows from the currency
    payment_note: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.currency, str) or not _is_word(self.currency):
            raise InputError(
                f"currency is {str(self.currency)[:LONGEST_CURRENCY]!a}; it must be three letters, as EUR, or a word "
                f"of at most {LONGEST_CURRENCY} letters without spaces and control characters."
            )
        if self.minor_units is None:
            object.__setattr__(self, "minor_units", usual_minor_units(self.currency))
        whole_number("minor_units", self.minor_units, at_least=1)
        if not is_plain(self.payment_note, LONGEST_PAYMENT_NOTE):
            raise InputError(
                f"payment_note is {plain(repr(self.payment_note), 60)}; it must be a text of at most "
                f"{LONGEST_PAYMENT_NOTE} letters in one line, without control characters."
            )


@dataclass(frozen=True)
class ServerSettings(TimeLimits, MoneySettings, WarnFactors, Prices):
    """The fields of section [server]: those of its four parts, and these.

    bound              of a `ConstantsJob`: the loss model to plan on, "paper" or "sound"
    fewest_samples     of a `DataJob`: the server refuses a client with fewer samples than this and than their
                       dataset_size
    most_expected_pay  of a `DataJob` whose contract has no cap: the largest expected pay, as a multiple of its cost
    aggregation        how the reports of a round are combined: "mean", "trimmed", "median", or by a Flower strategy,
                       "FILE.py:NAME"
    cost_distribution  of the contract "lceme": the distribution of private sample costs, by the name and the parameters
                       of a SciPy distribution; None if the costs of [clients] are known
    loss_variance      of a `ConstantsJob`: variance of the loss between test samples
    """

    bound: str = "paper"
    fewest_samples: int = 10
    most_expected_pay: float = 30.0
    aggregation: str = MEAN
    cost_distribution: Mapping[str, Any] | None = None
    loss_variance: float = 0.0

    def __post_init__(self) -> None:
        for part in (Prices, WarnFactors, MoneySettings, TimeLimits):
            part.__post_init__(self)
        if not isinstance(self.bound, str) or self.bound not in BOUNDS:
            raise InputError(f"bound is {self.bound!r}; it must be one of {', '.join(map(repr, BOUNDS))}.")
        whole_number("fewest_samples", self.fewest_samples, at_least=1)
        require_multiple("most_expected_pay", self.most_expected_pay)
        require_aggregation(self.aggregation)
        if self.cost_distribution is not None:
            cost_distribution(self.cost_distribution)
        number("loss_variance", self.loss_variance, at_least=0.0)

    @property
    def distribution(self) -> CostDistribution | None:
        """`cost_distribution` as the object of SciPy."""
        return None if self.cost_distribution is None else cost_distribution(self.cost_distribution)

    def document(self) -> dict[str, Any]:
        """The settings as JSON values."""
        values = asdict(self)
        if is_own(self.aggregation):
            from truthfl.learning.training.own_strategy import portable

            values["aggregation"] = portable(self.aggregation)
        return values


@dataclass(frozen=True)
class ContractChoice:
    """The contract of a job.

    kind  of a registered contract
    use   "FILE.py:Class" with an absolute path, or "module:Class": a custom one, which this registers; "" for others
    """

    kind: str = CONSTANTS_CONTRACT
    use: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.kind, str):
            raise InputError(f"kind is {self.kind!r}; it must be a text.")
        object.__setattr__(self, "kind", self.load().kind)

    def load(self) -> type[Contract]:
        """The class of this kind."""
        return register_named(self.use) if self.use else find_contract(self.kind)

    def document(self) -> dict[str, str]:
        """JSON values: the kind; of a custom contract also its name without folder and the digest of its file."""
        if not self.use:
            return {"kind": self.kind}
        return {"kind": self.kind, "use": without_folder(self.use), "source": source_of(self.use)}


def contract_named(text: str, folder: Path = Path()) -> ContractChoice:
    """The contract that a kind, "FILE.py:Class" or "module:Class" names; the FILE.py is in the folder."""
    return ContractChoice(use=in_folder(text, folder)) if ":" in text else ContractChoice(text)


def contract_from(default: str, folder: Path, kind: str | None = None, use: str | None = None) -> ContractChoice:
    """The contract of a section [contract] with these fields, in a file in this folder."""
    if use is None:
        return ContractChoice(default if kind is None else kind)
    if kind is not None:
        raise InputError("kind and use are both given; use names a class, which has a kind.")
    if not isinstance(use, str) or ":" not in use:
        raise InputError(f'use is {use!r}; it must be "FILE.py:Class" or "module:Class".')
    return contract_named(use, folder)
