"""A response's speech on its way to the client: from the model's rate to the connection's, in frames of bounded length."""

import attrs

from engine.protocol.audio import SampleCarry, bytes_for_ms
from engine.protocol.resample import Resampler


@attrs.define(eq=False)
class SpeechShaper:
    """One response after the other; nothing of one is carried into the next (cases C26, C27)."""

    rate_out: int
    """Hz of the connection."""
    frame_ms: int
    """The most audio in one frame."""
    _response_id: str = attrs.field(default="", init=False)
    _rate_in: int = attrs.field(default=0, init=False)
    _carry: SampleCarry = attrs.field(factory=SampleCarry, init=False)
    _resampler: Resampler | None = attrs.field(default=None, init=False)

    def feed(self, pcm: bytes, rate: int, response_id: str) -> list[bytes]:
        """Frames of whole samples at the connection's rate."""
        if response_id != self._response_id or rate != self._rate_in:
            self._response_id = response_id
            self._carry = SampleCarry()
            if self._resampler is None or rate != self._rate_in:
                self._resampler = Resampler(rate, self.rate_out)
            else:
                self._resampler.reset()
            self._rate_in = rate
        assert self._resampler is not None
        return self._frames(self._resampler.feed(self._carry.feed(pcm)))

    def finish(self, response_id: str) -> list[bytes]:
        """The end of a response's speech: what the resampler still holds of it."""
        if response_id != self._response_id or self._resampler is None:
            return []
        self._response_id = ""
        return self._frames(self._resampler.flush())

    def drop(self, response_id: str) -> None:
        """A barge-in: forget what is held of a response."""
        if response_id == self._response_id and self._resampler is not None:
            self._response_id = ""
            self._resampler.reset()

    def _frames(self, pcm: bytes) -> list[bytes]:
        size = bytes_for_ms(self.frame_ms, self.rate_out)
        if len(pcm) <= size:
            return [pcm] if pcm else []
        return [pcm[start : start + size] for start in range(0, len(pcm), size)]
