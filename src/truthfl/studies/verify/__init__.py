"""The largest gain from lying under a payment rule, on the loss model and in real training."""
