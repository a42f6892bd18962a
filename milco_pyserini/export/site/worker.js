// Searches away from the page, which stays responsive.
import { Index } from "./search.js";

const loading = { done: 0, all: 0 };
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

/** Returns the unpacked bytes of a file of data/. */
async function read(name, version) {
  loading.all++;
  postMessage({ loading });
  try {
    const response = await fetch(`data/${name}?${version}`);
    if (!response.ok) throw new Error(`data/${name} is missing: ${response.status}. Upload all files of the export again.`);
    const bytes = new Uint8Array(await response.arrayBuffer());
    // A host that states the encoding gzip makes the browser unpack.
    if (bytes[0] !== 0x1f || bytes[1] !== 0x8b) return bytes;
    const unpacked = new Response(bytes).body.pipeThrough(new DecompressionStream("gzip"));
    // What cannot be unpacked has no header either, which the index reports.
    return new Uint8Array(await new Response(unpacked).arrayBuffer().catch(() => []));
  } catch (error) {
    throw error instanceof TypeError ? new Error(`data/${name} could not be loaded: ${error.message}`) : error;
  } finally {
    loading.done++;
    postMessage({ loading });
  }
}
