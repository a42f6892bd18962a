// Reads {"directory", "queries", "k", "value", "texts"}; writes the hits of the queries, and the ids of the texts.
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";
import { gunzipSync } from "node:zlib";

const { directory, queries, k, value, texts } = JSON.parse(readFileSync(0, "utf-8"));
const { Index } = await import(pathToFileURL(`${directory}/search.js`));
const read = async (name) => new Uint8Array(gunzipSync(readFileSync(`${directory}/data/${name}`)));
const index = await new Index(JSON.parse(readFileSync(`${directory}/site.json`, "utf-8")), read).open();
const answers = [];
for (const query of queries) {
  const { hits, total } = await index.search(query, k, value);
  const documents = await index.documents(hits.map((hit) => hit.row));
  answers.push({ hits: hits.map(({ score, share, reasons }, place) => ({ ...documents[place], score, share, reasons })), total });
}
process.stdout.write(JSON.stringify({ answers, ids: texts.map((text) => index.ids(text)) }));
