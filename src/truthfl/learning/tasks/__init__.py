"""The built-in tasks (pictures, tables, texts) and custom tasks."""
