// Reads `{documents: [text], samples: [[schema name, value]]}` from standard input and writes, as JSON, what the official parser says
// of each document, and the names of all message schemas of the first one that each value fits.
import { readFileSync } from "node:fs";
import { Parser } from "@asyncapi/parser";
import Ajv from "ajv";

const { documents, samples } = JSON.parse(readFileSync(0, "utf8"));
const parsed = [];
for (const text of documents) {
  const { document, diagnostics } = await new Parser().parse(text);
  const channels = document?.allChannels().all() ?? [];
  parsed.push({
    channels: Object.fromEntries(channels.map((channel) => [channel.address(), channel.messages().all().map((m) => m.id())])),
    diagnostics: diagnostics.map(({ code, message, path }) => ({ code, message, path: path.join(".") })),
  });
}

const { components } = JSON.parse(documents[0]);
const ajv = new Ajv({ strict: false }).addSchema({ $id: "document", components });
const names = Object.entries(components.messages).flatMap(([name, { payload }]) => (payload.$ref ? [name] : []));
const fits = samples.map((value) =>
  names.filter((name) => ajv.getSchema(`document#/components/schemas/${name}`)(value)),
);
console.log(JSON.stringify({ parsed, fits }));
