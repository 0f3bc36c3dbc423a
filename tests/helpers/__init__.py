"""What tests share: jobs, participants, pages, browsers, databases, commands."""
