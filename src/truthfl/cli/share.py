"""`truthfl share`: write each client's share of a job's data to a file, to try a federation.

Imports, when called, `federation.simulated`, `files`, `job`, `learning` and `studies`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from truthfl.errors import InputError


def share(
    job_file: Annotated[Path, typer.Argument(metavar="JOB.toml", help="A job on data.")],
    out: Annotated[
        Path, typer.Option(help="Folder for one file per client: NAME.npz of pictures, NAME.csv of others.")
    ] = Path("truthfl-shares"),
    seed: Annotated[int, typer.Option(help="Of the labels that clients with a behaviour draw.")] = 0,
    labels: Annotated[
        bool, typer.Option(help="With labels, as each client's behaviour makes them, or without.")
    ] = True,
) -> None:
    """Write each client's share of a job's data into a file of her own, in the order in which samples are asked for.

    For trying a federation: real participants bring their own.

    Example: truthfl share hospital.toml --out shares
    """

    from truthfl.federation.simulated.client_labels import in_labeling_order
    from truthfl.files import require_writable, write_file
    from truthfl.job import DataJob, read_job
    from truthfl.learning.array_files import npz_bytes
    from truthfl.learning.profile import Profile

    job = read_job(job_file)
    if not isinstance(job, DataJob):
        raise InputError(f"{job_file} has no [data]; there is nothing to share.")
    require_writable(out)
    federation = job.simulated_federation()
    federated = in_labeling_order(job, federation.federated)
    all_labels = Profile(job.clients.behaviour, 1).labels(federated, seed)
    for client, name in enumerate(job.clients.name):
        if "/" in name or name in (".", ".."):
            raise InputError(f"{name!r} cannot be the name of a file; give the client another.")
        rows, her_labels = federated.partition.rows_of(client), all_labels[federated.samples_of(client)]
        if federation.clients_read is None:
            path = out / f"{name}.npz"
            arrays = {"images": federated.data.features[rows]} | ({"labels": her_labels} if labels else {})
            write_file(path, npz_bytes(arrays, compressed=True))
        else:
            path = out / f"{name}.csv"
            named = tuple(federated.data.classes[label] for label in her_labels) if labels else None
            federation.task.write(path, replace(federation.clients_read.take(rows), labels=named))
        print(path)
