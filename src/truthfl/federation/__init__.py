"""A job as a protocol between a server and clients, on Flower.

`protocol` has the stages on the server's side and the messages, `participant` the client's side; `simulated` runs both
in one process, `deployed` as Flower's processes.
"""
