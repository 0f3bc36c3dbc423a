"""The two apps that Flower starts: the operator's and the participants'."""

from pathlib import Path

from truthfl.flower import client_app, server_app

JOB = Path(__file__).with_name("job.toml")
server = server_app(JOB)
client = client_app(str(JOB))  # of which it reads [task] alone
