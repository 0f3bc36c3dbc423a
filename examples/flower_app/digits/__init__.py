"""A Flower app whose participants are paid: handwritten digits, a small network."""
