"""Samples and their labels on disk: folders of pictures, arrays, texts, label files."""
