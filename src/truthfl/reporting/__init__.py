"""Figures as data, plots, CSV and the HTML report. Imports no other room."""
