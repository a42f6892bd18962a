// Search in a browser, or in Node, with the hits and scores of milco search: see web.py for the files.
// Everything is an integer, or a float that is rounded as numpy and Java round it.

const UTF8 = new TextDecoder(), ENCODER = new TextEncoder();
const WORD = "\u2581";
// White space and control characters as SentencePiece's rules (nmt) replace and drop them.
const DROPPED = /[\x01-\x08\x0b\x0e-\x1f\x7f\x8f\x9f]/g;
const SPACES = /[\t\n\f\r\u1680\u200b-\u200f\u2028\u2029\u2581\ufeff\ufffd]/g;
// Python's str.split() and str.strip().
const BLANKS = /[\t-\r\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+/u;
const TRAILING = new RegExp(`(?:${BLANKS.source.replace("\\x1c-", "")})$`, "u");
// A shorter text in capitals may be an acronym.
const WORDS_OF_A_SENTENCE = 3, LONGEST_ACRONYM = 8;
// Score of an unknown character, below the lowest of a piece.
const UNKNOWN = 10;
// Terms of a hit that say why it matches.
const REASONS = 12;
// As in query_forward.py: of erf, and of the connector's LayerNorm.
const ERF = [1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592], ERF_SCALE = 0.3275911, CONNECTOR_EPS = 1e-12;
const CRC = Uint32Array.from({ length: 256 }, (_, byte) => {
  for (let bit = 0; bit < 8; bit++) byte = (byte >>> 1) ^ (byte & 1 ? 0xedb88320 : 0);
  return byte;
});

/** A Unigram tokenizer of SentencePiece's pieces, as the package tokenizers computes it. */
export class Tokenizer {
  constructor(given) {
    Object.assign(this, given);
    this.pieces = given.pieces.split("\n");
    this.scores = Float64Array.from(given.scores.split("\n"), Number);
    this.numbers = new Map();
    for (const [id, piece] of this.pieces.entries()) this.numbers.set(piece, id);
    this.longest = this.pieces.reduce((most, piece) => Math.max(most, piece.length), 0);
    this.least = this.scores.reduce((a, b) => Math.min(a, b)) - UNKNOWN;
    this.special = new Map(this.added.map(([content, ...rest]) => [content, rest]));
    this.parts = new RegExp(`([${this.unchanged.replace(/(..)/gu, (pair) => [...pair].join("-"))}]+)`, "u");
    const names = [...this.special.keys()].sort((a, b) => b.length - a.length);
    // Without names, it matches nothing.
    this.marks = new RegExp(names.map((name) => name.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")).join("|") || "(?!)", "g");
  }

  /** Returns the ids of a text, special ones included; none for a blank text. */
  ids(text) {
    text = text.toWellFormed ? text.toWellFormed() : text.replace(/\p{Surrogate}/gu, "\ufffd");
    const ids = [];
    let start = 0;
    for (const mark of text.matchAll(this.marks)) {
      const [id, left, right] = this.special.get(mark[0]);
      const before = text.slice(start, mark.index);
      this.add(ids, left ? before.trimEnd() : before, start === 0);
      ids.push(id);
      start = mark.index + mark[0].length;
      if (right) start += text.slice(start).length - text.slice(start).trimStart().length;
    }
    this.add(ids, text.slice(start), start === 0);
    return ids.length && text.split(BLANKS).some(Boolean) ? [...this.before, ...ids, ...this.after] : [];
  }

  /** Adds the ids of text between special tokens. */
  add(ids, text, isFirst) {
    for (const [kind, given] of this.normalizers) text = this.normalized(kind, given, text);
    if (!text) return;
    text = text.replaceAll(" ", WORD);
    if (this.prepend === "always" || (this.prepend === "first" && isFirst)) text = text.startsWith(WORD) ? text : WORD + text;
    for (const word of text.split(/(?=\u2581)/)) this.addWord(ids, word);
  }

  normalized(kind, given, text) {
    if (kind === "Nmt") return text.replace(DROPPED, "").replace(SPACES, " ");
    if (kind === "Replace") return text.replace(/ {2,}/g, given);
    if (kind === "Strip") return text.replace(TRAILING, "");
    if (kind === "NFKC") return text.split(this.parts).map((part, place) => (place % 2 ? part : part.normalize("NFKC"))).join("");
    // Short clusters of characters are replaced, and else characters.
    const map = (this.map ??= new CharacterMap(given));
    const clusters = [...new Intl.Segmenter("en").segment(text)].map(({ segment }) => segment);
    return clusters.map((cluster) => {
      const found = ENCODER.encode(cluster).length < 6 ? map.get(cluster) : undefined;
      return found ?? [...cluster].map((character) => map.get(character) ?? character).join("");
    }).join("");
  }

  /** Adds the pieces with the largest sum of scores; unknown characters in a row are one. */
  addWord(ids, word) {
    const characters = [...word];
    const best = [{ score: 0 }, ...characters.map(() => null)];
    for (let start = 0; start < characters.length; start++) {
      let piece = "", isSingle = false;
      const until = best[start].score;
      for (let end = start + 1; end <= Math.min(start + this.longest, characters.length); end++) {
        piece += characters[end - 1];
        const id = this.numbers.get(piece);
        if (id === undefined) continue;
        isSingle ||= end === start + 1;
        const score = until + this.scores[id];
        if (best[end] === null || score > best[end].score) best[end] = { score, id, start };
      }
      const score = until + this.least, next = best[start + 1];
      if (!isSingle && (next === null || score > next.score)) best[start + 1] = { score, id: this.unknown, start };
    }
    const found = [];
    for (let end = characters.length; end; end = best[end].start) {
      if (best[end].id !== this.unknown || found.at(-1) !== this.unknown) found.push(best[end].id);
    }
    ids.push(...found.reverse());
  }
}

/** SentencePiece's compiled map of characters: a double-array trie of bytes, then replacements that end with 0. */
class CharacterMap {
  constructor(base64) {
    const bytes = Uint8Array.from(atob(base64), (character) => character.charCodeAt(0)), view = new DataView(bytes.buffer);
    this.units = Array.from({ length: view.getUint32(0, true) / 4 }, (_, place) => view.getUint32(4 + 4 * place, true));
    this.ends = bytes.subarray(4 + 4 * this.units.length);
  }

  /** Returns the replacement of the shortest beginning of a text that has one. */
  get(text) {
    const next = (unit) => (unit >>> 10) << ((unit & 512) >>> 6);
    let place = next(this.units[0]);
    for (const byte of ENCODER.encode(text)) {
      const unit = this.units[(place ^= byte)];
      if (!byte || unit === undefined || (unit & 0x800000ff) !== byte) return undefined;
      place ^= next(unit);
      if (!(unit & 256)) continue;
      const start = this.units[place] & 0x7fffffff;
      return UTF8.decode(this.ends.subarray(start, this.ends.indexOf(0, start)));
    }
    return undefined;
  }
}

/** Integers of variable length in bytes. */
class Reader {
  constructor(bytes) {
    this.bytes = bytes;
    this.at = 0;
  }

  get isAtEnd() {
    return this.at >= this.bytes.length;
  }

  next() {
    let value = 0, factor = 1, byte;
    do {
      byte = this.bytes[this.at++];
      value += (byte & 127) * factor;
      factor *= 128;
    } while (byte > 127);
    return value;
  }

  take(length) {
    return this.bytes.subarray(this.at, (this.at += length));
  }
}

/** A sorted map of numbers to bytes, in chunks that are read when they are needed. */
class Chunks {
  constructor(read, name, starts) {
    Object.assign(this, { read, name, starts, kept: new Map() });
  }

  /** Returns the values of those of the keys that the map has. */
  async get(keys) {
    const wanted = new Map();
    for (const key of keys) {
      let low = 0, high = this.starts.length;
      while (low < high) {
        const middle = (low + high) >> 1;
        if (this.starts[middle] <= key) low = middle + 1; else high = middle;
      }
      if (low) wanted.set(low - 1, (wanted.get(low - 1) ?? new Set()).add(key));
    }
    const found = new Map();
    await Promise.all([...wanted].map(async ([number, some]) => {
      if (!this.kept.has(number)) this.kept.set(number, this.read(`${this.name}-${number}`));
      const reader = new Reader(await this.kept.get(number).catch((error) => {
        this.kept.delete(number);
        throw error;
      }));
      for (let key = this.starts[number]; !reader.isAtEnd; ) {
        key += reader.next();
        const value = reader.take(reader.next());
        if (some.has(key)) found.set(key, value);
      }
    }));
    return found;
  }
}

/** Returns the CRC-32 of bytes: crypto.subtle has none, and is missing from pages that are served by http. */
export function crc32(bytes) {
  let crc = -1;
  for (const byte of bytes) crc = (crc >>> 8) ^ CRC[(crc ^ byte) & 255];
  return ~crc >>> 0;
}

/** Returns the content of a file of data/, which begins with its name, its export's version and a checksum. */
function content(bytes, name, version) {
  const [head, file, of, checksum] = /^([a-z]+(?:-\d+)?) ([0-9a-f]{16}) ([0-9a-f]{8})\n/.exec(UTF8.decode(bytes.subarray(0, 64))) ?? [];
  const rest = bytes.subarray(head?.length), isIntact = head && crc32(rest) === Number.parseInt(checksum, 16);
  if (isIntact && file === name && of === version) return rest;
  const problem = isIntact ? "belongs to another export than site.json, or is another file of it" : "is damaged, or the host sends another file";
  throw new Error(`data/${name} ${problem}: upload all files of the export again.`);
}

/** Numbers of a type of numpy or safetensors in bytes; of u1, two of 4 bits in each. */
const NUMBERS = {
  f4: (bytes) => new Float32Array(bytes.slice().buffer),
  f2: (bytes) => Float32Array.from(new Uint16Array(bytes.slice().buffer), float16),
  i4: (bytes) => new Int32Array(bytes.slice().buffer),
  i1: (bytes) => new Int8Array(bytes.slice().buffer),
  u1: (bytes) => Int8Array.from({ length: 2 * bytes.length }, (_, place) => (place % 2 ? bytes[place >> 1] >> 4 : bytes[place >> 1] & 15) - 8),
};

/** Returns values in blocks of equal size, each multiplied by its scale, as float32. */
function scaled(values, scales) {
  const found = new Float32Array(values.length), size = values.length / scales.length;
  for (let block = 0, at = 0; block < scales.length; block++) {
    for (const end = at + size; at < end; at++) found[at] = values[at] * scales[block];
  }
  return found;
}

/** A query network, in float64 as query_forward.py computes it. bytes: a safetensors file. */
class Network {
  constructor(bytes, { layers, heads, eps, padding }) {
    Object.assign(this, { heads, eps, padding });
    const start = 8 + Number(new DataView(bytes.buffer, bytes.byteOffset).getBigUint64(0, true));
    const header = JSON.parse(UTF8.decode(bytes.subarray(8, start)));
    const read = (name) => NUMBERS[header[name].dtype.toLowerCase().replace(/\d+/, (bits) => bits / 8)](
      bytes.subarray(...header[name].data_offsets.map((offset) => start + offset)),
    );
    const tensor = (name) => (header[`${name}_scale`] ? scaled(read(name), read(`${name}_scale`)) : read(name));
    const pair = (name) => [tensor(`${name}.weight`), tensor(`${name}.bias`)];
    this.positions = tensor("encoder.embeddings.position_embeddings.weight");
    this.type = tensor("encoder.embeddings.token_type_embeddings.weight");
    this.norm = pair("encoder.embeddings.LayerNorm");
    const parts = ["attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"];
    parts.push("attention.output.LayerNorm", "intermediate.dense", "output.dense", "output.LayerNorm");
    this.layers = Array.from({ length: layers }, (_, number) => parts.map((part) => pair(`encoder.encoder.layer.${number}.${part}`)));
    this.connector = ["projector", "dense", "layer_norm"].map((part) => pair(`connector.${part}`));
    this.decoder = pair("decoder");
    this.columns = read("columns");
    this.echo = read("echo");
  }

  /** Returns the states that the decoder reads. words: the embedding of each id. */
  states(ids, words) {
    let counted = 0;
    let states = words.map((word, place) => {
      const position = (ids[place] === this.padding ? 0 : ++counted) + this.padding, size = word.length;
      return Float64Array.from(word, (value, at) => value + (this.positions[position * size + at] + this.type[at]));
    });
    states = states.map((state) => normed(state, this.norm, this.eps));
    for (const [query, key, value, output, outputNorm, up, down, norm] of this.layers) {
      const mixed = this.mixed(...[query, key, value].map((part) => states.map((state) => linear(state, part))));
      states = states.map((state, place) => normed(sum(state, linear(mixed[place], output)), outputNorm, this.eps));
      states = states.map((state) => normed(sum(state, linear(linear(state, up).map(gelu), down)), norm, this.eps));
    }
    const [projector, dense, norm] = this.connector;
    return states.map((state) => normed(linear(linear(state, projector).map(gelu), dense).map(gelu), norm, CONNECTOR_EPS));
  }

  /** Returns the values that attention mixes for each token. */
  mixed(queries, keys, values) {
    const size = queries[0].length / this.heads, scale = size ** -0.5;
    const found = queries.map((query) => new Float64Array(query.length));
    for (let start = 0; start < queries[0].length; start += size) {
      for (const [place, query] of queries.entries()) {
        const scores = keys.map((key) => {
          let score = 0;
          for (let at = start; at < start + size; at++) score += query[at] * key[at];
          return score * scale;
        });
        const most = Math.max(...scores), shares = scores.map((score) => Math.exp(score - most));
        const all = shares.reduce((a, b) => a + b);
        for (const [other, value] of values.entries()) {
          for (let at = start; at < start + size; at++) found[place][at] += (shares[other] / all) * value[at];
        }
      }
    }
    return found;
  }

  /** Calls add(column, weight, place) for each pivot term: place is that of the token with its largest logit. */
  decode(states, add) {
    const [weight, bias] = this.decoder, size = states[0].length;
    for (const [row, column] of this.columns.entries()) {
      const own = weight.subarray(row * size, (row + 1) * size);
      let best = -Infinity, place = 0;
      for (let number = 0; number < states.length; number++) {
        const state = states[number];
        let a = 0, b = 0, c = 0, d = 0;
        for (let at = 0; at < size; at += 4) {
          a += own[at] * state[at];
          b += own[at + 1] * state[at + 1];
          c += own[at + 2] * state[at + 2];
          d += own[at + 3] * state[at + 3];
        }
        if (a + b + c + d > best) [best, place] = [a + b + c + d, number];
      }
      if (best + bias[row] > 0) add(column, Math.fround(Math.log1p(best + bias[row])), place);
    }
  }
}

const sum = (left, right) => left.map((value, at) => value + right[at]);

function linear(state, [weight, bias]) {
  const size = state.length;
  return Float64Array.from(bias, (start, row) => {
    let value = 0;
    for (let at = 0, other = row * size; at < size; at++, other++) value += state[at] * weight[other];
    return value + start;
  });
}

function normed(state, [weight, bias], eps) {
  const mean = state.reduce((a, b) => a + b) / state.length, centered = state.map((value) => value - mean);
  const deviation = Math.sqrt(centered.reduce((all, value) => all + value * value, 0) / state.length + eps);
  return centered.map((value, at) => (value / deviation) * weight[at] + bias[at]);
}

function gelu(value) {
  const size = Math.abs(value) * Math.SQRT1_2, part = 1 / (1 + ERF_SCALE * size);
  const tail = ERF.reduce((all, factor) => (all + factor) * part, 0) * Math.exp(-size * size);
  return value * 0.5 * (value < 0 ? tail : 2 - tail);
}

/** The data of a page. load(name) resolves to the unpacked bytes of a file of data/. */
export class Index {
  constructor(site, load) {
    this.site = site;
    this.read = async (name) => content(await load(name), name, site.version);
    for (const [name, starts] of Object.entries(site.starts)) this[name] = new Chunks(this.read, name, starts);
  }

  async open() {
    const [tokenizer, values, network] = await Promise.all(["tokenizer", "values", "network"].map(this.read));
    this.tokenizer = new Tokenizer(JSON.parse(UTF8.decode(tokenizer)));
    this.values = values;
    this.network = new Network(network, this.site.network);
    return this;
  }

  /** Returns the ids of a query's tokens. */
  ids(text) {
    const { length, lowercase, capitals } = this.site;
    const ids = this.tokenizer.ids(lowercase || (capitals && isInCapitals(text)) ? text.toLowerCase() : text);
    const after = this.tokenizer.after;
    return ids.length <= length ? ids : [...ids.slice(0, length - after.length), ...after];
  }

  /** Returns the embeddings of tokens. */
  async embeddings(ids) {
    const found = await this.words.get(ids), [values, scales] = this.site.words;
    return ids.map((id) => {
      const bytes = found.get(id), word = NUMBERS[values[1]](bytes.subarray(0, values[0]));
      return scales ? scaled(word, NUMBERS[scales[1]](bytes.subarray(values[0]))) : word;
    });
  }

  /** Returns the terms of a query with their impacts, and the piece that each comes from. */
  async query(text) {
    const ids = this.ids(text), { english, limits, scale, pool } = this.site, terms = new Map(), kept = [];
    if (ids.length && limits[0] !== 0) {
      const states = this.network.states(ids, await this.embeddings(ids));
      this.network.decode(states, (column, weight, place) => terms.set(column, { column, weight, piece: ids[place] }));
    }
    for (const id of limits[1] === 0 ? [] : ids) {
      const column = english + id, weight = this.network.echo[id], before = terms.get(column)?.weight ?? 0;
      if (weight > 0) terms.set(column, { column, weight: pool === "max" ? weight : Math.fround(before + weight), piece: id });
    }
    for (const [view, limit] of limits.entries()) {
      const own = [...terms.values()].filter(({ column }) => (column < english) === (view === 0));
      own.sort((a, b) => b.weight - a.weight || a.column - b.column);
      kept.push(...own.slice(0, limit ?? own.length));
    }
    for (const term of kept) {
      term.impact = rounded(Math.fround(term.weight * Math.fround(scale)));
      term.view = term.column < english ? "pivot" : "source";
      term.word = this.tokenizer.pieces[term.piece].replaceAll(WORD, " ").trim();
    }
    return kept.filter((term) => term.impact);
  }

  /** Returns the best documents: rows, scores, and total, and for each why it matches. value: number of a value; 0 for all. */
  async search(text, k, value = 0) {
    const query = await this.query(text), lists = await this.postings.get(query.map((term) => term.column));
    const scores = new Float64Array(this.site.documents);
    const readers = query.filter((term) => lists.has(term.column)).map((term) => {
      const reader = new Reader(lists.get(term.column));
      const name = UTF8.decode(reader.take(reader.next()));
      return { ...term, name, bytes: reader.bytes.subarray(reader.at) };
    });
    for (const { bytes, impact } of readers) {
      // Lucene multiplies in float and adds in double.
      for (const [row, other] of postings(bytes)) scores[row] += Math.fround(impact * other);
    }
    let rows = [];
    scores.forEach((score, row) => {
      if (score > 0 && (!value || this.values[row] === value)) rows.push(row);
    });
    const total = rows.length;
    for (const row of rows) scores[row] = Math.fround(scores[row]);
    rows = rows.sort((a, b) => scores[b] - scores[a] || a - b).slice(0, k);
    const hits = new Map(rows.map((row) => [row, { row, score: scores[row], reasons: [] }]));
    for (const { bytes, impact, name, view, word } of readers) {
      for (const [row, other] of postings(bytes)) hits.get(row)?.reasons.push({ name, view, word, score: impact * other, impact });
    }
    const weight = query.reduce((sum, term) => sum + term.impact, 0);
    for (const hit of hits.values()) {
      hit.share = hit.reasons.reduce((sum, term) => sum + term.impact, 0) / weight;
      hit.reasons.sort((a, b) => b.score - a.score);
      hit.more = Math.max(0, hit.reasons.length - REASONS);
      hit.reasons.length -= hit.more;
    }
    return { hits: [...hits.values()], total };
  }

  /** Returns the documents of rows: id, title, text and value. */
  async documents(rows) {
    const found = await this.texts.get(rows);
    return rows.map((row) => JSON.parse(UTF8.decode(found.get(row))));
  }
}

function* postings(bytes) {
  const reader = new Reader(bytes);
  for (let row = 0; !reader.isAtEnd; ) yield [(row += reader.next()), reader.next()];
}

function isInCapitals(text) {
  if (text !== text.toUpperCase() || text === text.toLowerCase()) return false;
  const words = text.split(BLANKS).filter(Boolean).map((word) => [...word].length);
  return words.length >= WORDS_OF_A_SENTENCE || Math.max(...words) >= LONGEST_ACRONYM;
}

function float16(bits) {
  const exponent = (bits >> 10) & 31, fraction = bits & 1023, sign = bits >> 15 ? -1 : 1;
  return sign * (exponent ? (1 + fraction / 1024) * 2 ** (exponent - 15) : fraction / 2 ** 24);
}

/** Rounds halves to even. */
function rounded(value) {
  const floor = Math.floor(value), rest = value - floor;
  return floor + (rest > 0.5 || (rest === 0.5 && floor % 2 === 1) ? 1 : 0);
}
