"""All use of Flower that is not of its documented interface. Each module names the parts of Flower that it uses.

Parts are looked up by `flower_part` when a module is imported, so that a version of Flower without one of them is
refused with a sentence before any work is done.
"""
