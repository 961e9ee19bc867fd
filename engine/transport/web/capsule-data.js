/* A timeline's document, ready to be asked: what is seen between two instants, what was going on at one, what belongs together. Pure. */

/* Lanes in their order on the page: how many rows of this height (px) they may take. */
export const LANES = [
  { name: "user", title: "User", rows: 1, height: 44 },
  { name: "agent", title: "Agent", rows: 1, height: 34 },
  { name: "words", title: "Sentences", rows: 1, height: 18 },
  { name: "tokens", title: "Tokens", rows: 1, height: 10 },
  { name: "turns", title: "Turns", rows: 2, height: 18 },
  { name: "legs", title: "Back-end", rows: 3, height: 14 },
  { name: "passes", title: "Planning", rows: 2, height: 16 },
  { name: "whispers", title: "Whispers", rows: 3, height: 16 },
  { name: "tools", title: "Tools", rows: 3, height: 16 },
  { name: "outside", title: "Outside", rows: 4, height: 12 },
  { name: "cancels", title: "Cancelled", rows: 1, height: 18 },
  { name: "events", title: "Events", rows: 2, height: 14 },
];

export const NAMES = {
  user: "user", agent: "answer", words: "sentence", tokens: "tokens", turns: "turn", legs: "back-end work", passes: "planning pass",
  whispers: "whisper", tools: "tool", outside: "outside call", cancels: "cancellation", events: "event",
};

const TOLD = {
  prompt: "system prompt", instruction: "whisper", UserSpeech: "the user said", AnswerAgain: "answer again", Interrupted: "interrupted",
  Action: "action", ToolSettled: "tool result", Image: "image", Commit: "end of utterance", Sensory: "sensors",
};

/* Space (s) that two items of a row keep, so that instants do not hide each other at the usual zooms. */
const INSTANT = 0.05;

export class Timeline {
  #turns;
  #answers;

  constructor(document) {
    this.document = document;
    this.length = Math.max(document.length, 0.001);
    this.byId = new Map();
    this.lanes = LANES.map((lane) => this.#lane(lane, document.lanes[lane.name] ?? []));
    this.runs = document.loudness.runs.map(({ at, peaks }) => ({ at, peaks: decoded(peaks) }));
    this.binSeconds = document.loudness.binSeconds;
    this.told = document.told;
    this.responses = document.responses;
    this.cancels = this.lane("cancels").items;
    for (const told of this.told) this.byId.set(told.id, told);
    this.#turns = new Map(this.lane("turns").items.map((turn, i) => [turn.turn, i + 1]));
    this.#answers = new Map(this.responses.map((response, i) => [response.id, i + 1]));
  }

  /* Ids are for the details; a reader counts. */
  turnName(id) {
    return this.#turns.has(id) ? `turn ${this.#turns.get(id)}` : (id ?? "");
  }

  answerName(id) {
    return this.#answers.has(id) ? `answer ${this.#answers.get(id)}` : (id ?? "");
  }

  lane(name) {
    return this.lanes.find((lane) => lane.name === name);
  }

  #lane(lane, items) {
    const ends = [];
    const latest = []; // the latest end of the items up to each: what may still reach into a view
    for (const item of items) {
      item.lane = lane.name;
      item.ends = endOf(item, this.length);
      this.byId.set(item.id, item);
      let row = ends.findIndex((end) => end <= item.at);
      if (row < 0) row = ends.length < lane.rows ? ends.length : ends.indexOf(Math.min(...ends));
      item.row = row;
      ends[row] = Math.max(ends[row] ?? 0, item.ends, item.at + INSTANT);
      latest.push(Math.max(latest.at(-1) ?? 0, item.ends));
    }
    return { ...lane, items, latest, used: Math.max(1, ends.length) };
  }

  /* The items of a lane that are between two instants, in their order. */
  *between(lane, from, until) {
    let index = firstAtLeast(lane.latest, from);
    for (; index < lane.items.length && lane.items[index].at <= until; index += 1) {
      if (lane.items[index].ends >= from) yield lane.items[index];
    }
  }

  /* What was going on: the items of every lane that had begun and not ended. */
  at(instant) {
    const running = new Map();
    for (const lane of this.lanes) {
      running.set(lane.name, [...this.between(lane, instant, instant)].filter((item) => item.at <= instant && item.ends >= instant));
    }
    const told = countUpTo(this.told, instant);
    return { running, told, known: this.#known(instant), cancel: this.nearestCancel(instant) };
  }

  /* From where on what was told is new: since the answer before the one that is being given, or since the last one began. */
  #known(instant) {
    const begun = countUpTo(this.responses, instant);
    if (begun === 0) return -1;
    const last = this.responses[begun - 1];
    if (instant > last.until) return last.at;
    return begun > 1 ? this.responses[begun - 2].at : -1;
  }

