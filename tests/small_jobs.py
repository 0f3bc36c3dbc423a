"""Jobs on data that are done in a second or two: four clients, or ten; small digits."""

SMALL_JOB = """
[data]
source = "digits"
pilot_samples = 600
test_samples = 400

[model]
kind = "softmax"

[training]
rounds = 30

[server]
loss_value = 4000.0
test_samples = 2000

[contract]
kind = "lceme"

[clients]
name = ["Ada", "Ben", "Cleo", "Dora"]
dataset_size = [120, 120, 150, 90]
labeling_cost = [120, 120, 150, 90]
sample_cost = 0.05
behaviour = ["truthful", "free rider", "truthful", "small batch"]
"""

TEN_CLIENTS = """
[data]
source = "digits"
pilot_samples = 600
test_samples = 400

[model]
kind = "softmax"

[training]
rounds = 15

[server]
loss_value = 8000.0
test_samples = 2000

[contract]
kind = "lceme"

[clients]
dataset_size = [60, 70, 80, 60, 70, 80, 60, 70, 80, 90]
labeling_cost = 30
sample_cost = 0.05
"""


UNMASKED = "\n[privacy]\nsecure_aggregation = false\n"  # so that single reports can be looked at


def small_job_file(folder, old="", new=""):
    """The job as a file, with reports that the server sees one by one, and something in it changed."""
    assert old in SMALL_JOB
    path = folder / "job.toml"
    path.write_text((SMALL_JOB.replace(old, new) if old else SMALL_JOB) + UNMASKED)
    return path


def ten_client_job_file(folder, more=""):
    """The job of ten clients as a file, with more fields of the clients."""
    path = folder / "job.toml"
    path.write_text(f"{TEN_CLIENTS}{more}\n")
    return path
