/* The user's voice: 20 ms frames of PCM16 from the microphone, echo and noise removed by the browser.

   `open` throws a MicrophoneRefused whose `reason` names why, for `words.js` to explain. */

/* The rate we ask for: what speech providers work at, so that the server need not resample. */
export const INPUT_RATE = 24000;

/* The server takes no more than this. */
const HIGHEST_RATE = 48000;

/* After muting, silence flows for this many frames (1 s), so that whoever listens notices the end of the utterance;
   then nothing flows. The server takes a gap for silence. */
const MUTED_TAIL_FRAMES = 50;

export class MicrophoneRefused extends Error {
  /* `reason`: "insecure", "refused", "missing", "busy", "failed". */
  constructor(reason, cause) {
    super(`the microphone is not available: ${reason}`, { cause });
    this.reason = reason;
  }
}

export class Microphone {
  #stream;
  #context;
  #node;
  #onFrame;
  #muted = false;
  #tail = 0;

  constructor(stream, context, node, onFrame, onLost) {
    this.#stream = stream;
    this.#context = context;
    this.#node = node;
    this.#onFrame = onFrame;
    node.port.onmessage = ({ data }) => this.#pass(data);
    for (const track of stream.getAudioTracks()) track.onended = onLost;
  }

  /* `onFrame(buffer, peak)` gets each frame and its loudest sample (0 to 1); `onLost()` when the device goes away. */
  static async open(onFrame, onLost) {
    const stream = await askForStream();
    let context = null;
    try {
      const wired = await wire(stream, INPUT_RATE).catch(() => wire(stream, undefined));
      context = wired.context;
      if (context.sampleRate > HIGHEST_RATE) throw new MicrophoneRefused("failed");
      return new Microphone(stream, context, wired.node, onFrame, onLost);
    } catch (error) {
      for (const track of stream.getTracks()) track.stop();
      await context?.close();
      throw error instanceof MicrophoneRefused ? error : new MicrophoneRefused("failed", error);
    }
  }

  get rate() {
    return this.#context.sampleRate;
  }

  get muted() {
    return this.#muted;
  }

  set muted(muted) {
    if (muted && !this.#muted) this.#tail = MUTED_TAIL_FRAMES;
    this.#muted = muted;
    for (const track of this.#stream.getAudioTracks()) track.enabled = !muted;
  }

  close() {
    this.#node.port.onmessage = null;
    this.#node.port.postMessage("close");
    for (const track of this.#stream.getTracks()) {
      track.onended = null;
      track.stop();
    }
    return this.#context.close();
  }

  #pass(buffer) {
    if (this.#muted) {
      if (this.#tail === 0) return;
      this.#tail -= 1;
      this.#onFrame(new ArrayBuffer(buffer.byteLength), 0);
      return;
    }
    let peak = 0;
    for (const sample of new Int16Array(buffer)) peak = Math.max(peak, Math.abs(sample));
    this.#onFrame(buffer, peak / 32768);
  }
}

async function askForStream() {
  if (!navigator.mediaDevices?.getUserMedia) throw new MicrophoneRefused("insecure");
  const audio = { echoCancellation: true, noiseSuppression: true, autoGainControl: true, channelCount: 1 };
  try {
    return await navigator.mediaDevices.getUserMedia({ audio });
  } catch (error) {
    const reasons = { NotAllowedError: "refused", SecurityError: "refused", NotFoundError: "missing", NotReadableError: "busy" };
    throw new MicrophoneRefused(reasons[error.name] ?? "failed", error);
  }
}

/* Some browsers accept a microphone only into a context of the hardware's own rate; then the caller tries without one. */
async function wire(stream, sampleRate) {
  const context = new AudioContext({ sampleRate, latencyHint: "interactive" });
  try {
    const source = context.createMediaStreamSource(stream);
    await context.audioWorklet.addModule(new URL("./microphone-worklet.js", import.meta.url));
    const node = new AudioWorkletNode(context, "souffleur-microphone", {
      channelCount: 1,
      channelCountMode: "explicit",
      outputChannelCount: [1],
    });
    source.connect(node).connect(context.destination); // it sounds like nothing, but only what is connected runs
    context.resume().catch(() => undefined); // no need to wait; closing it meanwhile is no fault
    return { context, node };
  } catch (error) {
    await context.close();
    throw error;
  }
}
