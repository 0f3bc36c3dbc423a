"""`truthfl join` and `truthfl label`: what participants call, and the pages and messages that they see."""
