"""Figures as data, plots, CSV and the HTML report."""
