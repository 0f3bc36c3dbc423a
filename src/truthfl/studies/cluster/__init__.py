"""Studies on a Ray cluster: the tasks of `studies.work` computed by other machines, with the same results."""
