/* Cuts what the microphone hears into frames of exactly 20 ms of PCM16, whatever the browser's block size. */

const FRAMES_PER_SECOND = 50;

class Microphone extends AudioWorkletProcessor {
  #size = Math.round(sampleRate / FRAMES_PER_SECOND);
  #frame = new Int16Array(this.#size);
  #filled = 0;
  #open = true;

  constructor() {
    super();
    this.port.onmessage = () => (this.#open = false);
  }

  process([[input]]) {
    if (input === undefined) return this.#open; // nothing is connected (any more)
    for (const sample of input) {
      this.#frame[this.#filled] = Math.max(-1, Math.min(1, sample)) * 32767;
      this.#filled += 1;
      if (this.#filled === this.#size) {
        this.port.postMessage(this.#frame.buffer, [this.#frame.buffer]);
        this.#frame = new Int16Array(this.#size);
        this.#filled = 0;
      }
    }
    return this.#open;
  }
}

registerProcessor("souffleur-microphone", Microphone);
