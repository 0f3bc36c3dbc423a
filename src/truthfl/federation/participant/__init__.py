"""The client's side of the protocol: answers the server's questions, labels, trains, reports."""
