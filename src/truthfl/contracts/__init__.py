"""What to ask of participants and what to pay them: one package per contract, pure functions on arrays."""
