"""The mechanism: what to assign and what to pay. Pure functions on arrays; knows no model, no engine, no disk.

Looks at no other room of truthfl but `errors`. Its public names are re-exported by `truthfl`.
"""
