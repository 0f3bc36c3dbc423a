"""All code that replaces or wraps parts of Flower's code. Each module names the part it replaces."""
