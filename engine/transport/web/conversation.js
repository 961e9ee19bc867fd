/* The conversation as a person sees it: what the server says, and when, becomes turns. Pure: no DOM, no clock, no socket.

   `apply(event, now)` takes one event and the time in ms, changes the state, and returns what has to be done outside:
     {kind: "silence"}            stop the player at once
     {kind: "announce", text}     a finished sentence, for those who listen to a screen reader
     {kind: "complete", responseId}  no more audio of this run is coming
     {kind: "alert", error}       an error element, to be explained
     {kind: "ready", parameters}  the session stands
     {kind: "over", parameters}   the session has ended

   Laws:
   1. What belongs to a response that was cut is dropped by its id, and what the agent says in a turn the user has gone on
      from by the turn's, however late it comes: its words are not shown, its sound is not played (`audioFor`: null).
   2. An interim transcript cuts every response that is still being said or still to be heard, and the answer says so.
   3. Tokens are only a preview: the sentence that follows replaces them.
   4. At most `turnLimit` turns are kept; what comes for one that has left is ignored. */

import { consume, joinPieces } from "./text.js";
import {
  hasWords,
  isAnswered,
  isEmpty,
  isOver,
  isUnheard,
  makeSpeech,
  makeTurn,
  makeWhisper,
  passNumber,
  stopPasses,
  touch,
} from "./turn.js";

export const TURN_LIMIT = 200;

/* How many ids of responses and turns that are gone are remembered, to recognize what comes late. */
const REMEMBERED = 512;

/* The page has room for so many notices and evaluations; older ones give way. */
const NOTICES = 5;
const EVALUATIONS = 20;

/* Without a word from the user for this long (ms) after speech was noticed, it was a cough. The longer one is for
   recognizers that tell no partial words. */
const SILENT_AFTER_PARTIAL = 4000;
const SILENT_AFTER_INTERIM = 15000;

export class Conversation {
  phase = "idle"; // "connecting", "live", "lost", "ending", "ended"
  turns = [];
  dropped = 0; // turns that have left because there were too many
  pendingTyped = []; // {text, at, lost}: sent and not yet echoed
  notices = []; // {tone: "warning" | "error", ...}: a warning has `what`, an error `error`
  evaluations = []; // {name, score, reasons}
  retry = null; // {attempt, attempts, delayMs}, while the line is lost
  ending = null; // what `explainEnd` says, when ended
  lastFatal = null; // the last error that ends a session

  #turnLimit;
  #keys = 0;
  #latest = new Map(); // turn id -> the newest entry shown under it
  #departed = new Set(); // ids of turns that have left for good
  #dead = new Set(); // ids of responses that were cut
  #run = null; // the open binary run: {responseId, sampleRate}
  #playing = null; // the response that sounds at the moment
  #askedAt = null; // when the opening was asked for

  constructor(agent = { ref: "", name: "" }, turnLimit = TURN_LIMIT) {
    this.agent = agent;
    this.#turnLimit = turnLimit;
  }

