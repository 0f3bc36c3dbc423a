"""Jobs, training and studies in Python, without a network: what researchers need. Imports every room but `page`.

Public names are loaded when they are asked for.

    read_job, plan, run, verify     a job file: what it would ask and pay, a whole job in process, does lying pay
    Behaviour, BEHAVIOURS, …        what a client really does; one's own by `register_behaviour`
    Federated, Profile, train, …    many trainings at once, and the plain loop they are held to
    small_digits, …                 data sets; *_partition: who holds which samples
    SoftmaxRegression, …            models; `from_torch` and `from_jax` make one of a module or a function
    calibrate, pilot_runs, …        what a server measures on its own data before it announces anything
    open_samples, labels_of, …      a participant's samples on disk and the labels she made by hand
    paper_example, …                the paper's errors and claims, computed
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    pass

_WHERE = {
    "BEHAVIOURS": "learning.behaviours:BEHAVIOURS",
    "Behaviour": "learning.behaviour:Behaviour",
    "ConvolutionalNetwork": "learning.cnn:ConvolutionalNetwork",
    "Decision": "samples.label_store:Decision",
    "Federated": "learning.federated:Federated",
    "LabelStore": "samples.label_store:LabelStore",
    "LabeledImages": "learning.images:LabeledImages",
    "Partition": "learning.partition:Partition",
    "PilotDesign": "learning.pilot_design:PilotDesign",
    "Profile": "learning.profile:Profile",
    "SoftmaxRegression": "learning.softmax:SoftmaxRegression",
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
    "from_strategy": "learning.behaviour:from_strategy",
    "from_torch": "learning.adapters:from_torch",
    "iid_partition": "learning.partition:iid_partition",
    "images_from_npz": "learning.datasets:images_from_npz",
    "labels_of": "samples.handmade_labels:labels_of",
    "load_pictures": "samples.pixels:load",
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
    "train": "learning.training:train",
    "train_plainly": "learning.plain_training:train_plainly",
    "verify": "studies.verify.job_verification:verify_job",
}

__all__ = sorted(_WHERE)


def __getattr__(name: str) -> object:
    if name not in _WHERE:
        raise AttributeError(f"module 'truthfl.simulate' has no attribute {name!r}")
    module, _, attribute = _WHERE[name].partition(":")
    return getattr(import_module(f"truthfl.{module}"), attribute)


def __dir__() -> list[str]:
    return sorted({*globals(), *_WHERE})
