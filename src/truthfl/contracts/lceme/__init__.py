"""LCEME, the paper's contract: every client is paid by the loss of the joint model."""
