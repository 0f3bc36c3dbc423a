"""`truthfl share`: write each client's share of a job's data to a file, to try a federation.

Imports, when called, `federation.simulated`, `files`, `job`, `learning` and `studies`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from truthfl.errors import InputError


def share(
    job_file: Annotated[Path, typer.Argument(metavar="JOB.toml", help="A job on data.")],
    out: Annotated[Path, typer.Option(help="Folder for NAME.npz, one file per client.")] = Path("truthfl-shares"),
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
    from truthfl.files import write_file
    from truthfl.job import DataJob, read_job
    from truthfl.learning.array_files import npz_bytes
    from truthfl.learning.profile import Profile
    from truthfl.studies.reproduce.publication import require_writable

    job = read_job(job_file)
    if not isinstance(job, DataJob):
        raise InputError(f"{job_file} has no [data]; there is nothing to share.")
    require_writable(out)
    federated = in_labeling_order(job, job.simulated_federation().federated)
    all_labels = Profile(job.clients.behaviour, 1).labels(federated, seed)
    for client, name in enumerate(job.clients.name):
        if "/" in name or name in (".", ".."):
            raise InputError(f"{name!r} cannot be the name of a file; give the client another.")
        arrays: dict[str, Any] = {"images": federated.data.features[federated.partition.rows_of(client)]}
        if labels:
            arrays["labels"] = all_labels[federated.samples_of(client)]
        path = out / f"{name}.npz"
        write_file(path, npz_bytes(arrays, compressed=True))
        print(path)
