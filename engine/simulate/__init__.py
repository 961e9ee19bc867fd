"""`souffleur simulate`: a simulated user (an agent of type test) talks with an agent, and a report says how it went.

Both sides are ordinary sessions of the engine, in one process. `exchange` decides what passes between them and when it is over,
`mouth` carries speech, `notes` writes down; `run` holds one conversation, `conduct` several of them on a clock, `report` is the
document and `table` what people read.
"""
