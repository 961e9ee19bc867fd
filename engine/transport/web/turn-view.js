/* Draws one turn: the dialogue like the script of a play, the whispers in its margin. */

import { make, setText } from "./dom.js";
import { joinPieces } from "./text.js";
import { divideByHearing, hasWords, timings } from "./turn.js";
import { explainError, explainResponse } from "./words.js";

/* What a card may show at most: a page is not a database browser. */
const CARD_FIELDS = 12;
const CARD_TEXT = 500;

/* A whisper longer than this (in characters) is folded; context sooner, as it is reading matter. */
const LONG_WHISPER = 240;
const LONG_CONTEXT = 100;
const PREVIEW = 90;

const WHISPER_KINDS = {
  INSTRUCTION: "cue",
  COMMENTARY: "line to say",
  SUPPORTING_CONTEXT: "context",
  PLANNING: "plan",
};

const OUTCOMES = {
  pending: "waits for an answer",
  spoken: "spoken",
  superseded: "superseded",
  unused: "unused",
};

export class TurnView {
  element;
  #agentName;
  #version = 0;
  #user = null;
  #lines = [];
  #whispers = [];
  #dialogue = make("div", { class: "dialogue" });
  #margin = make("div", { class: "whispers", role: "group", "aria-label": "Whispers" });
  #steered = null;
  #passes = null;
  #measure = make("div", { class: "measure", hidden: true }, make("ul", { "aria-label": "Timings of this turn" }));
  #unsaved = make("p", { class: "aside trouble", hidden: true }, make("span", {}, "This turn is not saved yet; the server keeps trying."));

  constructor(agentName) {
    this.#agentName = agentName;
    this.#dialogue.append(this.#measure, this.#unsaved);
    this.element = make("li", { class: "turn" }, this.#dialogue, this.#margin);
  }

  update(turn) {
    if (turn.version === this.#version) return;
    this.#version = turn.version;
    this.#updateUser(turn.user);
    turn.lines.forEach((line, i) => {
      if (this.#lines[i] === undefined) {
        this.#lines[i] = makeLine(line, this.#agentName);
        this.#measure.before(this.#lines[i].element);
      }
      this.#lines[i].update(line);
    });
    this.#updateSteered(turn.steeredBy);
    turn.whispers.forEach((line, i) => {
      if (this.#whispers[i] === undefined) {
        this.#whispers[i] = line.kind === "tool" ? new ToolLine() : new Whisper(line);
        if (this.#passes === null) this.#margin.append(this.#whispers[i].element);
        else this.#passes.before(this.#whispers[i].element);
      }
      this.#whispers[i].update(line);
    });
    this.#updatePasses(turn.passes);
    this.#unsaved.hidden = turn.saved;
    const marks = timings(turn);
    this.#measure.hidden = marks.length === 0;
    this.#measure.firstChild.replaceChildren(
      ...marks.map(({ what, ms }) => make("li", {}, `${what} `, make("b", {}, duration(ms)))),
    );
  }

  /* What the answer of this turn could know: whispered in the turns before. */
  #updateSteered(whispers) {
    if (whispers.length === 0) {
      this.#steered?.remove();
      this.#steered = null;
      return;
    }
    if (this.#steered === null) {
      this.#steered = make("div", { class: "steered" }, make("p", { class: "kind" }, "steered this answer"), make("ul"));
      this.#margin.prepend(this.#steered);
    }
    this.#steered.lastChild.replaceChildren(...whispers.map(({ text }) => make("li", { title: text }, preview(text))));
  }

  #updatePasses(passes) {
    const told = passes.map(passWords).filter((words) => words !== "");
    if (told.length === 0) return;
    if (this.#passes === null) {
      this.#passes = make("ul", { class: "passes", "aria-label": "Planning" });
      this.#margin.append(this.#passes);
    }
    this.#passes.replaceChildren(...told.map((words) => make("li", {}, words)));
  }

  #updateUser({ text, partial, speaking }) {
    if (text === "" && partial === "" && !speaking) {
      this.#user?.element.remove();
      this.#user = null;
      return;
    }
    if (this.#user === null) {
      const said = make("p", { class: "said" });
      this.#user = { said, element: make("div", { class: "speech user" }, make("p", { class: "speaker" }, "You"), said) };
      this.#dialogue.prepend(this.#user.element);
    }
    setText(this.#user.said, text || partial);
    this.#user.said.classList.toggle("dots", text === "");
    this.#user.element.classList.toggle("final", text !== "");
  }
}

function makeLine(line, agentName) {
  switch (line.kind) {
    case "speech":
      return new SpeechLine(agentName);
    case "tool":
      return new ToolLine();
    case "error":
      return new ErrorLine(line.error);
    case "handover":
      return new Handover(line);
    default:
      return new Card(line);
  }
}

class SpeechLine {
  #sentences = make("span");
  #tail = make("span", { class: "tail" });
  #unheard = make("del", { class: "unheard" });
  #verdict = make("em", { class: "verdict", hidden: true });

