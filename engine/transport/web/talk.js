/* The talk page: puts the microphone, the line, the conversation, the player and the view together. */

import { Connection } from "./connection.js";
import { Conversation } from "./conversation.js";
import { byId, make } from "./dom.js";
import { INPUT_RATE, Microphone, MicrophoneRefused } from "./microphone.js";
import { OUTPUT_RATE, Player } from "./player.js";
import { View } from "./view.js";
import { explainEnd, explainError, explainMicrophone } from "./words.js";

/* An agent that has not come on stage by then (ms) does not come. */
const READY_LIMIT = 20000;

/* The server's own limit for the end of a session is 20 s; a little more for the way. */
const END_LIMIT = 25000;

/* The server counts on from the last report, as it does not see the hand that stopped an answer: until the user goes on it is
   told this often (ms) that no more is heard. */
const STOPPED_REPORT = 250;

/* It is told so for this long (ms), in case the user says nothing more. */
const STOPPED_LIMIT = 60000;

const view = new View(dismiss);
const player = new Player(hearPlayer);
let conversation = null;
let connection = null;
let microphone = null;
let agents = [];
let wantsMicrophone = false; // what the user chose, for "talk again"
let sessionId = null;
let endedByUser = false;
let deadline = null; // timer for `ready`, later for `session-end`
let stopped = null; // the timer that speaks of an answer stopped by hand
const cuts = []; // how long the last silences took, ms from the message to the audio thread's word

// --- the cast --------------------------------------------------------------------------------------------------------

async function readCast() {
  const wanted = new URLSearchParams(location.search).get("agent");
  const note = byId("cast-note");
  try {
    agents = await fetchAgents();
  } catch {
    note.textContent = "The cast list could not be read. Check that the server is running, then reload this page.";
    note.className = "trouble";
    if (wanted === null) return;
  }
  // An agent can be known by its link only; it comes first then, under its plain name.
  if (wanted !== null && !agents.some(({ ref }) => ref === wanted)) agents.unshift({ ref: wanted, name: wanted });
  if (agents.length === 0) {
    note.textContent = "There is no agent here yet. Start the server with a project file that publishes one.";
    return;
  }
  note.hidden = note.className !== "trouble";
  const chosen = agents.find(({ ref }) => ref === wanted) ?? agents[0];
  byId("cast-list").replaceChildren(...agents.map((agent) => castLine(agent, agent === chosen)));
  byId("begin").disabled = byId("begin-typing").disabled = false;
}

async function fetchAgents() {
  const found = [];
  let after = null;
  // Ten pages of a hundred: more than anyone scrolls through.
  for (let page = 0; page < 10; page += 1) {
    const query = after === null ? "" : `?${new URLSearchParams({ after })}`;
    const answer = await fetch(new URL(`api/agents${query}`, document.baseURI), { headers: { accept: "application/json" } });
    if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
    const { items, next } = await answer.json();
    found.push(...items.map(({ ref, name }) => ({ ref, name: name || ref })));
    if (next === null || next === undefined) break;
    after = next;
  }
  return found;
}

function castLine({ ref, name }, checked) {
  const input = make("input", { type: "radio", name: "agent", value: ref, checked });
  return make("label", {}, input, make("span", {}, name), name === ref ? null : make("span", {}, ref));
}

function chosenAgent() {
  const ref = document.querySelector("#cast-list input:checked").value;
  return agents.find((agent) => agent.ref === ref);
}

// --- a conversation --------------------------------------------------------------------------------------------------

async function begin(agent, withMicrophone, resumed = null) {
  if (conversation !== null && conversation.phase !== "ended") return;
  const own = new Conversation(agent);
  player.cut(); // the last one's goodbye may still sound
  conversation = own;
  sessionId = resumed;
  endedByUser = false;
  wantsMicrophone = withMicrophone;
  history.replaceState(null, "", `?${new URLSearchParams({ agent: agent.ref })}`);
  view.stage(own);
  apply({ kind: "connecting" });
  const sounding = player.start().catch(() => apply({ kind: "notice", notice: noSound() }));
  if (withMicrophone) await openMicrophone();
  await sounding;
  if (conversation !== own || own.phase !== "connecting") return; // cancelled meanwhile
  connection = new Connection(pipelineAddress(agent), parameters(), hearConnection);
  if (resumed !== null) connection.remember(resumed);
  connection.open();
}

function awaitReady() {
  clearTimeout(deadline);
  const ending = { what: `${conversation.agent.name} does not answer.`, advice: "Try again in a moment.", again: "new" };
  deadline = setTimeout(() => finish(ending), READY_LIMIT);
}

