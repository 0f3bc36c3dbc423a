"""Attacks that benchmarks measure."""
