"""A participant's folder: documents, records of what was sent and received, state of the node."""
