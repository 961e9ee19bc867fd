"""What is read out of a conversation, turn by turn, into plain data."""
