"""The command line: parses, calls, prints. Looks at every other room; none looks here."""
