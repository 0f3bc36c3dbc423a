"""Models: functions of one flat array of parameters."""
