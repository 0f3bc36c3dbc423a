"""What participants do: labels, batches, reports; the registry of behaviours."""
