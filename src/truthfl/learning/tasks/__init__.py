"""The tasks that come along: pictures, tables, texts; and those of one's own."""
