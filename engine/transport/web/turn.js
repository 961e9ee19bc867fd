/* One turn of the conversation, as data, and what can be read off it. Pure.

   A turn holds what the user said, then lines in the order they came: speech of a response, tools, cards, handovers,
   errors; and beside it the whispers that its own planning made, with the tools the planner used, and those of earlier turns
   that steered its answer. */

export function makeTurn(key, id, now) {
  return {
    key, // ours, never reused; `id` is the server's
    id,
    since: now,
    version: 1, // grows with every change, so that a view can tell what to draw again
    user: { speaking: false, since: now, partial: "", text: "" },
    lines: [],
    whispers: [], // {kind: "whisper", ...} as `makeWhisper` has it, and tools
    steeredBy: [], // whispers of earlier turns that its answer was the first to know
    passes: [], // of planning, in their order: {id, state: "running" | "planned" | "stopped" | null, since, tookMs}
    superseded: false, // the user has gone on: no more of the agent's words are wanted
    closed: false,
    saved: true,
    timing: {
      asked: null,
      typed: null,
      speechEnd: null,
      lastPartial: null,
      transcript: null,
      firstToken: null,
      firstAudio: null,
    },
  };
}

/* `sound`: "none", "queued", "playing" or "heard"; `status`: as `response-end` says, null until then. Of the speech
   `receivedMs` has come and `heardMs` was played. */
export function makeSpeech(responseId) {
  return {
    kind: "speech",
    responseId,
    sentences: [],
    tail: "",
    status: null,
    cut: false,
    sound: "none",
    receivedMs: 0,
    heardMs: 0,
  };
}

/* What planning whispered. `outcome`: "pending", "spoken", "used", "superseded" or "unused", null when the server does not
   tell; `answeredIn` says how many turns later the answer came that it steered, `pass` is the number of its pass, `afterMs`
   counts from its turn's beginning. */
export function makeWhisper(type, text, { id = null, pass = null, afterMs = null } = {}) {
  return { kind: "whisper", type, text, id, pass, afterMs, outcome: id === null ? null : "pending", answeredIn: null };
}

/* The number of a pass over a turn, from 1; it is noted when it is a new one. */
export function passNumber(turn, id, now) {
  let index = turn.passes.findIndex((pass) => pass.id === id);
  if (index < 0) index = turn.passes.push({ id, state: null, since: now, tookMs: null }) - 1;
  return index + 1;
}

/* No pass over it goes on. */
export function stopPasses(turn) {
  for (const pass of turn.passes) if (pass.state === "running") pass.state = "stopped";
}

const CHARACTERS_PER_SECOND = 15;

/* -> [heard, unheard]: the words of an answer that was cut, divided as its sound was; whole words, in proportion. All of
   it counts as heard when there was no sound. */
export function divideByHearing(text, { receivedMs, heardMs, status = "completed" }) {
  // Words come ahead of their sound: what had not all come when it was cut would have been about so long.
  const lengthMs = status === "completed" ? receivedMs : Math.max(receivedMs, (text.length / CHARACTERS_PER_SECOND) * 1000);
  const share = receivedMs > 0 ? Math.min(1, heardMs / lengthMs) : 1;
  const words = text.split(/(?<=\s)(?=\S)/); // each with the space behind it
  const heard = words.slice(0, Math.floor(words.length * share)).join("");
  return [heard, text.slice(heard.length)];
}

export function touch(turn) {
  turn.version += 1;
}

export function hasWords(line) {
  return line.sentences.length > 0 || line.tail.trim() !== "";
}

export function isOver(line) {
  return line.status !== null || line.cut;
}

/* Something of it is still to be said or to be heard. */
export function isUnheard(line) {
  if (line.kind !== "speech" || line.cut) return false;
  return line.status === null || line.sound === "queued" || line.sound === "playing";
}

/* An utterance was understood in it, and an answer begun. */
export function isAnswered(turn) {
  return turn.timing.transcript !== null && turn.lines.some((line) => line.kind === "speech");
}

/* Nothing was said and nothing is awaited: a cough. */
export function isEmpty({ user, lines, whispers, timing, closed }) {
  const waits = timing.transcript !== null && !closed;
  return !user.speaking && user.text === "" && !waits && lines.length === 0 && whispers.length === 0;
}

/* -> [{what, ms}], counted from the end of the user's speech, or from when the typed line or the request was sent. */
export function timings(turn) {
  const { asked, typed, speechEnd, lastPartial, transcript, firstToken, firstAudio } = turn.timing;
  const start = typed ?? asked ?? speechEnd ?? lastPartial ?? transcript;
  if (start === null) return [];
  const marks = [
    { what: "understood", at: turn.user.text !== "" && typed === null ? transcript : null },
    { what: "first word", at: firstToken },
    { what: "first sound", at: firstAudio },
  ];
  return marks.filter(({ at }) => at !== null && at > start).map(({ what, at }) => ({ what, ms: Math.round(at - start) }));
}
