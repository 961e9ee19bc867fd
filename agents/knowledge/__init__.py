"""What an agent can look up: documents beside the project file, cut into passages and searched where they are (SPEC R12)."""
