"""A whole job with simulated clients, in one process or on Flower's simulation."""
