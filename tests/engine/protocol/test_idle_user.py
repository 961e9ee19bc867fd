"""A user who says nothing is asked once, then left; any sign begins anew."""

from engine.protocol.idle_user import IdleStep, IdleUser


def test_asked_once_then_left() -> None:
    user = IdleUser(30)
    user.sign(10)
    assert user.deadline == 40
    assert user.step(39.9) is IdleStep.WAIT
    assert user.step(40) is IdleStep.ASK
    assert user.step(69.9) is IdleStep.WAIT
    assert user.step(70) is IdleStep.END


def test_a_sign_begins_anew() -> None:
    user = IdleUser(30)
    assert user.step(30) is IdleStep.ASK
    user.sign(45)
    assert user.step(60) is IdleStep.WAIT
    assert user.step(75) is IdleStep.ASK


def test_the_quiet_counts_from_the_end_of_what_the_agent_said() -> None:
    user = IdleUser(30)
    user.agent_speaks_until(12)
    user.agent_speaks_until(5)
    assert user.deadline == 42
    assert user.step(42) is IdleStep.ASK
    user.agent_speaks_until(44)
    assert user.step(73) is IdleStep.WAIT
    assert user.step(74) is IdleStep.END
