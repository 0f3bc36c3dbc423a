"""Reproduction of the paper's figures and claims; one module per figure."""
