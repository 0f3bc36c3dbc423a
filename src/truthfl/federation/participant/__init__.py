"""The client's side of the protocol: enrol, answer offers, label, train, report."""
