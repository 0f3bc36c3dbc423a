"""`truthfl share`: write each client's share of a job's data to a file, to try a federation."""

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

    import numpy as np

    from truthfl.federation.simulated.client_labels import in_labeling_order
    from truthfl.files import require_writable, write_file
    from truthfl.job import DataJob, read_job
    from truthfl.learning.array_files import npz_bytes
    from truthfl.learning.class_sets import joined
    from truthfl.learning.profile import Profile
    from truthfl.learning.several_labels import sets_given

    job = read_job(job_file)
    if not isinstance(job, DataJob):
        raise InputError(f"{job_file} has no [data]; there is nothing to share.")
    require_writable(out)
    federation = job.simulated_federation()
    federated = in_labeling_order(job, federation.federated)
    profile = Profile(job.clients.behaviour, 1)
    all_labels = profile.labels(federated, seed)
    sets = sets_given(federated, all_labels, profile.labeling_effort(federated.partition.sizes), seed)
    classes = federated.data.classes
    for client, name in enumerate(job.clients.name):
        if "/" in name or name in (".", ".."):
            raise InputError(f"{name!r} cannot be the name of a file; give the client another.")
        rows, own = federated.partition.rows_of(client), federated.samples_of(client)
        hers = None if sets is None else sets.take(np.arange(own.start, own.stop))
        if federation.clients_read is None or job.task.is_pictures:
            path = out / f"{name}.npz"
            her_labels = all_labels[own] if hers is None else hers.matrix(len(classes))
            arrays = {"images": federated.data.features[rows]} | ({"labels": her_labels} if labels else {})
            write_file(path, npz_bytes(arrays, compressed=True))
        else:
            path = out / f"{name}.csv"
            lists = [[label] for label in all_labels[own]] if hers is None else hers.lists()
            named = tuple(joined(classes[label] for label in one) for one in lists) if labels else None
            federation.task.write(path, replace(federation.clients_read.take(rows), labels=named))
        print(path)
