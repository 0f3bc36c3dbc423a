"""One file per question; each returns data. Looks at learning and the mechanism."""
