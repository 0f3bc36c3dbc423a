"""Jobs: the contents of a job file in TOML, as Python objects."""

from truthfl.job.job_file import job_of_text, read_classes, read_job, read_job_text
from truthfl.job.jobs import ConstantsJob, DataJob, plan_job
from truthfl.job.sections import ContractChoice, Participants, PrivacySettings, ServerSettings, participants

__all__ = [
    "ConstantsJob",
    "ContractChoice",
    "DataJob",
    "Participants",
    "PrivacySettings",
    "ServerSettings",
    "job_of_text",
    "participants",
    "plan_job",
    "read_classes",
    "read_job",
    "read_job_text",
]
