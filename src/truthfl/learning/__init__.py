"""What is trained. Looks at the mechanism; the mechanism never looks here."""
