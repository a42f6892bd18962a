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

/** Returns the content of a file of data/, which begins with its name and its export's version. Throws if it is another. */
function content(bytes, name, version) {
  const header = ENCODER.encode(`${name} ${version}\n`);
  if (header.every((byte, place) => bytes[place] === byte)) return bytes.subarray(header.length);
  const isOther = /^[a-z]+(-\d+)? [0-9a-f]{16}\n/.test(UTF8.decode(bytes.subarray(0, 64)));
  const problem = isOther ? "belongs to another export than site.json, or is another file of it" : "is damaged, or the host sends another file";
  throw new Error(`data/${name} ${problem}: upload all files of the export again.`);
}

/** The data of a page. load(name) resolves to the unpacked bytes of a file of data/. */
export class Index {
  constructor(site, load) {
    this.site = site;
    this.read = async (name) => content(await load(name), name, site.version);
    for (const [name, starts] of Object.entries(site.starts)) this[name] = new Chunks(this.read, name, starts);
  }

  async open() {
    const [tokenizer, values] = await Promise.all([this.read("tokenizer"), this.read("values")]);
    this.tokenizer = new Tokenizer(JSON.parse(UTF8.decode(tokenizer)));
    this.values = values;
    return this;
  }

  /** Returns the ids of a query's tokens. */
  ids(text) {
    const { length, lowercase, capitals } = this.site;
    const ids = this.tokenizer.ids(lowercase || (capitals && isInCapitals(text)) ? text.toLowerCase() : text);
    const after = this.tokenizer.after;
    return ids.length <= length ? ids : [...ids.slice(0, length - after.length), ...after];
  }

  /** Returns the terms of a query: column -> impact, and the pieces that it comes from. */
  async query(text) {
    const ids = this.ids(text), size = this.tokenizer.pieces.length;
    const units = new Map(ids.map((id) => [id * (size + 1), [id]]));
    ids.slice(1).forEach((id, place) => units.set(ids[place] * (size + 1) + 1 + id, [ids[place], id]));
    const rows = await this.table.get(units.keys()), terms = new Map();
    for (const [key, pieces] of units) {
      if (!rows.has(key)) continue;
      const reader = new Reader(rows.get(key)), columns = [];
      for (let count = reader.next(), column = 0; count; count--) columns.push((column += reader.next()));
      for (const column of columns) {
        const bits = reader.bytes[reader.at++] | (reader.bytes[reader.at++] << 8);
        if (bits > (terms.get(column)?.bits ?? 0)) terms.set(column, { column, bits, pieces });
      }
    }
    const { english, limits, scale } = this.site, kept = [];
    for (const [view, limit] of limits.entries()) {
      const own = [...terms.values()].filter(({ column }) => (column < english) === (view === 0));
      // Of positive floats, the order of the bits is that of the values.
      own.sort((a, b) => b.bits - a.bits || a.column - b.column);
      kept.push(...own.slice(0, limit ?? own.length));
    }
    for (const term of kept) {
      term.impact = rounded(Math.fround(float16(term.bits) * Math.fround(scale)));
      term.view = term.column < english ? "pivot" : "source";
      term.word = term.pieces.map((id) => this.tokenizer.pieces[id]).join("").replaceAll(WORD, " ").trim();
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
  const exponent = bits >> 10, fraction = bits & 1023;
  return exponent ? (1 + fraction / 1024) * 2 ** (exponent - 15) : fraction / 2 ** 24;
}

/** Rounds halves to even. */
function rounded(value) {
  const floor = Math.floor(value), rest = value - floor;
  return floor + (rest > 0.5 || (rest === 0.5 && floor % 2 === 1) ? 1 : 0);
}
