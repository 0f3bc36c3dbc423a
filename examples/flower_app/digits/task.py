"""What is learned: handwritten digits as tables, by a network of scikit-learn's."""

from sklearn.neural_network import MLPClassifier

from truthfl.simulate import Tables, from_sklearn


class Digits(Tables):
    """Files are read, and numbers standardised, as of any table; the model is this task's own."""

    def model(self, shape):
        return from_sklearn(MLPClassifier((16,)), shape, len(self.classes))
