"""What happens on a connection to the simulator process of `test_openai_served`."""

from providers.openai.simulator import REAL_TIME, Reply, Script, Utterance

QUESTION, INTERRUPTION = "Which rooms are free?", "Only the blue one."
ANSWER = (
    "One is the blue room, which looks over the river, and the other one looks over the garden behind the old house."
)
AFTERWARDS = "The blue room is free."

TALK = Script(
    utterances=[Utterance(QUESTION), Utterance(INTERRUPTION)],
    replies=[Reply(ANSWER, pace=REAL_TIME), Reply(AFTERWARDS)],
)
