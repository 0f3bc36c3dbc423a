"""How incentives scale: the same labels divided among more and more clients."""
