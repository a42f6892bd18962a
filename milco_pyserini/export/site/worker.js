// Searches away from the page, which stays responsive.
import { Index } from "./search.js";

let index;

onmessage = async ({ data: { number, site, text, k, value } }) => {
  try {
    const started = performance.now();
    index ??= new Index(site, (name) => read(name, site.version)).open();
    const opened = await index.catch((error) => {
      index = undefined;
      throw error;
    });
    const { hits, total } = text ? await opened.search(text, k, value) : { hits: [], total: 0 };
    const documents = await opened.documents(hits.map((hit) => hit.row));
    postMessage({ number, hits: hits.map((hit, place) => ({ ...hit, ...documents[place] })), total, ms: performance.now() - started });
  } catch (error) {
    postMessage({ number, error: error.message });
  }
};

async function read(name, version) {
  const response = await fetch(`data/${name}?${version}`);
  if (!response.ok) throw new Error(`data/${name} is missing: ${response.status}`);
  const unpacked = response.body.pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(unpacked).arrayBuffer());
}
