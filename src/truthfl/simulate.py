"""Public names for research: jobs, training and studies in Python, without a network.

A name's module is imported when you first use the name.

    read_job, plan, run, verify     read a job file; compute its offers; run the job in one process; does lying pay?
    Behaviour, BEHAVIOURS, …        how clients really work; add one with `register_behaviour`
    Federated, Profile, train, …    many trainings in one call; `train_plainly` is the simple reference loop
    Task, Tables, Texts, …          what is learned: how samples are read and turned into numbers; base of custom tasks
    small_digits, …                 data sets; *_partition: which client holds which samples
    train_alone, solo_losses, …     models that clients train alone, and their test
    SoftmaxRegression, …            models; `from_torch`, `from_jax`, `from_sklearn` adapt a module or a function
    calibrate, pilot_runs, …        the server's measurements on its own data, before it makes offers
    open_samples, labels_of, …      a participant's samples on disk and their manual labels
    paper_example, …                the paper's errors and claims, computed
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # for type checkers: the same names as in _TARGETS
    from truthfl.contracts.lceme.pilot import calibrate
    from truthfl.federation.simulated.in_process import run_job as run
    from truthfl.job import plan_job as plan
    from truthfl.job import read_job
    from truthfl.learning.data.datasets import bundled_mnist, images_from_npz, mnist_from_folder, small_digits
    from truthfl.learning.data.partition import (
        Federated,
        Partition,
        dirichlet_partition,
        iid_partition,
        paper_partition,
    )
    from truthfl.learning.data.samples import LabeledImages, LabeledSamples, LabelSets
    from truthfl.learning.models.adapters import from_jax, from_sklearn, from_torch
    from truthfl.learning.models.cnn import ConvolutionalNetwork
    from truthfl.learning.models.softmax import SoftmaxRegression
    from truthfl.learning.people.behaviour import Behaviour, Echo, Garbage, LastBit, Unlabeled, from_strategy
    from truthfl.learning.people.behaviours import BEHAVIOURS, behaviour
    from truthfl.learning.people.behaviours import register as register_behaviour
    from truthfl.learning.people.labels import assigned_labels
    from truthfl.learning.people.profile import Profile
    from truthfl.learning.pilot.constants import measure_constants
    from truthfl.learning.pilot.runs import PilotDesign, pilot_runs
    from truthfl.learning.pilot.step_size import effect_of_scaled_reports, find_step_size
    from truthfl.learning.solo import Recipe, solo_losses, train_all_alone, train_alone
    from truthfl.learning.tasks.tables import Tables
    from truthfl.learning.tasks.task import ReadSamples, Task
    from truthfl.learning.tasks.texts import Texts
    from truthfl.learning.training.plain import train_plainly
    from truthfl.learning.training.train import train
    from truthfl.samples.handmade_labels import labels_of
    from truthfl.samples.label_store import Decision, LabelStore
    from truthfl.samples.pixels import load_pictures
    from truthfl.samples.sources import open_samples
    from truthfl.studies.reproduce.errata import biased_descent
    from truthfl.studies.reproduce.errata import example as paper_example
    from truthfl.studies.reproduce.text_claims import computed as computed_claims
    from truthfl.studies.verify.job_verification import verify_job as verify

__all__ = [
    "BEHAVIOURS",
    "Behaviour",
    "ConvolutionalNetwork",
    "Decision",
    "Echo",
    "Federated",
    "Garbage",
    "LabelSets",
    "LabelStore",
    "LabeledImages",
    "LabeledSamples",
    "LastBit",
    "Partition",
    "PilotDesign",
    "Profile",
    "ReadSamples",
    "Recipe",
    "SoftmaxRegression",
    "Tables",
    "Task",
    "Texts",
    "Unlabeled",
    "assigned_labels",
    "behaviour",
    "biased_descent",
    "bundled_mnist",
    "calibrate",
    "computed_claims",
    "dirichlet_partition",
    "effect_of_scaled_reports",
    "find_step_size",
    "from_jax",
    "from_sklearn",
    "from_strategy",
    "from_torch",
    "iid_partition",
    "images_from_npz",
    "labels_of",
    "load_pictures",
    "measure_constants",
    "mnist_from_folder",
    "open_samples",
    "paper_example",
    "paper_partition",
    "pilot_runs",
    "plan",
    "read_job",
    "register_behaviour",
    "run",
    "small_digits",
    "solo_losses",
    "train",
    "train_all_alone",
    "train_alone",
    "train_plainly",
    "verify",
]

_TARGETS = {  # public name: module and attribute
    "BEHAVIOURS": "learning.people.behaviours:BEHAVIOURS",
    "Behaviour": "learning.people.behaviour:Behaviour",
    "ConvolutionalNetwork": "learning.models.cnn:ConvolutionalNetwork",
    "Decision": "samples.label_store:Decision",
    "Echo": "learning.people.behaviour:Echo",
    "Federated": "learning.data.partition:Federated",
    "Garbage": "learning.people.behaviour:Garbage",
    "LabelSets": "learning.data.samples:LabelSets",
    "LabelStore": "samples.label_store:LabelStore",
    "LabeledImages": "learning.data.samples:LabeledImages",
    "LabeledSamples": "learning.data.samples:LabeledSamples",
    "LastBit": "learning.people.behaviour:LastBit",
    "Partition": "learning.data.partition:Partition",
    "PilotDesign": "learning.pilot.runs:PilotDesign",
    "Profile": "learning.people.profile:Profile",
    "ReadSamples": "learning.tasks.task:ReadSamples",
    "Recipe": "learning.solo:Recipe",
    "SoftmaxRegression": "learning.models.softmax:SoftmaxRegression",
    "Tables": "learning.tasks.tables:Tables",
    "Task": "learning.tasks.task:Task",
    "Texts": "learning.tasks.texts:Texts",
    "Unlabeled": "learning.people.behaviour:Unlabeled",
    "assigned_labels": "learning.people.labels:assigned_labels",
    "behaviour": "learning.people.behaviours:behaviour",
    "biased_descent": "studies.reproduce.errata:biased_descent",
    "bundled_mnist": "learning.data.datasets:bundled_mnist",
    "calibrate": "contracts.lceme.pilot:calibrate",
    "computed_claims": "studies.reproduce.text_claims:computed",
    "dirichlet_partition": "learning.data.partition:dirichlet_partition",
    "effect_of_scaled_reports": "learning.pilot.step_size:effect_of_scaled_reports",
    "find_step_size": "learning.pilot.step_size:find_step_size",
    "from_jax": "learning.models.adapters:from_jax",
    "from_sklearn": "learning.models.adapters:from_sklearn",
    "from_strategy": "learning.people.behaviour:from_strategy",
    "from_torch": "learning.models.adapters:from_torch",
    "iid_partition": "learning.data.partition:iid_partition",
    "images_from_npz": "learning.data.datasets:images_from_npz",
    "labels_of": "samples.handmade_labels:labels_of",
    "load_pictures": "samples.pixels:load_pictures",
    "measure_constants": "learning.pilot.constants:measure_constants",
    "mnist_from_folder": "learning.data.datasets:mnist_from_folder",
    "open_samples": "samples.sources:open_samples",
    "paper_example": "studies.reproduce.errata:example",
    "paper_partition": "learning.data.partition:paper_partition",
    "pilot_runs": "learning.pilot.runs:pilot_runs",
    "plan": "job:plan_job",
    "read_job": "job:read_job",
    "register_behaviour": "learning.people.behaviours:register",
    "run": "federation.simulated.in_process:run_job",
    "small_digits": "learning.data.datasets:small_digits",
    "solo_losses": "learning.solo:solo_losses",
    "train": "learning.training.train:train",
    "train_all_alone": "learning.solo:train_all_alone",
    "train_alone": "learning.solo:train_alone",
    "train_plainly": "learning.training.plain:train_plainly",
    "verify": "studies.verify.job_verification:verify_job",
}


def __getattr__(name: str) -> object:
    if name not in _TARGETS:
        raise AttributeError(f"module 'truthfl.simulate' has no attribute {name!r}")
    module, _, attribute = _TARGETS[name].partition(":")
    return getattr(import_module(f"truthfl.{module}"), attribute)


def __dir__() -> list[str]:
    return sorted({*globals(), *_TARGETS})