  constructor(agentName) {
    const said = make("p", { class: "said" }, this.#sentences, this.#tail, this.#unheard, this.#verdict);
    this.element = make("div", { class: "speech agent", hidden: true }, make("p", { class: "speaker" }, agentName), said);
  }

  update(line) {
    const trouble = line.cut ? cutWords(line) : explainResponse(line.status);
    const silent = !hasWords(line);
    this.element.hidden = silent && line.sound === "none" && (line.cut || trouble === "");
    const words = line.sentences.reduce(joinPieces, "");
    const joint = words !== "" && line.tail !== "" && !/^\s/.test(line.tail) ? " " : "";
    const preview = `${joint}${line.tail.trimEnd()}`;
    const [heard, unheard] = line.cut ? divideByHearing(words + preview, line) : [words, ""];
    setText(this.#sentences, heard);
    setText(this.#tail, line.cut ? `${/\s$/.test(heard) || heard === "" ? "" : " "}— ` : preview);
    setText(this.#unheard, unheard);
    this.#tail.parentElement.classList.toggle("dots", silent && line.status === null && !line.cut);
    setText(this.#verdict, trouble);
    this.#verdict.hidden = trouble === "";
    if (line.cut) this.element.dataset.cut = "interrupted";
  }
}

function cutWords({ heardMs, receivedMs }) {
  if (heardMs === 0 && receivedMs > 0) return "interrupted before it was heard";
  return heardMs > 0 ? `interrupted after ${(heardMs / 1000).toFixed(1)} s` : "interrupted";
}

class ToolLine {
  #name = make("b");
  #outcome = make("span");
  element = make("p", { class: "aside tool" }, make("span", {}, "(", this.#name, " ", this.#outcome, ")"));

  update({ name, state, tookMs, error }) {
    setText(this.#name, String(name).replaceAll("_", " "));
    const took = tookMs === null || tookMs === undefined ? "" : ` ${duration(tookMs)}`;
    const words = { running: "…", done: `done${took === "" ? "" : ","}${took}`, failed: `failed${error ? `: ${error}` : ""}` };
    setText(this.#outcome, words[state]);
    this.element.classList.toggle("failed-tool", state === "failed");
  }
}

class ErrorLine {
  constructor(error) {
    const { what, advice, detail } = explainError(error);
    const words = make("span", {}, `${what} ${advice}`, detail === "" ? null : make("small", {}, detail));
    this.element = make("p", { class: "aside trouble", "data-code": error.code }, words);
  }

  update() {}
}

class Whisper {
  #kind;
  #limit;
  #text = make("span", { class: "words" });
  #short = make("span", { class: "short" });
  #fate = null;
  #folded = false;

  constructor({ type }) {
    this.#kind = make("span", { class: "kind" }, WHISPER_KINDS[type] ?? label(String(type).toLowerCase()));
    this.#limit = type === "SUPPORTING_CONTEXT" ? LONG_CONTEXT : LONG_WHISPER;
    this.element = make("div", { class: "whisper" }, this.#kind, this.#text);
  }

  update(whisper) {
    setText(this.#text, whisper.text);
    this.#fold(whisper.text);
    if (whisper.outcome === null) return;
    if (this.#fate === null) {
      this.#fate = make("small", { class: "fate" });
      this.element.append(this.#fate);
    }
    setText(this.#fate, fateWords(whisper));
    this.element.dataset.outcome = whisper.outcome;
  }

  #fold(text) {
    if (text.length <= this.#limit) return;
    setText(this.#short, preview(text));
    if (this.#folded) return;
    this.#folded = true; // for good: what somebody has opened is not taken out of his hands
    const details = make("details", {}, make("summary", {}, this.#kind, this.#short), this.#text);
    this.element.replaceChildren(details);
    if (this.#fate !== null) this.element.append(this.#fate);
  }
}

/* "pass 1 · 2.3 s · used in the next turn" */
function fateWords({ pass, afterMs, outcome, answeredIn }) {
  const used = { 0: "used in this turn", 1: "used in the next turn" }[answeredIn] ?? `used ${answeredIn} turns later`;
  const words = outcome === "used" ? used : (OUTCOMES[outcome] ?? label(String(outcome)));
  return [pass === null ? "" : `pass ${pass}`, duration(afterMs), words].filter(Boolean).join(" · ");
}

function passWords({ state, tookMs }, index) {
  if (state === null) return "";
  const words = { running: "planning …", planned: `planned in ${duration(tookMs ?? 0)}`, stopped: "planning stopped" };
  return `pass ${index + 1}: ${words[state]}`;
}

class Card {
  constructor({ name, data }) {
    const { title, name: ownName, ...fields } = data;
    const heading = make("h3", {}, plain(title ?? ownName ?? name));
    const entries = Object.entries(fields).slice(0, CARD_FIELDS);
    const list = make("dl", {}, ...entries.flatMap(([key, value]) => [make("dt", {}, label(key)), make("dd", {}, ...content(value))]));
    const card = make("div", { class: "card" }, heading, entries.length > 0 ? list : null);
    this.element = make("div", { class: "aside" }, card);
  }

  update() {}
}

class Handover {
  constructor({ name, data }) {
    const ref = String(data.agent ?? data.ref ?? name);
    const link = make("a", { href: `?agent=${encodeURIComponent(ref)}` }, plain(data.name ?? ref));
    this.element = make("p", { class: "aside" }, make("span", {}, "(hands you over to ", link, ")"));
  }

  update() {}
}

/* A card's value as nodes: links stay links, lists become lines, the rest is text. Nothing is fetched. */
function content(value) {
  if (Array.isArray(value)) return value.slice(0, CARD_FIELDS).map((item) => make("div", {}, ...content(item)));
  const text = plain(value);
  if (/^https?:\/\/\S+$/.test(text)) return [make("a", { href: text, target: "_blank", rel: "noopener noreferrer" }, text)];
  return [text];
}

function preview(text) {
  return text.length <= PREVIEW ? text : `${text.slice(0, PREVIEW).trimEnd()}…`;
}

function plain(value) {
  const text = typeof value === "object" && value !== null ? JSON.stringify(value) : String(value ?? "");
  return text.length > CARD_TEXT ? `${text.slice(0, CARD_TEXT)}…` : text;
}

function label(key) {
  return key.replaceAll("_", " ").replace(/([a-z])([A-Z])/g, (_, a, b) => `${a} ${b.toLowerCase()}`);
}

function duration(ms) {
  return ms < 1000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(1)} s`;
}
