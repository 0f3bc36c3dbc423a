"""The operator's page and metrics of one job."""
