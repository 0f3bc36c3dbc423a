"""The command line: each command's module parses options, calls other rooms and prints."""