  apply(event, now) {
    const effects = [];
    switch (event.kind) {
      case "message":
        this.#message(event.message, now, effects);
        break;
      case "player":
        this.#player(event, now);
        break;
      case "typed":
        this.pendingTyped.push({ text: event.text, at: now, lost: false });
        break;
      case "interrupt":
        if (this.#cut(null)) effects.push({ kind: "silence" });
        break;
      case "tick":
        this.#tick(now);
        break;
      case "connecting":
        this.phase = "connecting";
        break;
      case "asked":
        this.#askedAt = now;
        break;
      case "notice":
        this.#notice(event.notice);
        break;
      case "dismiss":
        this.notices = this.notices.filter((notice) => notice !== event.notice);
        break;
      case "lost":
        this.phase = "lost";
        this.retry = { attempt: event.attempt, attempts: event.attempts, delayMs: event.delayMs };
        this.#forsake();
        this.#endSteering();
        effects.push({ kind: "silence" });
        break;
      case "ending":
        this.phase = "ending";
        this.#cut(null);
        effects.push({ kind: "silence" });
        break;
      case "ended":
        this.phase = "ended";
        this.retry = null;
        this.ending = event.ending;
        this.notices = this.notices.filter((notice) => notice.error !== this.lastFatal || notice.error === undefined);
        this.turns.forEach((turn) => this.#quiet(turn));
        this.#endSteering();
        this.pendingTyped.forEach((typed) => (typed.lost = true));
        break;
    }
    return effects;
  }

  /* Where a binary frame belongs: {responseId, sampleRate}, or null when nobody is to hear it. */
  audioFor(byteLength) {
    if (this.#run === null || byteLength === 0) return null;
    const response = this.#responseOf(this.#run.responseId);
    if (response !== null) {
      if (response.sound === "none") response.sound = "queued";
      response.receivedMs += (byteLength * 500) / this.#run.sampleRate; // PCM16: two bytes a sample
    }
    return this.#run;
  }

  /* Who has the floor: the phase when it is not "live", else "user", "agent", "thinking" or "open". */
  get floor() {
    if (this.phase !== "live") return this.phase;
    if (this.turns.some((turn) => turn.user.speaking)) return "user";
    if (this.#playing !== null) return "agent";
    const last = this.turns.at(-1);
    const responses = last === undefined ? [] : last.lines.filter((line) => line.kind === "speech");
    if (responses.some((line) => !isOver(line) && hasWords(line))) return "agent";
    const waits = last !== undefined && last.timing.transcript !== null && !last.closed && responses.length === 0;
    return waits || this.pendingTyped.some((typed) => !typed.lost) ? "thinking" : "open";
  }

  /* The id of the response that sounds at the moment, or null. */
  get sounding() {
    return this.#playing;
  }

  heardMs(responseId) {
    return this.#responseOf(responseId)?.heardMs ?? 0;
  }

  get interruptible() {
    return this.phase === "live" && (this.#playing !== null || this.turns.some((turn) => turn.lines.some(isUnheard)));
  }

  // --- messages ---------------------------------------------------------------------------------------------------

  #message(message, now, effects) {
    switch (message?.type) {
      case "command":
        this.#command(message.name, message.parameters ?? {}, now, effects);
        break;
      case "transcript":
        if (message.isInterim) this.#interim(message, now, effects);
        else this.#final(message, now, effects);
        break;
      case "partial":
        this.#onUser(message.turnId, now, (turn) => {
          turn.user.partial = message.text;
          turn.timing.lastPartial = now;
        });
        break;
      case "token":
        this.#onResponse(message, now, (line, turn) => {
          turn.timing.firstToken ??= now;
          line.tail += message.text;
        });
        break;
      case "text":
        this.#onResponse(message, now, (line, turn) => {
          turn.timing.firstToken ??= now;
          line.tail = consume(line.tail, message.text);
          line.sentences.push(message.text);
          effects.push({ kind: "announce", text: `${this.agent.name}: ${message.text}` });
        });
        break;
      case "speech-start":
        this.#run = null;
        this.#onResponse(message, now, () => {
          this.#run = { responseId: message.responseId, sampleRate: message.sampleRate };
        });
        break;
      case "speech-end":
        if (this.#run !== null && !message.cancelled) effects.push({ kind: "complete", responseId: this.#run.responseId });
        this.#run = null;
        if (message.cancelled && this.#cutResponse(message.responseId)) effects.push({ kind: "silence" });
        break;
      case "emotion":
        this.#emotion(message, now);
        break;
      case "multimodal":
        this.#onTurn(message.turnId, now, (turn) => {
          turn.lines.push({ kind: message.kind, name: message.name ?? "", data: message.data ?? {} });
        });
        break;
      case "evaluation":
        this.evaluations.push({ name: message.name, score: message.score ?? null, reasons: message.reasons ?? [] });
        this.evaluations.splice(0, this.evaluations.length - EVALUATIONS);
        break;
      case "error":
        this.#error(message, effects);
        break;
    }
  }

  #command(name, parameters, now, effects) {
    switch (name) {
      case "ready":
        this.phase = "live";
        this.retry = null;
        this.lastFatal = null;
        for (const warning of parameters.warnings ?? []) this.#notice({ tone: "warning", what: String(warning) });
        effects.push({ kind: "ready", parameters });
        break;
      case "response-end":
        this.#responseEnd(parameters, now);
        break;
      case "tool-start":
      case "tool-success":
      case "tool-error":
        this.#tool(name, parameters, now);
        break;
      case "realtime-instruction":
        this.#whisper(parameters, parameters.instructionType ?? "INSTRUCTION", now);
        break;
      case "realtime-instruction-outcome":
        this.#outcome(parameters);
        break;
      case "realtime-planning":
        this.#whisper(parameters, "PLANNING", now);
        break;
      case "planning-pass":
        this.#pass(parameters, now);
        break;
      case "exit":
        this.#exit(parameters);
        break;
      case "session-end":
        effects.push({ kind: "over", parameters });
        break;
    }
  }

  #interim(message, now, effects) {
    if (!message.isAsynchronous) {
      this.#run = null;
      for (const turn of this.turns.filter((candidate) => candidate.id !== message.turnId)) {
        turn.superseded = true;
        if (turn.closed || turn.passes.length === 0) continue;
        stopPasses(turn);
        touch(turn);
      }
      this.#cut(message.turnId);
      effects.push({ kind: "silence" });
    }
    if (message.isSynthetic) return; // typed: its words come with the echo
    this.#onUser(message.turnId, now, (turn) => {
      turn.user.speaking = true;
      turn.user.since = now;
    });
  }

  #final(message, now, effects) {
    this.turns.forEach((turn) => this.#quiet(turn));
    const words = message.isSynthetic ? "" : message.text.trim();
    const turn = words === "" ? this.#turn(message.turnId, now) : this.#userTurn(message.turnId, now);
    if (turn === null) return;
    turn.timing.transcript ??= now;
    turn.user.partial = "";
    if (words !== "") {
      turn.user.text = turn.user.text === "" ? words : `${turn.user.text} ${words}`;
      const pending = this.pendingTyped.findIndex((typed) => typed.text.trim() === words);
      if (pending >= 0) turn.timing.typed = this.pendingTyped.splice(pending, 1)[0].at;
      else if (message.provider !== "Client") effects.push({ kind: "announce", text: `You: ${words}` });
    } else if (this.#askedAt !== null) {
      turn.timing.asked = this.#askedAt;
      this.#askedAt = null;
    }
    touch(turn);
  }

  #emotion(message, now) {
    if (message.state === "userSpeaking") {
      this.#onUser(message.turnId, now, (turn) => {
        turn.user.speaking = true;
        turn.user.since = now;
      });
    } else if (message.state === "userNotSpeaking") {
      this.#onTurn(message.turnId, now, (turn) => {
        this.#quiet(turn);
        turn.timing.speechEnd = now;
      });
    }
  }

  #responseEnd({ turnId, responseId, status }, now) {
    const response = this.#responseOf(responseId);
    if (response === null) {
      // Nothing came of this answer: worth a line only when that is somebody's failure.
      if (status === "completed" || status === "cancelled") return;
      this.#onResponse({ turnId, responseId }, now, (line) => (line.status = status));
      return;
    }
    if (status === "cancelled") this.#cutResponse(responseId);
    response.status = status;
    if (!response.cut) {
      // All text has come as sentences by now; a preview without any is all there is, a broken one is kept as it broke.
      const keep = response.tail.trim() !== "" && (response.sentences.length === 0 || status !== "completed");
      if (keep) response.sentences.push(response.tail.trim());
      response.tail = "";
    }
    touch(this.#turnWith(response));
  }

  #tool(phase, { callId, name, error, owner, turnId }, now) {
    this.#onTurn(turnId, now, (turn) => {
      const state = { "tool-start": "running", "tool-success": "done", "tool-error": "failed" }[phase];
      const lines = owner === "planner" ? turn.whispers : turn.lines;
      let line = lines.find((candidate) => candidate.kind === "tool" && candidate.callId === callId);
      if (line === undefined) {
        line = { kind: "tool", callId, name, at: now };
        lines.push(line);
      }
      Object.assign(line, { state, error: error ? String(error) : "", tookMs: state === "running" ? null : now - line.at });
    });
  }

  #whisper({ text, turnId, instructionId, passId }, type, now) {
    if (!text) return;
    this.#onTurn(turnId, now, (turn) => {
      const last = turn.whispers.at(-1);
      if (type === "PLANNING" && last?.type === type) {
        last.text = joinPieces(last.text, text);
      } else if (type === "PLANNING" || !instructionId) {
        turn.whispers.push(makeWhisper(type, text));
      } else {
        const pass = passId ? passNumber(turn, passId, now) : null;
        turn.whispers.push(makeWhisper(type, text, { id: instructionId, pass, afterMs: now - turn.since }));
      }
    });
  }

  /* What became of a whisper: its own turn says so, and the turn whose answer it steered shows it. */
  #outcome({ turnId, instructionId, outcome }) {
    const origin = this.turns.findLast(({ whispers }) => whispers.some((whisper) => whisper.id === instructionId));
    const whisper = origin?.whispers.find(({ id }) => id === instructionId);
    if (!instructionId || whisper === undefined) return;
    for (const turn of this.turns.filter(({ steeredBy }) => steeredBy.includes(whisper))) {
      turn.steeredBy.splice(turn.steeredBy.indexOf(whisper), 1);
      touch(turn);
    }
    whisper.outcome = outcome;
    whisper.answeredIn = null;
    const answered = outcome === "spoken" || outcome === "used" ? this.#latest.get(turnId) : undefined;
    if (answered !== undefined) {
      whisper.answeredIn = this.turns.indexOf(answered) - this.turns.indexOf(origin);
      if (answered !== origin) answered.steeredBy.push(whisper);
      touch(answered);
    }
    touch(origin);
  }

  #pass({ turnId, passId, state }, now) {
    this.#onTurn(turnId, now, (turn) => {
      const pass = turn.passes[passNumber(turn, passId, now) - 1];
      if (state === "began") Object.assign(pass, { state: "running", since: now });
      else if (state === "planned") Object.assign(pass, { state: "planned", tookMs: now - pass.since });
    });
  }

  /* Nobody speaks any more, so that what still waited for an answer waited in vain. */
  #endSteering() {
    for (const turn of this.turns) {
      const waiting = turn.whispers.filter(({ outcome }) => outcome === "pending");
      if (waiting.length === 0 && turn.passes.every(({ state }) => state !== "running")) continue;
      for (const whisper of waiting) whisper.outcome = "unused";
      stopPasses(turn);
      touch(turn);
    }
  }

  #exit({ turnId, saved }) {
    const turn = this.#latest.get(turnId);
    if (turn === undefined) return;
    turn.closed = true;
    turn.saved = saved !== false;
    stopPasses(turn);
    this.#quiet(turn);
    touch(turn);
    if (isEmpty(turn)) this.#leave(turn);
  }

  #error(message, effects) {
    if (message.recoverable === false) this.lastFatal = message;
    effects.push({ kind: "alert", error: message });
    const last = this.turns.at(-1);
    if (last === undefined || last.closed) {
      this.#notice({ tone: "error", error: message });
    } else {
      last.lines.push({ kind: "error", error: message });
      touch(last);
    }
  }

  // --- what is heard ----------------------------------------------------------------------------------------------

  #player({ state, responseId, playedMs }, now) {
    this.#playing = state === "start" || state === "progress" ? responseId : null;
    const response = this.#responseOf(responseId);
    if (response === null) return;
    const turn = this.#turnWith(response);
    if (state === "start") turn.timing.firstAudio ??= now;
    response.heardMs = playedMs;
    response.sound = { start: "playing", progress: "playing", starved: "queued", end: "heard", cut: "heard" }[state];
    touch(turn);
  }

  /* Cuts what is unheard everywhere, except for an answer in turn `turnId` of which nothing has come yet. True when there
     was something to cut. */
  #cut(turnId) {
    let cut = false;
    for (const turn of this.turns) {
      for (const line of turn.lines) {
        const awaited = turn.id === turnId && line.kind === "speech" && !hasWords(line) && line.sound === "none";
        if (line.kind === "speech" && !awaited) cut = this.#cutResponse(line.responseId) || cut;
      }
    }
    return cut;
  }

  /* True when something of it was still to be said or heard. */
  #cutResponse(responseId) {
    remember(this.#dead, responseId);
    if (this.#run?.responseId === responseId) this.#run = null;
    const response = this.#responseOf(responseId);
    if (response === null || !isUnheard(response)) return false;
    response.cut = true;
    touch(this.#turnWith(response));
    return true;
  }

  /* The line is gone: nothing more comes of what was under way. */
  #forsake() {
    this.#run = null;
    this.#cut(null);
    this.pendingTyped.forEach((typed) => (typed.lost = true));
    for (const turn of this.turns.filter((candidate) => !candidate.closed)) {
      turn.closed = true;
      turn.user.speaking = false;
      for (const line of [...turn.lines, ...turn.whispers]) if (line.state === "running") line.state = "failed";
      touch(turn);
    }
  }

  // --- turns ------------------------------------------------------------------------------------------------------

  #onTurn(id, now, change) {
    const turn = this.#turn(id, now);
    if (turn === null) return;
    change(turn);
    touch(turn);
  }

  /* For what the user is saying, until the turn's final has come. */
  #onUser(id, now, change) {
    const turn = this.#userTurn(id, now);
    if (turn === null || turn.timing.transcript !== null) return;
    change(turn);
    touch(turn);
  }

  #onResponse({ turnId, responseId }, now, change) {
    if (this.#dead.has(responseId)) return;
    const turn = this.#turn(turnId, now);
    if (turn === null || turn.superseded) return;
    let line = turn.lines.find((candidate) => candidate.responseId === responseId);
    if (line === undefined) {
      line = makeSpeech(responseId);
      turn.lines.push(line);
      this.#quiet(turn);
    }
    change(line, turn);
    touch(turn);
  }

  /* The turn an id names; the last one for what names none; null for one that has left. */
  #turn(id, now) {
    if (!id) return this.turns.at(-1) ?? this.#newTurn("", now);
    if (this.#departed.has(id)) return null;
    return this.#latest.get(id) ?? this.#newTurn(id, now);
  }

  /* A conversation without turns keeps one id: what is said after an answer opens a new entry under it. */
  #userTurn(id, now) {
    const turn = this.#turn(id, now);
    if (turn === null || !isAnswered(turn)) return turn;
    // Such a conversation may keep one response id as well: what the agent says from here on is wanted again.
    for (const line of turn.lines) this.#dead.delete(line.responseId);
    return this.#newTurn(turn.id, now);
  }

  #newTurn(id, now) {
    const before = this.turns.at(-1);
    const turn = makeTurn(++this.#keys, id, now);
    this.turns.push(turn);
    this.#latest.set(id, turn);
    if (before !== undefined && isEmpty(before)) this.#leave(before);
    while (this.turns.length > this.#turnLimit) {
      const [oldest] = this.turns;
      this.dropped += 1;
      this.#leave(oldest);
      if (!this.#latest.has(oldest.id)) remember(this.#departed, oldest.id);
    }
    return turn;
  }

  #leave(turn) {
    this.turns.splice(this.turns.indexOf(turn), 1);
    if (this.#latest.get(turn.id) === turn) this.#latest.delete(turn.id);
  }

  #quiet(turn) {
    if (!turn.user.speaking) return;
    turn.user.speaking = false;
    touch(turn);
  }

  #tick(now) {
    for (const turn of this.turns.filter((candidate) => candidate.user.speaking)) {
      const { lastPartial } = turn.timing;
      const limit = lastPartial === null ? SILENT_AFTER_INTERIM : SILENT_AFTER_PARTIAL;
      if (now - Math.max(turn.user.since, lastPartial ?? 0) < limit) continue;
      this.#quiet(turn);
      if (isEmpty(turn)) this.#leave(turn);
    }
  }

  #responseOf(responseId) {
    const turn = this.turns.findLast(({ lines }) => lines.some((line) => line.responseId === responseId));
    return turn?.lines.find((line) => line.responseId === responseId) ?? null;
  }

  #turnWith(line) {
    return this.turns.findLast(({ lines }) => lines.includes(line));
  }

  #notice(notice) {
    if (this.notices.some(({ what }) => what !== undefined && what === notice.what)) return;
    this.notices.push(notice);
    if (this.notices.length > NOTICES) this.notices.shift();
  }
}

function remember(set, id) {
  set.delete(id);
  set.add(id);
  if (set.size > REMEMBERED) set.delete(set.values().next().value);
}
