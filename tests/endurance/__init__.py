"""Long runs against real server processes: what must hold after many kills, takeovers and vanishing clients.

Each is a command of its own in `scripts/`; a small share of each runs with the tests. The servers have no voice engines.
"""
