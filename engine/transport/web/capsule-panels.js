/* What is told in words of a timeline: the instant, what the model knew, what is chosen. Elements are kept and reused, so that a
   scrub changes only what has changed. */

import { clock, duration, nameOf, wordsOf } from "./capsule-data.js";
import { byId, make, setText } from "./dom.js";

const SHOWN = 40; // of what the model had been told, the newest
const LONG = 220; // characters: a longer text is folded
const RUNNING = ["legs", "passes", "tools", "outside"];
const MOST_RUNNING = 8;

export class Panels {
  #timeline;
  #choose;
  #told = new Map(); // id -> element
  #toldShown = "";
  #rows = new Map(); // name -> {term, words}
  #runningShown = null;
  #cancelShown = "";

  /* `choose(item)`: the reader wants to see that one. */
  constructor(timeline, choose) {
    this.#timeline = timeline;
    this.#choose = choose;
    byId("now-list").replaceChildren();
    byId("told").replaceChildren();
    for (const name of ["User", "Agent", "Turn", "Running", "Cancelled"]) {
      const words = make("dd", {});
      this.#rows.set(name, words);
      byId("now-list").append(make("dt", {}, name), words);
    }
  }

  /* Shows the instant; gives what a screen reader is told of it. */
  showInstant(instant) {
    const state = this.#timeline.at(instant);
    const said = [this.#user(state), this.#agent(state, instant)];
    setText(this.#rows.get("User"), said[0]);
    setText(this.#rows.get("Agent"), said[1]);
    const turns = state.running.get("turns");
    const turn = turns.length > 0 ? turns.map((each) => `${this.#timeline.turnName(each.turn)} ${quoted(each.text)}`.trim()).join("; ") : "none";
    setText(this.#rows.get("Turn"), turn);
    this.#running(state.running);
    this.#cancel(state.cancel, instant);
    this.#knew(state);
    return [clock(instant), said[0] === "quiet" ? "" : `user: ${said[0]}`, said[1] === "quiet" ? "" : `agent: ${said[1]}`].filter(Boolean).join(", ");
  }

  #user({ running }) {
    const said = running.get("user").at(-1);
    if (said === undefined) return "quiet";
    return said.kind === "typed" ? `typed ${quoted(said.text)}` : `speaking, ${quoted(said.text) || "without words"}`;
  }

  #agent({ running }, instant) {
    const answer = running.get("agent").findLast((item) => item.kind !== "speech" || instant <= item.ends);
    if (answer === undefined) return "quiet";
    const sentence = running.get("words").findLast((item) => item.response === answer.response);
    const words = quoted(sentence?.text ?? answer.text);
    const name = this.#timeline.answerName(answer.response);
    if (answer.kind !== "speech") return `in writing ${words} (${name})`;
    if (answer.cutAt !== undefined && instant > answer.cutAt) {
      const what = instant > answer.playsUntil ? "never sent" : "sent, but not heard any more";
      return `cut: what would be said here was ${what} (${name})`;
    }
    const sounds = answer.segments.some(([from, until]) => instant >= from && instant <= until);
    return sounds ? `saying ${words} (${name})` : `silent within ${name}`;
  }

  #running(running) {
    const items = RUNNING.flatMap((name) => running.get(name));
    const key = items.map((item) => item.id).join(" ");
    if (key === this.#runningShown) return;
    this.#runningShown = key;
    const buttons = items.slice(0, MOST_RUNNING).map((item) => this.#button(item, `${nameOf(item)} ${item.text ?? ""}`.trim()));
    const more = items.length > MOST_RUNNING ? [`and ${items.length - MOST_RUNNING} more`] : [];
    this.#rows.get("Running").replaceChildren(...(items.length > 0 ? [...buttons, ...more] : ["nothing"]));
  }

  #cancel(cancel, instant) {
    const row = this.#rows.get("Cancelled");
    if (cancel === null) {
      setText(row, "nothing in this call");
      return;
    }
    if (cancel.id !== this.#cancelShown) {
      this.#cancelShown = cancel.id;
      row.replaceChildren(this.#button(cancel, cancelWords(cancel, this.#timeline)), make("span", { class: "quiet" }));
    }
    const away = cancel.at - instant;
    setText(row.lastChild, Math.abs(away) < 0.0005 ? " now" : away > 0 ? ` in ${duration(away)}` : ` ${duration(-away)} ago`);
  }

  #knew({ told, known }) {
    const from = Math.max(0, told - SHOWN);
    const key = `${told} ${known}`;
    if (key === this.#toldShown) return;
    this.#toldShown = key;
    const all = this.#timeline.told;
    const shown = all.slice(from, told).reverse();
    byId("told").replaceChildren(
      ...shown.map((item) => {
        const element = this.#toldElement(item);
        const isNew = item.at > known;
        element.classList.toggle("new", isNew);
        setText(element.querySelector(".mark"), isNew ? "+" : "");
        element.querySelector(".mark").title = isNew ? "new since the answer before" : "";
        return element;
      }),
    );
    byId("told").start = told;
    byId("told-none").hidden = told > 0;
    setText(byId("knew-count"), `${told} of ${all.length}${from > 0 ? `, the last ${shown.length}` : ""}`);
  }

  #toldElement(item) {
    let element = this.#told.get(item.id);
    if (element !== undefined) return element;
    const about = [item.type?.toLowerCase().replaceAll("_", " "), item.name, this.#timeline.turnName(item.turn), item.heardMs === undefined ? "" : `heard ${item.heardMs} ms`].filter(Boolean).join(" · ");
    const time = this.#button(item, clock(item.at));
    const words = item.text.length > LONG ? folded(item.text) : make("p", { class: "told-text" }, item.text || "—");
    element = make("li", { "data-what": item.what, "data-id": item.id }, make("p", { class: "told-head" }, make("b", { class: "mark" }), make("span", { class: "kind" }, nameOf(item)), make("span", { class: "quiet" }, about), time), words);
    this.#told.set(item.id, element);
    return element;
  }

  #button(item, words) {
    const button = make("button", { type: "button", class: "item", "data-id": item.id }, words);
    button.addEventListener("click", () => this.#choose(item));
    return button;
  }

  /* --- what is chosen */

  showDetails(item) {
    const details = byId("details");
    if (item === null) {
      details.replaceChildren(make("p", { class: "quiet" }, "Click anything on the lanes, or press ", make("kbd", {}, "Enter"), " for what is at this instant."));
      return;
    }
    const head = make("p", { class: "chosen-head", "data-lane": item.lane ?? "told" }, make("span", { class: "kind" }, nameOf(item)), make("code", {}, item.id));
    const words = make("p", { class: "chosen-words" }, wordsOf(item));
    const facts = make("dl", {});
    for (const [name, value] of factsOf(item)) facts.append(make("dt", {}, name), make("dd", {}, value));
    const links = this.#related(item);
    const list = make("ul", { class: "links", "aria-label": "Belongs to it" }, ...links.map((other) => make("li", {}, this.#button(other, linkWords(other)))));
    details.replaceChildren(head, words, facts, ...(links.length > 0 ? [list] : []));
  }

  #related(item) {
    return relatedTo(this.#timeline, item);
  }
}

/* What belongs to an item: its links, and what of the model's knowledge it is. */
export function relatedTo(timeline, item) {
  const ids = [...(item.links ?? []), item.whisper, item.tool, item.response === undefined ? undefined : `agent:${item.response}`];
  if (item.lane === "whispers" || item.lane === "tools") {
    for (const told of timeline.told) if (told.whisper === item.id || told.tool === item.id) ids.push(told.id);
  }
  const found = [...new Set(ids)].filter((id) => id !== undefined && id !== item.id).map((id) => timeline.byId.get(id));
  return found.filter((other) => other !== undefined).sort((one, other) => one.at - other.at);
}

function* factsOf(item) {
  const until = item.until ?? null;
  if (until === null && item.lane !== undefined) yield ["from", `${clock(item.at)}, never seen to end`];
  else if (until !== null && until > item.at) yield ["from", `${clock(item.at)} to ${clock(until)}, ${duration(until - item.at)}`];
  else yield ["at", clock(item.at)];
  const times = { made: "made", firstSent: "first sent", lastSent: "last sent", cutAt: "cut", told: "told to the model", settled: "settled", opened: "opened", first: "first came", sent: "sent", quiet: "user quiet" };
  for (const [key, name] of Object.entries(times)) {
    if (typeof item[key] === "number" && !(key === "sent" && item.lane === "outside")) yield [name, clock(item[key])];
  }
  if (item.first !== undefined) yield ["waited", duration(item.first - item.at)];
  if (item.latency !== undefined) yield ["answered in", duration(item.latency)];
  if (item.seconds !== undefined) {
    yield ["speech", `${item.seconds.toFixed(2)} s made, ${item.sentSeconds.toFixed(2)} s sent, ${item.heardSeconds.toFixed(2)} s heard`];
    if (item.unsentSeconds > 0) yield ["never sent", `${item.unsentSeconds.toFixed(2)} s`];
    if (item.segments.length > 1) yield ["in pieces", `${item.segments.length}: it ran dry in between`];
  }
  for (const key of ["outcome", "reason", "scope", "owner", "type", "turn", "response", "pass", "call", "instruction"]) {
    if (item[key]) yield [key, item[key]];
  }
  if (item.guessed) yield ["response", "a guess: the first that began behind it"];
  if (item.heardMs !== undefined) yield ["heard", `${item.heardMs} ms`];
  if (item.received !== undefined) yield ["received", `${item.received} items`];
  if (item.lane === "outside" && item.sent !== undefined) yield ["sent", `${item.sent} frames`];
  for (const [key, value] of Object.entries(item.more ?? {})) yield [key, value.length > LONG ? folded(value) : value];
}

function folded(text) {
  return make("details", {}, make("summary", {}, text.slice(0, 140) + "…"), make("p", { class: "told-text" }, text));
}

function cancelWords({ kind, scope, text, turn, reason }, timeline) {
  const name = timeline === undefined ? turn : timeline.turnName(turn);
  if (kind === "taken-back") return `${reason ? `${reason}: ` : ""}${text}${name ? ` (${name})` : ""}`;
  return [text || "no reason given", [scope, name].filter(Boolean).join(" of ")].filter(Boolean).join(": ");
}

export function linkWords(item) {
  const words = item.lane === "cancels" ? cancelWords(item) : wordsOf(item);
  return `${clock(item.at)} ${nameOf(item)}${words ? ` ${quoted(words)}` : ""}`;
}

function quoted(text = "") {
  if (!text) return "";
  return `“${text.length > 90 ? `${text.slice(0, 88).trimEnd()}…` : text}”`;
}
