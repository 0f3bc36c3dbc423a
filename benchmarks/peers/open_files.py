"""How many files and sockets a process may have open."""

from __future__ import annotations

import resource

OTHER_FILES = 200  # libraries, standard streams, temporary files


def allow_open_files(sockets: int) -> None:
    """Let this process open this many sockets; exit with a sentence if the system does not allow it."""
    wanted = sockets + OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        if hard != resource.RLIM_INFINITY and hard < wanted:
            raise SystemExit(
                f"{wanted:,} open files are needed, {hard:,} allowed; raise ulimit -n, or name fewer nodes."
            )
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
