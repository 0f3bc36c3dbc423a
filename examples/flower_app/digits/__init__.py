"""A Flower app that is paid: handwritten digits, softmax regression."""
