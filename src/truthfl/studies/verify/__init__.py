"""Does lying pay? On the loss model and in real training, for any payment rule."""