function pipelineAddress({ ref }) {
  const address = new URL(`api/pipeline/agent:${encodeURIComponent(ref)}`, document.baseURI);
  address.protocol = address.protocol === "https:" ? "wss:" : "ws:";
  return address.href;
}

function parameters() {
  return {
    wire: "binary",
    tokens: "true",
    partials: "true",
    inputSampleRate: String(microphone?.rate ?? INPUT_RATE),
    outputSampleRate: String(OUTPUT_RATE),
    timeZone: Intl.DateTimeFormat().resolvedOptions().timeZone ?? "UTC",
    locales: (navigator.languages ?? [navigator.language]).join(","),
    deviceRef: deviceRef(),
  };
}

/* Who this browser is, as long as it keeps it: 128 random bits, known to nobody else. */
function deviceRef() {
  const key = "souffleur.deviceRef";
  const made = Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
  try {
    const kept = localStorage.getItem(key) ?? made;
    localStorage.setItem(key, kept);
    return kept;
  } catch {
    deviceRef.made ??= made; // storage is forbidden: the page's life has to do
    return deviceRef.made;
  }
}

/* The one door into the state: every event passes here, and its effects are carried out at once. */
function apply(event) {
  const now = performance.now();
  for (const effect of conversation.apply(event, now)) {
    switch (effect.kind) {
      case "silence":
        letGoOfStopped();
        player.cut().then(() => cuts.push(performance.now() - now) > 16 && cuts.shift());
        break;
      case "complete":
        player.end(effect.responseId);
        break;
      case "announce":
        view.announce(effect.text);
        break;
      case "alert":
        view.alarm(explainError(effect.error));
        break;
      case "ready":
        clearTimeout(deadline);
        sessionId = effect.parameters.sessionId;
        connection.remember(sessionId);
        conversation.apply({ kind: "asked" }, now);
        connection.send({ type: "action", name: "intro" });
        view.announce(`Connected with ${conversation.agent.name}.`);
        break;
      case "over":
        finish(explainEnd({ end: effect.parameters, error: conversation.lastFatal, byUser: endedByUser, agent: conversation.agent.name }));
        break;
    }
  }
  draw();
}

function draw() {
  view.draw({ microphone: microphone === null ? "off" : microphone.muted ? "muted" : "on" });
}

function hearConnection(event) {
  switch (event.kind) {
    case "open":
      awaitReady();
      break;
    case "message":
      apply({ kind: "message", message: event.message });
      break;
    case "audio":
      hearAudio(event.data);
      break;
    case "lost":
      clearTimeout(deadline);
      if (endedByUser) return finish(explainEnd({ byUser: true }));
      apply(event);
      view.alarm({ what: "The connection was lost.", advice: "Reconnecting." });
      break;
    case "closed": {
      const { lastFatal: error, agent } = conversation;
      finish(explainEnd({ error, closed: event, byUser: endedByUser, agent: agent.name }));
      break;
    }
  }
}

function hearAudio(data) {
  if (!player.open) return; // no sound here; the words are read
  const run = conversation.audioFor(data.byteLength);
  if (run !== null) player.push(run.responseId, data, run.sampleRate);
}

function hearPlayer(event) {
  if (event.kind === "level") {
    if (conversation?.floor !== "user") view.level(event.peak);
    return;
  }
  if (conversation === null) return;
  if (event.kind !== "start" && event.kind !== "starved") report(event.id, event.ms);
  if (event.kind === "end" || event.kind === "cut") view.level(0);
  apply({ kind: "player", state: event.kind, responseId: event.id, playedMs: event.ms });
}

function report(responseId, playedMs) {
  connection?.send({ type: "playback", responseId, playedMs });
}

/* The user has heard enough. The server learns it from the reports, which from now on stand still. */
function interrupt() {
  if (conversation === null || !conversation.interruptible) return;
  const { sounding } = conversation;
  apply({ kind: "interrupt" });
  view.announce("Interrupted.");
  if (sounding === null) return;
  const until = performance.now() + STOPPED_LIMIT;
  stopped = setInterval(() => {
    report(sounding, conversation.heardMs(sounding));
    if (performance.now() > until) letGoOfStopped();
  }, STOPPED_REPORT);
}

function letGoOfStopped() {
  clearInterval(stopped);
  stopped = null;
}

function say(text) {
  if (!conversation || conversation.phase !== "live" || !connection.send({ type: "text", text })) return false;
  apply({ kind: "typed", text });
  return true;
}

