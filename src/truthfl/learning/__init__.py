"""Data sets, behaviours, models, training, calibration and planning."""
