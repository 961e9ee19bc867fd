"""What becomes of a conversation's records when it has ended: the session's data, and the one record of its user."""
