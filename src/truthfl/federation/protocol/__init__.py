"""The job's stages on the server's side: enrolment, offers, rounds, test, settlement, receipts."""
