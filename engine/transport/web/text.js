/* Small rules about streamed text. Pure. */

const SPACE = /\s/;

/* What is left of a preview of tokens once `sentence` has been said, spaces aside. When the sentence was changed on its
   way (a link taken out, say), the preview goes up to the sentence's last word; if even that is not in it, all of it. */
export function consume(preview, sentence) {
  let at = 0;
  for (const character of sentence) {
    if (SPACE.test(character)) continue;
    while (at < preview.length && SPACE.test(preview[at])) at += 1;
    if (!preview.startsWith(character, at)) return afterLastWord(preview, sentence);
    at += character.length;
  }
  return preview.slice(at);
}

function afterLastWord(preview, sentence) {
  const word = sentence.trim().split(/\s+/).at(-1) ?? "";
  const at = word === "" ? -1 : preview.indexOf(word);
  return at < 0 ? "" : preview.slice(at + word.length);
}

/* Joins what came in pieces: pieces of a stream bring their own spaces, whole sentences do not. */
export function joinPieces(before, piece) {
  if (before === "") return piece;
  const bringsSpace = SPACE.test(before.at(-1)) || SPACE.test(piece[0] ?? " ");
  return bringsSpace || !/[.!?…:"”»)]$/.test(before) ? before + piece : `${before} ${piece}`;
}
