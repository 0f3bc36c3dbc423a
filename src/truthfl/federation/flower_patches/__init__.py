"""Everything that replaces or wraps parts of Flower's own code. Each module names what it replaces."""
