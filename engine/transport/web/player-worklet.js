/* The player's half in the audio thread: a SpeechQueue, fed and questioned by messages. */

import { SpeechQueue } from "./speech-queue.js";

/* How often the loudness is told, in render quanta of 128 samples: every 43 ms at 24 kHz, enough for a light. */
const LEVEL_EVERY = 8;

class Player extends AudioWorkletProcessor {
  #queue = new SpeechQueue(sampleRate);
  #open = true;
  #peak = 0;

  constructor() {
    super();
    this.port.onmessage = ({ data }) => this.#obey(data);
  }

  #obey(order) {
    switch (order.kind) {
      case "push":
        this.#queue.push(order.id, new Int16Array(order.data), order.rate);
        break;
      case "end":
        this.#queue.end(order.id);
        this.#tell(); // nothing may be waiting: then the end is now
        break;
      case "cut":
        this.#queue.cut();
        this.#tell();
        this.port.postMessage({ kind: "silent", order: order.order, counters: this.#queue.counters });
        break;
      case "count":
        this.port.postMessage({ kind: "counters", order: order.order, counters: this.#queue.counters });
        break;
      case "close":
        this.#open = false;
        break;
    }
  }

  process(_inputs, [[output]]) {
    this.#queue.render(output);
    this.#tell();
    for (const sample of output) this.#peak = Math.max(this.#peak, Math.abs(sample));
    if (this.#queue.counters.quanta % LEVEL_EVERY === 0) {
      if (this.#queue.playing || this.#peak > 0) this.port.postMessage({ kind: "level", peak: this.#peak });
      this.#peak = 0;
    }
    return this.#open;
  }

  #tell() {
    for (const event of this.#queue.events.splice(0)) this.port.postMessage(event);
  }
}

registerProcessor("souffleur-player", Player);
