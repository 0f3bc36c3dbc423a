"""A job, run: offer, labels, rounds, test, pay. Looks at `job`, `learning`, the mechanism, and `studies` for pages."""
