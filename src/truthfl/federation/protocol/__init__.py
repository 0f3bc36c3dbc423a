"""The server's stages of a job: enrolment, offers, rounds, test, settlement, receipts."""
