"""LCEME, the paper's contract: everybody is paid by the loss of the joint model."""
