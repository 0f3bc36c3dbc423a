"""Measurements on the operator's own data before a job is planned."""
