/* One conversation's line to the server: a WebSocket that comes back under the same session id when it is lost,
   a bounded number of times. It knows frames and closings, not what they mean. */

/* Waits before each try to come back, in ms. When they are used up, the line is given up. */
export const RETRY_DELAYS = [500, 1000, 2000, 4000, 8000];

/* A line that held this long was a good one: its loss starts the count anew. Without it, a server that accepts and
   drops at once would be asked for ever. */
const GOOD_LINE_MS = 60000;

/* Above this the uplink is too slow for speech (5 s of it at 24 kHz): frames are left out rather than piled up. */
const MOST_UNSENT_BYTES = 240000;

/* Codes by which a server says "not here, not now", as opposed to "no": 1001 going away, 1005 and 1006 no reason
   given or cut off, 1012 restarting, 1013 too busy, 1014 bad gateway. */
const WORTH_RETRYING = new Set([1001, 1005, 1006, 1012, 1013, 1014]);

export class Connection {
  #address;
  #parameters;
  #hear;
  #socket = null;
  #attempt = 0;
  #openedAt = null;
  #everOpen = false;
  #timer = null;
  #over = false;

  /* `hear` gets {kind: "open"}, {kind: "message", message}, {kind: "audio", data},
     {kind: "lost", attempt, attempts, delayMs} and, once and last, {kind: "closed", code, everOpen}. */
  constructor(address, parameters, hear) {
    this.#address = address;
    this.#parameters = { ...parameters };
    this.#hear = hear;
  }

  get live() {
    return this.#socket?.readyState === WebSocket.OPEN;
  }

  open() {
    const query = new URLSearchParams(this.#parameters);
    const socket = new WebSocket(`${this.#address}?${query}`);
    socket.binaryType = "arraybuffer";
    socket.onopen = () => {
      this.#openedAt = performance.now();
      this.#everOpen = true;
      this.#hear({ kind: "open" });
    };
    socket.onmessage = ({ data }) => this.#receive(data);
    socket.onclose = ({ code }) => this.#closed(code);
    this.#socket = socket;
  }

  /* The session to come back to; `ready` names it. */
  remember(sessionId) {
    this.#parameters.sessionId = sessionId;
  }

  /* Comes back at once with other parameters, in the same session. */
  reopen(parameters) {
    Object.assign(this.#parameters, parameters);
    this.#letGo();
    this.open();
  }

  /* False when there is no line: then nothing was sent. */
  send(message) {
    if (!this.live) return false;
    this.#socket.send(JSON.stringify(message));
    return true;
  }

  sendAudio(buffer) {
    if (!this.live || this.#socket.bufferedAmount > MOST_UNSENT_BYTES) return false;
    this.#socket.send(buffer);
    return true;
  }

  /* A wait for the next try is cut short, for example when the network is back. */
  hurry() {
    if (this.#timer === null) return;
    this.#clearTimer();
    this.open();
  }

  close() {
    this.#over = true;
    this.#clearTimer();
    this.#letGo();
  }

  #receive(data) {
    if (data instanceof ArrayBuffer) {
      this.#hear({ kind: "audio", data });
      return;
    }
    let message;
    try {
      message = JSON.parse(data);
    } catch {
      return; // not ours to repair; the server speaks JSON
    }
    this.#hear({ kind: "message", message });
  }

  #closed(code) {
    if (this.#over) return;
    if (this.#openedAt !== null && performance.now() - this.#openedAt > GOOD_LINE_MS) this.#attempt = 0;
    this.#openedAt = null;
    this.#socket = null;
    // A first refusal is final: browsers do not tell its reason, and asking again rarely changes it.
    if (!this.#everOpen || !WORTH_RETRYING.has(code) || this.#attempt >= RETRY_DELAYS.length) {
      this.#over = true;
      this.#hear({ kind: "closed", code, everOpen: this.#everOpen });
      return;
    }
    const delayMs = RETRY_DELAYS[this.#attempt];
    this.#attempt += 1;
    this.#hear({ kind: "lost", attempt: this.#attempt, attempts: RETRY_DELAYS.length, delayMs });
    this.#timer = setTimeout(() => {
      this.#timer = null;
      this.open();
    }, delayMs);
  }

  #letGo() {
    if (this.#socket === null) return;
    this.#socket.onopen = this.#socket.onmessage = this.#socket.onclose = null;
    this.#socket.close(1000);
    this.#socket = null;
  }

  #clearTimer() {
    clearTimeout(this.#timer);
    this.#timer = null;
  }
}