/* The user's wish to leave: the server is asked, and given time; a second wish is obeyed at once. */
function leave() {
  if (conversation === null || conversation.phase === "ended") return;
  endedByUser = true;
  const asked = conversation.phase === "live" && connection.send({ type: "token", text: "#exit" });
  if (!asked) {
    finish(explainEnd({ byUser: true }));
    return;
  }
  apply({ kind: "ending" });
  deadline = setTimeout(() => finish(explainEnd({ byUser: true })), END_LIMIT);
}

function finish(ending) {
  clearTimeout(deadline);
  letGoOfStopped();
  connection?.close();
  connection = null;
  closeMicrophone();
  if (endedByUser) player.cut();
  const lostFocus = byId("controls").contains(document.activeElement);
  apply({ kind: "ended", ending });
  view.alarm(ending);
  // The controls go; whoever was in them is put before the next choice, nobody else is moved.
  if (lostFocus) afterDrawing(() => byId("again").focus());
}

function afterDrawing(act) {
  requestAnimationFrame(() => requestAnimationFrame(act));
}

// --- the microphone --------------------------------------------------------------------------------------------------

async function openMicrophone() {
  const own = conversation;
  view.draw({ waitingForMicrophone: true, problem: null });
  try {
    const opened = await Microphone.open(passFrame, loseMicrophone);
    if (conversation !== own || own.phase === "ended" || microphone !== null) await opened.close(); // too late
    else microphone = opened;
  } catch (error) {
    const problem = explainMicrophone(error instanceof MicrophoneRefused ? error.reason : "failed");
    view.draw({ problem });
    view.alarm(problem);
  }
  view.draw({ waitingForMicrophone: false });
  draw();
}

function passFrame(buffer, peak) {
  connection?.sendAudio(buffer);
  if (conversation.floor === "user") view.level(peak);
}

function loseMicrophone() {
  closeMicrophone();
  view.draw({ problem: explainMicrophone("lost") });
  draw();
}

function closeMicrophone() {
  microphone?.close();
  microphone = null;
}

async function pressMicrophone() {
  if (microphone !== null) {
    microphone.muted = !microphone.muted;
    view.announce(microphone.muted ? "Microphone muted." : "Microphone on.");
    draw();
    return;
  }
  await openMicrophone();
  // The line was opened for another rate: the same session, on a line that fits.
  if (microphone !== null && conversation.phase === "live" && microphone.rate !== INPUT_RATE) {
    apply({ kind: "lost", attempt: 1, attempts: 1, delayMs: 0 });
    connection.reopen({ inputSampleRate: String(microphone.rate) });
  }
}

function dismiss(notice) {
  view.draw({ problem: null });
  if (conversation !== null) apply({ kind: "dismiss", notice });
}

function noSound() {
  return { tone: "warning", what: "This browser does not let the page play sound.", advice: "You can read the answers." };
}

// --- the user's hands ------------------------------------------------------------------------------------------------

byId("cast-form").addEventListener("submit", (event) => {
  event.preventDefault();
  begin(chosenAgent(), true);
  afterDrawing(() => byId("script").focus({ preventScroll: true }));
});

byId("begin-typing").addEventListener("click", () => {
  begin(chosenAgent(), false);
  afterDrawing(() => byId("line").focus());
});

byId("type-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const line = byId("line");
  if (line.value.trim() === "" || !say(line.value.trim())) return; // unsent words stay where they are
  line.value = "";
});

byId("microphone").addEventListener("click", pressMicrophone);
byId("interrupt").addEventListener("click", interrupt);
byId("end").addEventListener("click", leave);

byId("again").addEventListener("click", () => {
  const resumed = conversation.ending.again === "resume" ? sessionId : null;
  begin(conversation.agent, wantsMicrophone, resumed);
  afterDrawing(() => (wantsMicrophone ? byId("script") : byId("line")).focus({ preventScroll: true }));
});

byId("other").addEventListener("click", () => {
  conversation = null;
  view.stage(null);
  player.cut();
  afterDrawing(() => document.querySelector("#cast-list input:checked")?.focus());
});

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && !event.isComposing) interrupt();
});

// Phones take the sound away (a call, another app); the next touch brings it back.
document.addEventListener("pointerdown", () => player.suspended && player.resume());
window.addEventListener("online", () => connection?.hurry());
setInterval(() => conversation?.phase === "live" && apply({ kind: "tick" }), 1000);

/* For the curious, and for tests: looking only. */
window.souffleur = Object.freeze({
  counters: () => player.counters(),
  loudness: () => player.loudness(),
  cuts: () => [...cuts],
  floor: () => conversation?.floor ?? "idle",
});

readCast();
