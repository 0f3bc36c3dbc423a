"""Small jobs, planned in seconds."""

from __future__ import annotations

import json
from collections.abc import Sequence

SAMPLES = 60


def job_text(names: Sequence[str], *, rounds: int, server: str = "", rest: str = "", label_cost: float = 1.0) -> str:
    """A job on small digits with these clients; `server` adds lines to [server], `rest` adds sections."""
    return f"""
[data]
source = "digits"
pilot_samples = 600
test_samples = 400

[model]
kind = "softmax"

[training]
rounds = {rounds}
step_size = 0.5

[server]
loss_value = 20000.0
test_samples = 2000
answer_seconds = 60
audition_seconds = 120
{server}

{rest}

[clients]
name = {json.dumps(list(names))}
dataset_size = {SAMPLES}
label_cost = {label_cost}
sample_cost = 0.01
"""


def mnist_job_text(
    names: Sequence[str],
    *,
    rounds: int,
    source: str = "mnist",
    pilot_samples: int = 2000,
    test_samples: int = 1000,
    server: str = "",
    rest: str = "",
) -> str:
    """A job like the built-in one, with tuned steps: the sums of its reports are short at the end."""
    return f"""
[data]
source = "{source}"
pilot_samples = {pilot_samples}
test_samples = {test_samples}

[model]
kind = "softmax"

[training]
rounds = {rounds}

[server]
loss_value = 50000.0
test_samples = 10000
{server}

{rest}

[clients]
name = {json.dumps(list(names))}
dataset_size = 200
label_cost = 1.0
sample_cost = 0.0006
"""
