"""The contenders of `benchmarks.training`, one module each, and their common modules.

A contender's module has `run(work, gate)`. It imports its framework, calls `gate.imported()`, prepares the data and
calls `gate.open()`. It then trains, calling `gate.round_done(parameters)` after each round until that returns False. If
a framework has its own loop, a callback makes the call. `worker` runs one contender.
"""
