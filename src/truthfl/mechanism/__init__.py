"""The mechanism: batch sizes and pay, as pure functions on arrays over clients; no models, no training, no files.

Its public names are re-exported by `truthfl`.
"""
