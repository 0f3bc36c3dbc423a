"""Secure aggregation: the scheme, the server's side and the participant's."""
