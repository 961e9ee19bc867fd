/* Draws the page from a conversation's state, at most once per frame, and touches only what has changed. */

import { byId, make, setText } from "./dom.js";
import { TurnView } from "./turn-view.js";
import { explainError } from "./words.js";

/* Finished sentences kept for screen readers; they have been read by then. */
const ANNOUNCED = 12;

/* Nearer to the end than this (px), the reader follows the conversation. */
const FOLLOWING = 80;

export class View {
  #conversation = null;
  #status = { waitingForMicrophone: false, microphone: "off", problem: null };
  #turns = new Map(); // turn key -> TurnView
  #scheduled = false;
  #following = true;
  #main = document.querySelector("main");
  #noticesShown = "";
  #dismiss;

  /* `dismiss(notice)`: the reader has seen it. */
  constructor(dismiss) {
    this.#dismiss = dismiss;
    this.#main.addEventListener("scroll", () => {
      this.#following = this.#distance() < FOLLOWING;
      if (this.#following) byId("to-now").hidden = true;
    });
    byId("to-now").addEventListener("click", () => this.#toNow());
    // What grows below the fold must not push the last line out of sight.
    new ResizeObserver(() => this.#following && this.#toNow()).observe(this.#main);
  }

  /* A new conversation takes the stage. */
  stage(conversation) {
    this.#conversation = conversation;
    this.#turns.clear();
    this.#following = true;
    byId("turns").replaceChildren();
    byId("announcer").replaceChildren();
    this.draw();
  }

  /* `status`: {waitingForMicrophone, microphone: "off" | "on" | "muted", problem: what explainMicrophone says, or null} */
  draw(status = {}) {
    Object.assign(this.#status, status);
    if (this.#scheduled) return;
    this.#scheduled = true;
    requestAnimationFrame(() => {
      this.#scheduled = false;
      this.#draw();
    });
  }

  level(peak) {
    document.documentElement.style.setProperty("--level", Math.min(1, peak * 1.6).toFixed(2));
  }

  announce(text) {
    const announcer = byId("announcer");
    announcer.append(make("p", {}, text));
    while (announcer.children.length > ANNOUNCED) announcer.firstChild.remove();
  }

  alarm({ what, advice }) {
    setText(byId("alarm"), `${what} ${advice}`);
  }

  #draw() {
    const conversation = this.#conversation;
    const phase = conversation?.phase ?? "idle";
    const { floor = "idle" } = conversation ?? {};
    Object.assign(document.body.dataset, { phase, floor });
    byId("casting").hidden = phase !== "idle";
    byId("script").hidden = phase === "idle";
    byId("dock").hidden = phase === "idle";
    byId("controls").hidden = phase === "ended";
    byId("curtain").hidden = phase !== "ended";
    byId("partner").hidden = phase === "idle";
    document.title = conversation === null ? "Souffleur" : `${conversation.agent.name} · Souffleur`;
    if (conversation === null) return;
    setText(byId("partner-name"), conversation.agent.name);
    this.#drawTurns(conversation);
    this.#drawDock(conversation, floor);
    if (this.#following) this.#toNow();
    else byId("to-now").hidden = phase === "ended" || this.#distance() < FOLLOWING;
  }

  #drawTurns(conversation) {
    const list = byId("turns");
    const keys = new Set(conversation.turns.map((turn) => turn.key));
    for (const [key, view] of this.#turns) {
      if (keys.has(key)) continue;
      view.element.remove();
      this.#turns.delete(key);
    }
    for (const turn of conversation.turns) {
      let view = this.#turns.get(turn.key);
      if (view === undefined) {
        view = new TurnView(conversation.agent.name);
        this.#turns.set(turn.key, view);
        list.append(view.element);
      }
      view.update(turn);
    }
    const whispered = conversation.turns.some((turn) => turn.whispers.some((line) => line.kind === "whisper"));
    byId("no-whispers").hidden = whispered || conversation.dropped > 0;
    byId("dropped").hidden = conversation.dropped === 0;
    setText(byId("dropped"), `${conversation.dropped} earlier turns have left the stage.`);
    byId("pending").hidden = conversation.pendingTyped.length === 0;
    byId("pending").replaceChildren(...conversation.pendingTyped.map(drawPending));
    byId("evaluations").hidden = conversation.evaluations.length === 0;
    byId("evaluation-list").replaceChildren(...conversation.evaluations.map(drawEvaluation));
  }

  #drawDock(conversation, floor) {
    const { microphone } = this.#status;
    setText(byId("floor-words"), this.#floorWords(conversation, floor));
    document.body.toggleAttribute("data-silent", floor === "open" && microphone !== "on");
    byId("interrupt").hidden = !conversation.interruptible;
    byId("microphone").dataset.state = microphone;
    setText(byId("microphone-words"), { off: "Microphone", on: "Mute", muted: "Unmute" }[microphone]);
    byId("microphone-icon").setAttribute("href", microphone === "on" ? "#i-mic" : "#i-mic-off");
    setText(byId("end-words"), { connecting: "Cancel", lost: "Give up", ending: "Leave now" }[conversation.phase] ?? "End");
    this.#drawNotices(conversation);
    if (conversation.ending === null) return;
    const { what, advice, again } = conversation.ending;
    setText(byId("curtain-what"), what);
    setText(byId("curtain-advice"), advice);
    setText(byId("again"), again === "resume" ? "Pick up again" : "Talk again");
  }

  #floorWords({ agent, retry, phase }, floor) {
    const { microphone, waitingForMicrophone } = this.#status;
    if (phase === "connecting" && waitingForMicrophone) return "Your browser asks whether this page may use the microphone…";
    const open = { on: "Listening", muted: "Microphone muted; you can type", off: "Your line" }[microphone];
    const words = {
      connecting: `Calling ${agent.name}…`,
      open,
      user: "You are speaking",
      thinking: `${agent.name} is thinking`,
      agent: `${agent.name} is speaking`,
      lost: retry === null ? "Reconnecting…" : `Connection lost. Reconnecting, try ${retry.attempt} of ${retry.attempts}…`,
      ending: "Ending the conversation…",
    };
    return words[floor] ?? "";
  }

  #drawNotices({ notices }) {
    const { problem } = this.#status;
    const shown = problem === null ? notices : [...notices, problem];
    const key = JSON.stringify(shown);
    if (key === this.#noticesShown) return; // drawn only when changed: a button in it may have the focus
    this.#noticesShown = key;
    byId("notices").replaceChildren(...shown.map((notice) => drawNotice(notice, this.#dismiss)));
  }

  #distance() {
    return this.#main.scrollHeight - this.#main.scrollTop - this.#main.clientHeight;
  }

  #toNow() {
    this.#following = true;
    this.#main.scrollTop = this.#main.scrollHeight;
    byId("to-now").hidden = true;
  }
}

function drawNotice(notice, dismiss) {
  const { code, what, advice, detail } = notice.error ? explainError(notice.error) : notice;
  const cross = make("span", { "aria-hidden": "true" }, "×");
  const close = make("button", { type: "button", class: "link" }, cross, make("span", { class: "unseen" }, "Dismiss"));
  close.addEventListener("click", () => dismiss(notice));
  const words = [what, advice, detail].filter(Boolean).join(" ");
  return make("li", { class: notice.tone ?? "warning", "data-code": code }, make("span", {}, words), close);
}

function drawPending({ text, lost }) {
  const said = make("p", { class: "said" }, text, lost ? make("em", { class: "verdict" }, "not answered") : null);
  return make("li", { class: `turn${lost ? " lost" : ""}` }, make("div", { class: "dialogue" }, make("div", { class: "speech user" }, make("p", { class: "speaker" }, "You"), said)));
}

function drawEvaluation({ name, score, reasons }) {
  const marks = score === null ? "" : ` ${Math.round(score * 100) / 100}`;
  return make("li", {}, make("b", {}, `${name}${marks}`), reasons.length > 0 ? ` — ${reasons.join(" ")}` : "");
}
