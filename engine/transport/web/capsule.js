/* The page of one capsule: gets its timeline, and lets it be zoomed, scrubbed, searched and asked. */

import { admit, ask, close, explain, knownKey, show, takeKeyFromAddress } from "./capsule-door.js";
import { Timeline, bytes, clock, duration } from "./capsule-data.js";
import { Drawing } from "./capsule-drawing.js";
import { Panels, linkWords, relatedTo } from "./capsule-panels.js";
import { byId, make, setText } from "./dom.js";

const NEAREST = 0.05; // s: the least that a view shows
const MARGIN = 0.15; // of a view: how near to its edge the instant may come before it follows
const ZOOM = 1.6; // of a key or button
const FOUND = 30;
const MOVED = 4; // px: more is a drag, less a click
const LARGEST = 128 * 2 ** 20; // bytes, as the server takes them

let page = null;

class CapsulePage {
  instant = 0;
  chosen = null;
  #hovered = null;
  #related = [];
  #view;
  #timeline;
  #drawing;
  #panels;
  #isStale = { lanes: true, overlay: true, words: true };
  #scheduled = false;
  #aborting = new AbortController();
  #addressTimer = 0;
  frames = []; // ms that the last frames took to draw, for whoever measures

  constructor(name, document_) {
    this.#timeline = new Timeline(document_);
    this.#view = { from: 0, until: this.#timeline.length };
    byId("shown").hidden = false;
    byId("search-form").hidden = false;
    document.body.dataset.state = "shown";
    this.#describe(name, document_);
    this.#drawing = new Drawing(byId("drawing"), byId("overlay"), byId("overview"), this.#timeline);
    this.#panels = new Panels(this.#timeline, (item) => this.choose(item, { comes: true }));
    byId("scrub").setAttribute("aria-valuemax", this.#timeline.length.toFixed(3));
    this.#listen();
    this.#readAddress();
    this.#panels.showDetails(this.chosen);
    this.#drawing.measure();
    this.#draw();
  }

  get view() {
    return this.#view;
  }

  /* Where an instant stands in a lane, from the top left of the lanes; "ruler" is above them. */
  placeOf(instant, lane) {
    return { x: this.#drawing.x(instant, this.#view), y: this.#drawing.middleOf(lane) };
  }

  leave() {
    this.#aborting.abort();
  }

  #describe(name, { about, end, summary, length, leftOut }) {
    const agent = about.agent.replace(/^agent:/, "");
    document.title = `${agent || name} · capsule · Souffleur`;
    byId("title").replaceChildren(make("strong", {}, agent || "a session"), " ", make("code", {}, about.sessionId || name));
    const facts = [
      ["length", clock(length, 1)],
      ["turns", summary.turns],
      ["barge-ins", summary.bargeIns],
      ["answered in, median", summary.latencyP50 === null ? "—" : duration(summary.latencyP50)],
      ["slowest", summary.latencyMax === null ? "—" : duration(summary.latencyMax)],
      ["planning passes", summary.passes],
      ["whispers", summary.whispers],
      ["tools", summary.tools],
      ["cancelled", summary.cancellations],
      ["errors", summary.errors],
    ];
    if (about.began) facts.unshift(["began", new Date(about.began).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "medium" })]);
    byId("summary").replaceChildren(...facts.map(([what, value]) => make("li", { "data-bad": what === "errors" && value > 0 }, `${what} `, make("b", {}, String(value)))));
    const notes = [];
    if (end.state === "cut") notes.push(`Unfinished: ${end.why}.`);
    if (end.state === "full") notes.push(`Nothing more was kept: ${end.why}.`);
    if (about.redacted) notes.push("Without words and sound: they were taken out when it was recorded.");
    const left = Object.entries(leftOut).map(([what, count]) => `${count} ${what}`);
    if (left.length > 0) notes.push(`Too much to show all: left out or shortened were ${left.join(", ")}.`);
    byId("state").hidden = notes.length === 0;
    setText(byId("state"), notes.join(" "));
  }

  /* --- going somewhere */

  scrub(instant) {
    this.instant = Math.min(Math.max(instant, 0), this.#timeline.length);
    this.#isStale.words = true;
    this.#follow(this.instant);
    this.#changed();
  }

  #follow(instant) {
    const { from, until } = this.#view;
    const size = until - from;
    if (instant < from || instant > until) this.#look(instant - size / 2, instant + size / 2);
    else if (size < this.#timeline.length * 0.999) {
      if (instant < from + size * 0.02) this.#look(from - size * MARGIN, until - size * MARGIN);
      else if (instant > until - size * 0.02) this.#look(from + size * MARGIN, until + size * MARGIN);
    }
  }

  #look(from, until) {
    const length = this.#timeline.length;
    const size = Math.min(Math.max(until - from, NEAREST), length);
    const start = Math.min(Math.max(from, 0), length - size);
    this.#view = { from: start, until: start + size };
    this.#isStale.lanes = true;
    this.#changed();
  }

  zoom(factor, around = this.instant) {
    const { from, until } = this.#view;
    const place = Math.min(Math.max(around, from), until);
    const size = Math.min(Math.max((until - from) / factor, NEAREST), this.#timeline.length);
    const share = (place - from) / (until - from);
    this.#look(place - size * share, place + size * (1 - share));
  }

  pan(seconds) {
    this.#look(this.#view.from + seconds, this.#view.until + seconds);
  }

  fit() {
    this.#look(0, this.#timeline.length);
  }

  /* `comes`: the instant and the view come to it. */
  choose(item, { comes = false } = {}) {
    this.chosen = item;
    this.#related = item === null ? [] : relatedTo(this.#timeline, item);
    this.#panels.showDetails(item);
    if (item !== null && comes) {
      this.scrub(item.at);
      const { from, until } = this.#view;
      const size = Math.max((item.ends ?? item.at) - item.at, 0);
      if (until - from > 120) this.#look(item.at - 10, item.at + Math.max(20, size * 1.5));
    }
    this.#isStale.overlay = true;
    this.#changed();
  }

  #toCancel(direction) {
    const cancel = this.#timeline.cancelFrom(this.instant, direction);
    if (cancel !== null) this.choose(cancel, { comes: true });
  }

  #toNeighbour(direction) {
    const start = this.chosen?.lane === undefined ? this.#timeline.lane("turns").items.findLast((item) => item.at <= this.instant) : this.chosen;
    const item = start === undefined ? this.#timeline.lane("turns").items[0] : (this.chosen === start ? this.#timeline.neighbour(start, direction) : start);
    if (item !== undefined && item !== null) this.choose(item, { comes: true });
  }

  #chooseHere() {
    const { running } = this.#timeline.at(this.instant);
    const order = ["cancels", "whispers", "passes", "tools", "agent", "user", "legs", "outside", "turns"];
    const item = order.flatMap((name) => running.get(name)).find((each) => each !== this.chosen);
    if (item !== undefined) this.choose(item);
  }

  /* --- drawing */

  #changed() {
    this.#isStale.overlay = true;
    if (this.#scheduled) return;
    this.#scheduled = true;
    requestAnimationFrame(() => {
      this.#scheduled = false;
      this.#draw();
    });
  }

  #draw() {
    const began = performance.now();
    const { lanes, words } = this.#isStale;
    this.#isStale = { lanes: false, overlay: false, words: false };
    if (lanes) this.#drawing.drawLanes(this.#view);
    this.#drawing.drawOverlay({ view: this.#view, instant: this.instant, chosen: this.chosen, related: this.#related, hovered: this.#hovered });
    this.#drawing.drawOverview(this.#view, this.instant);
    if (words) this.#tell();
    this.frames.push(performance.now() - began);
    if (this.frames.length > 600) this.frames.shift();
  }

  #tell() {
    const words = this.#panels.showInstant(this.instant);
    setText(byId("clock"), clock(this.instant));
    byId("scrub").setAttribute("aria-valuenow", this.instant.toFixed(3));
    byId("scrub").setAttribute("aria-valuetext", words);
    byId("before-cancel").disabled = this.#timeline.cancelFrom(this.instant, -1) === null;
    byId("next-cancel").disabled = this.#timeline.cancelFrom(this.instant, 1) === null;
    clearTimeout(this.#addressTimer);
    this.#addressTimer = setTimeout(() => this.#writeAddress(), 400);
  }

  /* --- the address: an instant can be sent to somebody */

  #readAddress() {
    const found = new URLSearchParams(location.hash.slice(1));
    const item = this.#timeline.byId.get(found.get("item") ?? "");
    if (item !== undefined) this.choose(item, { comes: true });
    const instant = Number.parseFloat(found.get("t") ?? "");
    this.scrub(Number.isFinite(instant) ? instant : this.instant);
  }

  #writeAddress() {
    const told = new URLSearchParams({ t: this.instant.toFixed(3) });
    if (this.chosen !== null) told.set("item", this.chosen.id);
    history.replaceState(null, "", `${location.pathname}${location.search}#${told}`);
  }

  /* --- hands */

  #listen() {
    const { signal } = this.#aborting;
    const on = (element, kind, act, more = {}) => element.addEventListener(kind, act, { signal, ...more });
    on(document, "keydown", (event) => this.#key(event));
    on(byId("zoom-in"), "click", () => this.zoom(ZOOM));
    on(byId("zoom-out"), "click", () => this.zoom(1 / ZOOM));
    on(byId("fit"), "click", () => this.fit());
    on(byId("next-cancel"), "click", () => this.#toCancel(1));
    on(byId("before-cancel"), "click", () => this.#toCancel(-1));
    on(byId("lanes"), "wheel", (event) => this.#wheel(event), { passive: false });
    this.#listenToOverview(on);
    this.#listenToLanes(on);
    this.#listenToSearch(on);
    const redraw = () => {
      this.#drawing.measure();
      this.#isStale.lanes = true;
      this.#changed();
    };
    const watching = new ResizeObserver(redraw);
    watching.observe(byId("lanes"));
    signal.addEventListener("abort", () => watching.disconnect());
    on(matchMedia("(prefers-color-scheme: dark)"), "change", redraw);
  }

  #key(event) {
    const { key } = event;
    if (event.target instanceof HTMLInputElement) {
      if (key === "Escape") {
        event.target.blur();
        byId("found").hidden = true;
      }
      return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const isControl = event.target instanceof Element && event.target.closest("button, a, summary, label") !== null;
    const step = event.shiftKey ? 1 : 0.1;
    const acts = {
      ArrowLeft: () => this.scrub(this.instant - step),
      ArrowRight: () => this.scrub(this.instant + step),
      PageUp: () => this.scrub(this.instant - 10),
      PageDown: () => this.scrub(this.instant + 10),
      Home: () => this.scrub(0),
      End: () => this.scrub(this.#timeline.length),
      "[": () => this.#toNeighbour(-1),
      "]": () => this.#toNeighbour(1),
      c: () => this.#toCancel(1),
      C: () => this.#toCancel(-1),
      "+": () => this.zoom(ZOOM),
      "=": () => this.zoom(ZOOM),
      "-": () => this.zoom(1 / ZOOM),
      0: () => this.fit(),
      "/": () => byId("search").focus(),
      Escape: () => this.choose(null),
      ...(isControl ? {} : { Enter: () => this.#chooseHere() }),
    };
    const act = acts[key];
    if (act === undefined) return;
    event.preventDefault();
    act();
  }

  #wheel(event) {
    event.preventDefault();
    const seconds = (this.#view.until - this.#view.from) / (this.#drawing.width - this.#drawing.gutter);
    const scale = event.deltaMode === 1 ? 16 : 1;
    const across = event.shiftKey && event.deltaX === 0 ? event.deltaY : event.deltaX;
    if (Math.abs(across) > Math.abs(event.deltaY) || event.shiftKey) this.pan(across * scale * seconds);
    else this.zoom(Math.exp(-event.deltaY * scale * (event.ctrlKey ? 0.01 : 0.002)), this.#instantAt(event));
  }

  #instantAt({ clientX }) {
    return this.#drawing.instant(clientX - byId("lanes").getBoundingClientRect().left, this.#view);
  }

  #listenToOverview(on) {
    const scrub = byId("scrub");
    const go = ({ clientX }) => {
      const { left, width } = scrub.getBoundingClientRect();
      this.scrub(((clientX - left) / width) * this.#timeline.length);
    };
    on(scrub, "pointerdown", (event) => {
      scrub.setPointerCapture(event.pointerId);
      go(event);
    });
    on(scrub, "pointermove", (event) => scrub.hasPointerCapture(event.pointerId) && go(event));
  }

  #listenToLanes(on) {
    const lanes = byId("lanes");
    const down = new Map(); // pointer -> {x, y}
    let drag = null; // {kind: "scrub" | "pan" | "pinch", x, y, from, moved}
    const local = ({ clientX, clientY }) => {
      const { left, top } = lanes.getBoundingClientRect();
      return { x: clientX - left, y: clientY - top };
    };
    on(lanes, "pointerdown", (event) => {
      if (event.button !== 0) return;
      const place = local(event);
      down.set(event.pointerId, place);
      lanes.setPointerCapture(event.pointerId);
      if (down.size === 2) drag = { kind: "pinch", size: spread(down), view: this.#view, moved: true };
      else drag = { kind: this.#drawing.isRuler(place.y) ? "scrub" : "pan", ...place, view: this.#view, moved: false };
      if (drag.kind === "scrub") this.scrub(this.#drawing.instant(place.x, this.#view));
    });
    on(lanes, "pointermove", (event) => {
      const place = local(event);
      if (drag === null || !down.has(event.pointerId)) {
        this.#hover(place, event);
        return;
      }
      down.set(event.pointerId, place);
      if (drag.kind === "scrub") this.scrub(this.#drawing.instant(place.x, this.#view));
      else if (drag.kind === "pinch") this.#pinch(drag, down);
      else if (drag.moved || Math.abs(place.x - drag.x) > MOVED) {
        drag.moved = true;
        const { from, until } = drag.view;
        const seconds = ((drag.x - place.x) / (this.#drawing.width - this.#drawing.gutter)) * (until - from);
        this.#look(from + seconds, until + seconds);
      }
    });
    const up = (event) => {
      const place = down.get(event.pointerId);
      down.delete(event.pointerId);
      if (place !== undefined && drag?.kind === "pan" && !drag.moved && event.type === "pointerup") this.#click(place);
      if (down.size === 0) drag = null;
    };
    on(lanes, "pointerup", up);
    on(lanes, "pointercancel", up);
    on(lanes, "pointerleave", () => this.#hover(null));
  }

  #click({ x, y }) {
    const item = this.#drawing.find(x, y, this.#view);
    const instant = this.#drawing.instant(x, this.#view);
    const isInstant = item !== null && item.ends - item.at < (this.#view.until - this.#view.from) / 300;
    this.scrub(isInstant ? item.at : instant);
    this.choose(item);
  }

  #hover(place, event) {
    const item = place === null ? null : this.#drawing.find(place.x, place.y, this.#view);
    const tip = byId("tip");
    if (item !== null) {
      setText(tip, `${linkWords(item)}${item.reason && item.lane !== "cancels" ? ` — ${item.reason}` : ""}`);
      tip.hidden = event.pointerType === "touch";
      const { width } = this.#drawing;
      tip.style.left = `${Math.min(Math.max(place.x + 12, 0), Math.max(0, width - tip.offsetWidth - 4))}px`;
      tip.style.top = `${place.y + 18}px`;
    } else tip.hidden = true;
    if (item === this.#hovered) return;
    this.#hovered = item;
    this.#changed();
  }

  #pinch(drag, down) {
    const now = spread(down);
    const { from, until } = drag.view;
    const size = Math.min(Math.max(((until - from) * drag.size.distance) / Math.max(now.distance, 8), NEAREST), this.#timeline.length);
    const middle = this.#drawing.instant(drag.size.middle, drag.view);
    const share = (now.middle - this.#drawing.gutter) / (this.#drawing.width - this.#drawing.gutter);
    this.#look(middle - size * share, middle + size * (1 - share));
  }

  #listenToSearch(on) {
    const input = byId("search");
    const list = byId("found");
    on(input, "input", () => {
      const { items, count } = this.#timeline.search(input.value, FOUND);
      const buttons = items.map((item) => {
        const button = make("button", { type: "button", class: "item", "data-id": item.id }, linkWords(item));
        button.addEventListener("click", () => {
          list.hidden = true;
          this.choose(item, { comes: true });
          byId("scrub").focus();
        });
        return make("li", {}, button);
      });
      const more = count > items.length ? [make("li", { class: "quiet small" }, `and ${count - items.length} more`)] : [];
      list.replaceChildren(...buttons, ...more);
      list.hidden = input.value.trim() === "";
      if (count === 0) list.replaceChildren(make("li", { class: "quiet small" }, "Nothing has that in it."));
      setText(byId("found-count"), input.value.trim() === "" ? "" : `${count} found`);
    });
    on(byId("search-form"), "submit", (event) => {
      event.preventDefault();
      list.querySelector("button")?.click();
    });
    on(input, "focus", () => {
      list.hidden = input.value.trim() === "";
    });
    on(document, "pointerdown", (event) => {
      if (!byId("search-form").contains(event.target)) list.hidden = true;
    });
  }
}

function spread(down) {
  const [one, other] = [...down.values()];
  return { distance: Math.abs(one.x - other.x), middle: (one.x + other.x) / 2 };
}

/* --- opening */

function open(name, timeline) {
  close();
  page?.leave();
  page = new CapsulePage(name, timeline);
  Object.assign(globalThis.souffleur, { page, drawnAt: performance.now() });
}

/* What the address names; gives what `ask` gives. */
async function openNamed(name) {
  show("Opening the capsule…", "");
  const answer = await ask(`${encodeURIComponent(name)}/timeline`);
  if (answer.status === 200) open(name, answer.body);
  return answer;
}

/* A file the reader has: the server reads it, and keeps nothing of it. */
async function openFile(file) {
  if (file.size > LARGEST) {
    explain({ status: 413, body: { detail: `${file.name} has ${bytes(file.size)}; a page shows up to ${bytes(LARGEST)}.` } });
    return { status: 200 };
  }
  show(`Reading ${file.name}…`, "");
  const answer = await ask("view", { method: "POST", body: file });
  if (answer.status !== 200) {
    byId("shown").hidden = true;
    return answer;
  }
  history.replaceState(null, "", "view");
  open(file.name, answer.body);
  return answer;
}

function offerFile() {
  byId("file-choice").hidden = false;
  show("Open a capsule", "Choose a file, or drop one anywhere on this page. This server reads it and keeps nothing of it.");
}

takeKeyFromAddress();
globalThis.souffleur = { page: null };
const named = decodeURIComponent(location.pathname.split("/").at(-1));
let waiting = null; // a file that was dropped before there was a key
const openIt = () => {
  if (waiting !== null) return openFile(waiting);
  if (named !== "view") return openNamed(named);
  offerFile();
  return Promise.resolve({ status: 200 });
};
admit(openIt);

function take(file) {
  waiting = file;
  if (knownKey() === "") show("Capsules hold conversations.", "So the server asks who you are, once, before it reads yours.", true);
  else openFile(file).then((answer) => answer.status === 200 || explain(answer));
}

byId("file").addEventListener("change", ({ target }) => target.files.length > 0 && take(target.files[0]));
document.addEventListener("dragover", (event) => event.preventDefault());
document.addEventListener("drop", (event) => {
  event.preventDefault();
  const file = event.dataTransfer?.files[0];
  if (file !== undefined) take(file);
});
