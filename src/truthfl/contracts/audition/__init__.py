"""The audition: each participant is paid for labels by the test of a model that they train alone."""
