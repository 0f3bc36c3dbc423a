"""The mechanism: batch sizes and pay, as pure functions on arrays over clients; no models, no training, no files.

Imports nothing of truthfl but `errors`. Its public names are re-exported by `truthfl`.
"""
