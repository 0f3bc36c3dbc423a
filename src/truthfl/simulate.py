"""Public names for research: jobs, training and studies in Python, without a network.

A name's module is imported when the name is first used.

    read_job, plan, run, verify     read a job file; compute its offers; run the job in one process; does lying pay?
    Behaviour, BEHAVIOURS, …        how clients really work; add one with `register_behaviour`
    Federated, Profile, train, …    many trainings in one call; `train_plainly` is the simple reference loop
    Task, Tables, Texts, …          what is learned: how samples are read and turned into numbers; base of one's own
    small_digits, …                 data sets; *_partition: which client holds which samples
    train_alone, solo_losses, …     models that clients train alone, and their test
    SoftmaxRegression, …            models; `from_torch`, `from_jax`, `from_sklearn` adapt a module or a function
    calibrate, pilot_runs, …        the server's measurements on its own data, before it makes offers
    open_samples, labels_of, …      a participant's samples on disk and her manual labels
    paper_example, …                the paper's errors and claims, computed
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # for type checkers: the same names as in _TARGETS
    from truthfl.federation.simulated.embedded import run_job as run
    from truthfl.job import plan_job as plan
    from truthfl.job import read_job
    from truthfl.learning.adapters import from_jax, from_sklearn, from_torch
    from truthfl.learning.behaviour import Behaviour, Unlabeled, from_strategy
    from truthfl.learning.behaviours import BEHAVIOURS, behaviour
    from truthfl.learning.behaviours import register as register_behaviour
    from truthfl.learning.calibration import calibrate
    from truthfl.learning.cnn import ConvolutionalNetwork
    from truthfl.learning.constants import measure_constants
    from truthfl.learning.datasets import bundled_mnist, images_from_npz, mnist_from_folder, small_digits
    from truthfl.learning.fabricators import Echo, Garbage, LastBit
    from truthfl.learning.federated import Federated
    from truthfl.learning.images import LabeledImages
    from truthfl.learning.label_sets import LabelSets
    from truthfl.learning.labeled_samples import LabeledSamples
    from truthfl.learning.labels import assigned_labels
    from truthfl.learning.partition import Partition, dirichlet_partition, iid_partition, paper_partition
    from truthfl.learning.pilot_design import PilotDesign
    from truthfl.learning.pilot_runs import pilot_runs
    from truthfl.learning.plain_training import train_plainly
    from truthfl.learning.profile import Profile
    from truthfl.learning.recipe import Recipe
    from truthfl.learning.softmax import SoftmaxRegression
    from truthfl.learning.solo_test import solo_losses
    from truthfl.learning.solo_training import train_all_alone, train_alone
    from truthfl.learning.step_size import effect_of_scaled_reports, find_step_size
    from truthfl.learning.task import ReadSamples, Task
    from truthfl.learning.tasks.tables import Tables
    from truthfl.learning.tasks.texts import Texts
    from truthfl.learning.training import train
    from truthfl.samples.handmade_labels import labels_of
    from truthfl.samples.label_store import Decision, LabelStore
    from truthfl.samples.open_samples import open_samples
    from truthfl.samples.pixels import load_pictures
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
    "BEHAVIOURS": "learning.behaviours:BEHAVIOURS",
    "Behaviour": "learning.behaviour:Behaviour",
    "ConvolutionalNetwork": "learning.cnn:ConvolutionalNetwork",
    "Decision": "samples.label_store:Decision",
    "Echo": "learning.fabricators:Echo",
    "Federated": "learning.federated:Federated",
    "Garbage": "learning.fabricators:Garbage",
    "LabelSets": "learning.label_sets:LabelSets",
    "LabelStore": "samples.label_store:LabelStore",
    "LabeledImages": "learning.images:LabeledImages",
    "LabeledSamples": "learning.labeled_samples:LabeledSamples",
    "LastBit": "learning.fabricators:LastBit",
    "Partition": "learning.partition:Partition",
    "PilotDesign": "learning.pilot_design:PilotDesign",
    "Profile": "learning.profile:Profile",
    "ReadSamples": "learning.task:ReadSamples",
    "Recipe": "learning.recipe:Recipe",
    "SoftmaxRegression": "learning.softmax:SoftmaxRegression",
    "Tables": "learning.tasks.tables:Tables",
    "Task": "learning.task:Task",
    "Texts": "learning.tasks.texts:Texts",
    "Unlabeled": "learning.behaviour:Unlabeled",
    "assigned_labels": "learning.labels:assigned_labels",
    "behaviour": "learning.behaviours:behaviour",
    "biased_descent": "studies.reproduce.errata:biased_descent",
    "bundled_mnist": "learning.datasets:bundled_mnist",
    "calibrate": "learning.calibration:calibrate",
    "computed_claims": "studies.reproduce.text_claims:computed",
    "dirichlet_partition": "learning.partition:dirichlet_partition",
    "effect_of_scaled_reports": "learning.step_size:effect_of_scaled_reports",
    "find_step_size": "learning.step_size:find_step_size",
    "from_jax": "learning.adapters:from_jax",
    "from_sklearn": "learning.adapters:from_sklearn",
    "from_strategy": "learning.behaviour:from_strategy",
    "from_torch": "learning.adapters:from_torch",
    "iid_partition": "learning.partition:iid_partition",
    "images_from_npz": "learning.datasets:images_from_npz",
    "labels_of": "samples.handmade_labels:labels_of",
    "load_pictures": "samples.pixels:load_pictures",
    "measure_constants": "learning.constants:measure_constants",
    "mnist_from_folder": "learning.datasets:mnist_from_folder",
    "open_samples": "samples.open_samples:open_samples",
    "paper_example": "studies.reproduce.errata:example",
    "paper_partition": "learning.partition:paper_partition",
    "pilot_runs": "learning.pilot_runs:pilot_runs",
    "plan": "job:plan_job",
    "read_job": "job:read_job",
    "register_behaviour": "learning.behaviours:register",
    "run": "federation.simulated.embedded:run_job",
    "small_digits": "learning.datasets:small_digits",
    "solo_losses": "learning.solo_test:solo_losses",
    "train": "learning.training:train",
    "train_all_alone": "learning.solo_training:train_all_alone",
    "train_alone": "learning.solo_training:train_alone",
    "train_plainly": "learning.plain_training:train_plainly",
    "verify": "studies.verify.job_verification:verify_job",
}


def __getattr__(name: str) -> object:
    if name not in _TARGETS:
        raise AttributeError(f"module 'truthfl.simulate' has no attribute {name!r}")
    module, _, attribute = _TARGETS[name].partition(":")
    return getattr(import_module(f"truthfl.{module}"), attribute)


def __dir__() -> list[str]:
    return sorted({*globals(), *_TARGETS})
