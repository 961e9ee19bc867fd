"""How a conversation goes, for the planner's next turn, and how it went, for whoever looks at it later."""
