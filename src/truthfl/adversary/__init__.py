"""Lies that a client may tell, what they do to training, and a search for the lie that gains most."""
