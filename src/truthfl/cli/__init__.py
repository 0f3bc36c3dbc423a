"""The command line: one module per command, which parses options, calls other rooms and prints."""
