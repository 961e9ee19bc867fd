"""What agents remember of earlier conversations."""
