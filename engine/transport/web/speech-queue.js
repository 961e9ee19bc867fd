/* What is waiting to be heard, and how much of it was: the rule behind the player. No DOM, no audio API, no clock.

   It lives wherever sound is rendered: in the AudioWorklet, or in a ScriptProcessor where worklets are not allowed.
   Samples are PCM16 mono in runs; a run belongs to one response. What it counts, it counts as rendered: one sample
   handed to `render`'s output is one sample played. */

/* Playback starts when this much is waiting (or the run is complete): two to three 20 ms frames, so that a server that
   sends in real time does not stutter at once. */
const HEAD_START_SECONDS = 0.06;

/* How often the progress of a response is told: the protocol's `playback` report wants about 250 ms. */
const PROGRESS_SECONDS = 0.25;

/* A cut fades over this many samples, the size of one render quantum: no click, and silent within that quantum. */
const FADE_SAMPLES = 128;

export class SpeechQueue {
  #rate;
  #chunks = []; // {id, samples: Int16Array, rate}
  #ended = new Set(); // responses whose run is complete, while something of it still waits
  #position = 0; // in source samples within the first chunk, fractional when the rates differ
  #waitingFor = true; // gathering a head start
  #fade = null; // what is left of a cut, Float32Array
  #head = null; // the response being played: {id, rendered, reported}
  #played = new Map(); // response id -> rendered samples, kept for responses that come in several runs
  #muteQuanta = 0;
  #cutting = false;

  /* Counters for whoever wants to look: all in samples or render calls. */
  counters = { rendered: 0, underruns: 0, soundAfterCut: 0, quanta: 0 };
  events = [];

  constructor(rate) {
    this.#rate = rate;
  }

  get playing() {
    return this.#head !== null;
  }

  push(id, samples, rate) {
    if (samples.length === 0) return;
    this.#chunks.push({ id, samples, rate });
    this.#ended.delete(id);
  }

  /* No more of this response's run is coming. */
  end(id) {
    if (this.#chunks.some((chunk) => chunk.id === id)) this.#ended.add(id);
    else this.#finish(id);
  }

  /* Silence, within one render call. Everything that waits is forgotten. */
  cut() {
    if (this.#head !== null) {
      this.#fade = this.#fadeOut();
      this.events.push({ kind: "cut", id: this.#head.id, ms: this.#ms(this.#head.rendered) });
      this.#cutting = true;
      this.#muteQuanta = 0;
    }
    this.#head = null;
    this.#chunks = [];
    this.#ended.clear();
    this.#position = 0;
    this.#waitingFor = true;
  }

  /* Fills `output` (Float32Array) and adds to `events` what happened meanwhile. */
  render(output) {
    this.counters.quanta += 1;
    output.fill(0);
    let at = 0;
    if (this.#fade !== null) {
      output.set(this.#fade.subarray(0, output.length));
      this.#fade = null;
      at = output.length; // the quantum of a cut belongs to its fade
    }
    while (at < output.length && this.#ready()) at = this.#renderFrom(output, at);
    this.#watchCut(output);
  }

  #ready() {
    if (this.#chunks.length === 0) return false;
    if (!this.#waitingFor) return true;
    const first = this.#chunks[0].id;
    let seconds = 0;
    for (const chunk of this.#chunks) {
      if (chunk.id !== first) return this.#go(); // the next response waits behind it: its run must be complete
      seconds += chunk.samples.length / chunk.rate;
      if (seconds >= HEAD_START_SECONDS) return this.#go();
    }
    return this.#ended.has(first) ? this.#go() : false;
  }

  #go() {
    this.#waitingFor = false;
    return true;
  }

  /* Renders from the first chunk until it or the output is used up; gives the new place in the output. */
  #renderFrom(output, start) {
    const { id, samples, rate } = this.#chunks[0];
    if (this.#head?.id !== id) this.#begin(id);
    const step = rate / this.#rate;
    let at = start;
    let position = this.#position;
    while (at < output.length && position < samples.length) {
      output[at] = this.#sample(samples, position);
      at += 1;
      position += step;
    }
    const head = this.#head;
    head.rendered += at - start;
    this.counters.rendered += at - start;
    this.#played.set(id, head.rendered);
    this.#position = position;
    if (head.rendered - head.reported >= PROGRESS_SECONDS * this.#rate) {
      head.reported = head.rendered;
      this.events.push({ kind: "progress", id, ms: this.#ms(head.rendered) });
    }
    if (position >= samples.length) {
      this.#position = position - samples.length;
      this.#chunks.shift();
      if (this.#chunks[0]?.id !== id) this.#afterLast(id);
    }
    return at;
  }

  /* Between two samples the straight line: only used when the browser refused our sample rate. */
  #sample(samples, position) {
    const index = Math.floor(position);
    const here = samples[index];
    const share = position - index;
    if (share === 0) return here / 32768;
    const next = index + 1 < samples.length ? samples[index + 1] : (this.#chunks[1]?.samples[0] ?? here);
    return (here + (next - here) * share) / 32768;
  }

  #begin(id) {
    const rendered = this.#played.get(id) ?? 0;
    this.#head = { id, rendered, reported: rendered };
    this.events.push({ kind: "start", id, ms: this.#ms(rendered) });
  }

  #afterLast(id) {
    this.#position = 0;
    if (this.#ended.delete(id) || this.#chunks.length > 0) {
      this.#finish(id);
    } else {
      this.counters.underruns += 1;
      this.#waitingFor = true;
      this.events.push({ kind: "starved", id, ms: this.#ms(this.#head.rendered) });
    }
  }

  #finish(id) {
    if (this.#head?.id !== id) return;
    this.events.push({ kind: "end", id, ms: this.#ms(this.#head.rendered) });
    this.#head = null;
    this.#waitingFor = true;
    // A conversation has many responses; only the last few can come in another run.
    while (this.#played.size > 16) this.#played.delete(this.#played.keys().next().value);
  }

  #fadeOut() {
    const chunk = this.#chunks[0];
    if (chunk === undefined) return null;
    const start = Math.floor(this.#position);
    const rest = chunk.samples.subarray(start, start + FADE_SAMPLES);
    return Float32Array.from(rest, (sample, i) => (sample / 32768) * (1 - (i + 1) / rest.length));
  }

  /* Counts the render calls that still sounded after a cut: more than one would break the promise. */
  #watchCut(output) {
    if (!this.#cutting) return;
    if (this.#head !== null) {
      this.#cutting = false;
      return;
    }
    this.#muteQuanta += output.some((sample) => sample !== 0) ? 1 : 0;
    this.counters.soundAfterCut = Math.max(this.counters.soundAfterCut, this.#muteQuanta);
  }

  #ms(samples) {
    return Math.round((samples * 1000) / this.#rate);
  }
}
