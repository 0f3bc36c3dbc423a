"""A job as a protocol between a server and clients, on Flower.

`protocol` contains the server's stages and the messages, `participant` the client's side; `simulated` runs both in one
process, `deployed` as Flower processes.
"""
