"""A job as its operator writes it down, in TOML. Imports `learning` and the mechanism, whose objects it fills."""

from truthfl.job.job_file import read_job
from truthfl.job.jobs import ConstantsJob, DataJob, plan_job
from truthfl.job.participants import Participants
from truthfl.job.settings import ContractChoice, ServerSettings

__all__ = [
    "ConstantsJob",
    "ContractChoice",
    "DataJob",
    "Participants",
    "ServerSettings",
    "plan_job",
    "read_job",
]
