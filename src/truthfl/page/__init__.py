"""The participant's page: offer, labeling, review, receipt."""
