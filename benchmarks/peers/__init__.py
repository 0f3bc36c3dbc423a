"""The contenders of `benchmarks.training`, one file each, and what they share.

A contender's file has `run(work, gate)`: it imports what it needs, says `gate.imported()`, prepares, and then trains
round after round, calling `gate.round_done(parameters)` after each until that returns False. Where a framework has
its own loop, the call is made from its callback. `worker` runs one contender in a process of its own.
"""
