"""An app for the test of a deployment: each node says who it is."""
