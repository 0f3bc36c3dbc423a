"""Run a job as Flower processes: certificates, servers, node registration."""