  nearestCancel(instant) {
    let nearest = null;
    for (const cancel of this.cancels) {
      if (nearest === null || Math.abs(cancel.at - instant) <= Math.abs(nearest.at - instant)) nearest = cancel;
      else break;
    }
    return nearest;
  }

  /* The next cancellation behind an instant, or the one before it. */
  cancelFrom(instant, direction) {
    const found = this.cancels.filter((cancel) => (direction > 0 ? cancel.at > instant + 0.0005 : cancel.at < instant - 0.0005));
    return (direction > 0 ? found[0] : found.at(-1)) ?? null;
  }

  /* The neighbour of an item in its lane. */
  neighbour(item, direction) {
    const { items } = this.lane(item.lane);
    return items[items.indexOf(item) + direction] ?? null;
  }

  /* -> {items, count}: what has these words in it as they stand, else what has all of them; in the order of time, at most `most`. */
  search(words, most) {
    const phrase = words.toLowerCase().trim();
    if (phrase === "") return { items: [], count: 0 };
    let found = this.#having([phrase]);
    if (found.length === 0) found = this.#having(phrase.split(/\s+/));
    found.sort((one, other) => one.at - other.at);
    return { items: found.slice(0, most), count: found.length };
  }

  #having(parts) {
    return [...this.byId.values()].filter((item) => {
      item.searched ??= searchable(item);
      return parts.every((part) => item.searched.includes(part));
    });
  }
}

/* Where an item ends for the eye: of speech with what was never heard. */
function endOf(item, length) {
  if (item.until === null) return length;
  if (item.kind === "speech") return Math.max(item.until, item.playsUntil + (item.unsentSeconds ?? 0));
  return Math.max(item.until, item.at);
}

function searchable(item) {
  const parts = [item.id, item.kind, item.text, item.reason, item.turn, item.response, item.pass, item.outcome, item.scope, item.what, item.call, item.instruction];
  return [...parts, ...Object.values(item.more ?? {})].filter(Boolean).join(" ").toLowerCase();
}

function decoded(base64) {
  const text = atob(base64);
  const peaks = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i += 1) peaks[i] = text.charCodeAt(i);
  return peaks;
}

/* The first index of a rising list whose value is at least that. */
function firstAtLeast(values, wanted) {
  let low = 0;
  let high = values.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] < wanted) low = middle + 1;
    else high = middle;
  }
  return low;
}

/* How many of what is in the order of time had been by then. */
function countUpTo(items, instant) {
  let low = 0;
  let high = items.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (items[middle].at <= instant) low = middle + 1;
    else high = middle;
  }
  return low;
}

/* --- words ----------------------------------------------------------------------------------------------------------- */

/* 75.25 -> "1:15.250" */
export function clock(seconds, digits = 3) {
  const scale = 10 ** digits;
  const all = Math.round(Math.max(0, seconds) * scale);
  const whole = Math.floor(all / scale);
  const rest = digits === 0 ? "" : `.${String(all % scale).padStart(digits, "0")}`;
  const [hours, minutes] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60];
  const short = String(whole % 60).padStart(2, "0");
  return hours > 0 ? `${hours}:${String(minutes).padStart(2, "0")}:${short}${rest}` : `${minutes}:${short}${rest}`;
}

/* 0.25 -> "250 ms", 2.5 -> "2.50 s" */
export function duration(seconds) {
  const size = Math.abs(seconds);
  if (size < 1) return `${Math.round(seconds * 1000)} ms`;
  return size < 60 ? `${seconds.toFixed(2)} s` : clock(seconds, 1);
}

export function bytes(count) {
  if (count < 1000) return `${count} B`;
  return count < 1e6 ? `${(count / 1e3).toFixed(0)} kB` : `${(count / 1e6).toFixed(1)} MB`;
}

/* What a thing is called in lists. */
export function nameOf(item) {
  if (item.what !== undefined) return TOLD[item.what] ?? item.what;
  if (item.lane === "events") return item.kind;
  if (item.lane === "whispers") return item.kind === "context" ? "context whispered" : "whisper";
  if (item.lane === "user" && item.kind !== "said") return item.kind === "typed" ? "user typed" : "user, asked again";
  return NAMES[item.lane] ?? item.kind;
}

/* What a thing says, in a few words. */
export function wordsOf(item) {
  if (item.lane === "tokens") return item.pieces.join("");
  return item.text || item.reason || item.turn || "";
}
