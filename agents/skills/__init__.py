"""Skills: folders with a SKILL.md that says how something is done, put before the planner when it is needed (SPEC R12)."""
