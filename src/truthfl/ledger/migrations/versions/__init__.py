"""One file per migration. A released migration must not be changed."""
