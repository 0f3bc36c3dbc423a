"""How incentives scale: the same labels divided among ever more clients."""
