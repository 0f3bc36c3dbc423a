"""The contenders of `benchmarks.training`, one module each, and their common modules.

A contender's module has `run(work, gate)`: it imports its framework, calls `gate.imported()`, prepares the data, calls
`gate.open()`, and then trains round after round, calling `gate.round_done(parameters)` after each until that returns
False. If a framework has its own loop, the call is made in a callback. `worker` runs one contender.
"""
