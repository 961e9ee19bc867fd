/* Plays the agent's speech without gaps, and is silent at once when told to be.

   Sound is rendered by a SpeechQueue in an AudioWorklet. On an address browsers do not call secure (plain http from
   another machine) there are no worklets; then a ScriptProcessor hosts the same queue, coarser but audible. */

import { SpeechQueue } from "./speech-queue.js";

/* What we ask the server for; the context is asked for the same, so that nothing is resampled on the way. */
export const OUTPUT_RATE = 24000;

/* Samples per callback of the fallback: 43 ms at 24 kHz. */
const FALLBACK_BLOCK = 1024;

export class Player {
  #context = null;
  #host = null; // {post(order, transfer), close()}
  #analyser = null;
  #hear;
  #orders = 0;
  #answers = new Map(); // order number -> resolve

  /* `hear` gets {kind: "start" | "progress" | "end" | "cut" | "starved", id, ms} and {kind: "level", peak}. */
  constructor(hear) {
    this.#hear = hear;
  }

  get open() {
    return this.#host !== null;
  }

  get suspended() {
    return this.#context !== null && this.#context.state !== "running";
  }

  /* Call it in the wake of a click or key: browsers let no page sound before one. */
  async start() {
    if (this.#context !== null) return this.resume();
    this.#context = makeContext();
    const resumed = this.#context.resume();
    this.#host = await this.#makeHost(this.#context);
    await Promise.race([resumed, later(1000)]); // some browsers never settle it while they refuse sound
  }

  async resume() {
    if (this.suspended) await Promise.race([this.#context.resume(), later(1000)]);
  }

  /* `data` is an ArrayBuffer of PCM16, little-endian, mono, whole samples; it is given away. */
  push(id, data, rate) {
    this.#host?.post({ kind: "push", id, data, rate }, [data]);
  }

  end(id) {
    this.#host?.post({ kind: "end", id });
  }

  /* Silence now. Resolves with the player's counters once the audio thread has obeyed. */
  cut() {
    return this.#ask("cut");
  }

  counters() {
    return this.#ask("count");
  }

  /* The loudest sample of the last 2048 that left for the loudspeaker: what is really sounding. */
  loudness() {
    if (this.#analyser === null) return 0;
    const samples = new Float32Array(this.#analyser.fftSize);
    this.#analyser.getFloatTimeDomainData(samples);
    return samples.reduce((loudest, sample) => Math.max(loudest, Math.abs(sample)), 0);
  }

  async close() {
    this.#host?.post({ kind: "close" });
    this.#host = null;
    const context = this.#context;
    this.#context = null;
    await context?.close();
  }

  #ask(kind) {
    if (this.#host === null) return Promise.resolve(null);
    const order = ++this.#orders;
    const answer = new Promise((resolve) => this.#answers.set(order, resolve));
    this.#host.post({ kind, order });
    return answer;
  }

  #receive(message) {
    if (message.kind === "silent" || message.kind === "counters") {
      this.#answers.get(message.order)?.(message.counters);
      this.#answers.delete(message.order);
    } else if (message.kind === "progress" || message.kind === "cut") {
      this.#hear({ ...message, ms: Math.max(0, message.ms - this.#latencyMs()) });
    } else {
      this.#hear(message);
    }
  }

  /* Rendered is not yet heard: the device holds this much back. */
  #latencyMs() {
    return Math.round((this.#context?.outputLatency || 0) * 1000);
  }

  async #makeHost(context) {
    this.#analyser = new AnalyserNode(context, { fftSize: 2048 });
    this.#analyser.connect(context.destination);
    if (context.audioWorklet === undefined) return this.#makeFallback(context);
    await context.audioWorklet.addModule(new URL("./player-worklet.js", import.meta.url));
    const node = new AudioWorkletNode(context, "souffleur-player", { numberOfInputs: 0, outputChannelCount: [1] });
    node.port.onmessage = ({ data }) => this.#receive(data);
    node.connect(this.#analyser);
    return { post: (order, transfer = []) => node.port.postMessage(order, transfer) };
  }

  #makeFallback(context) {
    const queue = new SpeechQueue(context.sampleRate);
    const node = context.createScriptProcessor(FALLBACK_BLOCK, 0, 1);
    const tell = () => queue.events.splice(0).forEach((event) => this.#receive(event));
    node.onaudioprocess = ({ outputBuffer }) => {
      queue.render(outputBuffer.getChannelData(0));
      tell();
    };
    node.connect(this.#analyser);
    const post = (order) => {
      if (order.kind === "push") queue.push(order.id, new Int16Array(order.data), order.rate);
      else if (order.kind === "end") queue.end(order.id);
      else if (order.kind === "cut") queue.cut();
      else if (order.kind === "close") node.disconnect();
      tell();
      if (order.order !== undefined) this.#receive({ kind: "counters", order: order.order, counters: queue.counters });
    };
    return { post };
  }
}

function makeContext() {
  try {
    return new AudioContext({ sampleRate: OUTPUT_RATE, latencyHint: "interactive" });
  } catch {
    return new AudioContext({ latencyHint: "interactive" }); // the queue converts
  }
}

function later(ms) {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
