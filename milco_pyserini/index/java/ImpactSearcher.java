import static java.nio.charset.StandardCharsets.UTF_8;

import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.atomic.AtomicMarkableReference;
import java.util.stream.IntStream;
import org.apache.lucene.codecs.Codec;
import org.apache.lucene.codecs.PostingsFormat;
import org.apache.lucene.document.Document;
import org.apache.lucene.index.BinaryDocValues;
import org.apache.lucene.index.DirectoryReader;
import org.apache.lucene.index.LeafReaderContext;
import org.apache.lucene.index.PostingsEnum;
import org.apache.lucene.index.ReaderUtil;
import org.apache.lucene.index.Terms;
import org.apache.lucene.index.TermsEnum;
import org.apache.lucene.search.DocIdSetIterator;
import org.apache.lucene.store.FSDirectory;
import org.apache.lucene.util.Bits;
import org.apache.lucene.util.BytesRef;
import org.apache.lucene.util.FixedBitSet;
import org.apache.lucene.util.IntroSelector;
import org.apache.lucene.util.RamUsageEstimator;

/** Searches with the docids and scores of LuceneImpactSearcher, in one call per query: see lucene.py. */
public final class ImpactSearcher {
  private static final char DELIMITER = '\ue000';

  /** Documents whose scores are added up at a time: 128 KB, which stay in a processor's cache. */
  private static final int WINDOW = 1 << 15;

  /** Documents of a window that are compared with the k-th best score at once. */
  private static final int GROUP = 1 << 6;

  /** Up to here int sums are those of Lucene, which multiplies in float and adds in double. */
  private static final int EXACT = 1 << 24;

  /** Documents that are worth a thread of their own. */
  private static final int LEAST_SHARE = 1 << 13;

  /** Scores that are kept in addition to twice k before the k best are selected. */
  private static final int SPARE = 1024;

  private ImpactSearcher() {}

  /** Loads in the background what takes most time when the first index is opened: all versions of Lucene's formats. */
  public static void loadFormats() {
    Thread formats =
        new Thread(
            () -> {
              Codec.availableCodecs();
              PostingsFormat.availablePostingsFormats();
              RamUsageEstimator.alignObjectSize(1);
            });
    formats.setDaemon(true);
    formats.start();
  }

  /** Opens an index. The wrapper is a class that pyjnius inspects at little cost. */
  public static AtomicMarkableReference<DirectoryReader> open(String path) throws IOException {
    return new AtomicMarkableReference<>(DirectoryReader.open(FSDirectory.open(Paths.get(path))), false);
  }

  /** Closes an index, whose files stay in memory maps until then. */
  public static void close(AtomicMarkableReference<DirectoryReader> index) throws IOException {
    index.getReference().close();
  }

  /**
   * Returns the k best documents, ties in ascending order of docid, also if k cuts through them.
   *
   * @param terms (TERM U+E000 IMPACT " ")*
   * @param threads that share the documents of a large index
   * @return their number, the number of all that match, and scores, four bytes each, and docids in UTF-8, each followed
   *     by 0xff
   */
  public static byte[] search(
      AtomicMarkableReference<DirectoryReader> index, String terms, String k, String threads) throws IOException {
    return search(index.getReference(), terms, Integer.parseInt(k), Integer.parseInt(threads), null);
  }

  /** Returns the k best of the documents that filter() returned, as search() does. */
  public static byte[] searchFiltered(
      AtomicMarkableReference<DirectoryReader> index,
      String terms,
      String k,
      String threads,
      AtomicMarkableReference<FixedBitSet> filter)
      throws IOException {
    return search(
        index.getReference(), terms, Integer.parseInt(k), Integer.parseInt(threads), filter.getReference());
  }

  /**
   * Returns the documents that have one of the values in each field.
   *
   * @param filters (BYTES " " FIELD COUNT " " (BYTES " " VALUE)*)*
   */
  public static AtomicMarkableReference<FixedBitSet> filter(
      AtomicMarkableReference<DirectoryReader> index, String filters) throws IOException {
    DirectoryReader reader = index.getReference();
    FixedBitSet all = new FixedBitSet(reader.maxDoc());
    all.set(0, reader.maxDoc());
    ImpactDocuments.Cursor at = new ImpactDocuments.Cursor(filters.getBytes(UTF_8));
    while (!at.isAtEnd()) {
      at.readString();
      String field = at.word.utf8ToString();
      FixedBitSet matching = new FixedBitSet(reader.maxDoc());
      for (int values = at.readNumber(); values > 0; values--) {
        at.readString();
        for (LeafReaderContext leaf : reader.leaves()) {
          DocIdSetIterator found = documents(leaf, field, at.word);
          while (found.nextDoc() != DocIdSetIterator.NO_MORE_DOCS) {
            matching.set(leaf.docBase + found.docID());
          }
        }
      }
      all.and(matching);
    }
    return new AtomicMarkableReference<>(all, false);
  }

  /** Returns the documents by their value of a field; those that have none, or an empty one, are a group, too. */
  public static AtomicMarkableReference<Groups> groups(AtomicMarkableReference<DirectoryReader> index, String field)
      throws IOException {
    DirectoryReader reader = index.getReference();
    Map<BytesRef, Integer> numbers = new LinkedHashMap<>(Map.of(new BytesRef(), 0));
    int[] of = new int[reader.maxDoc()];
    for (LeafReaderContext leaf : reader.leaves()) {
      Terms terms = leaf.reader().terms(field);
      TermsEnum values = terms == null ? TermsEnum.EMPTY : terms.iterator();
      for (BytesRef value = values.next(); value != null; value = values.next()) {
        int number = numbers.computeIfAbsent(BytesRef.deepCopyOf(value), added -> numbers.size());
        PostingsEnum found = values.postings(null, PostingsEnum.NONE);
        while (found.nextDoc() != DocIdSetIterator.NO_MORE_DOCS) {
          of[leaf.docBase + found.docID()] = number;
        }
      }
    }
    int[] sizes = new int[numbers.size()];
    for (LeafReaderContext leaf : reader.leaves()) {
      Bits live = leaf.reader().getLiveDocs();
      for (int document = 0; document < leaf.reader().maxDoc(); document++) {
        sizes[of[leaf.docBase + document]] += live == null || live.get(document) ? 1 : 0;
      }
    }
    return new AtomicMarkableReference<>(new Groups(List.copyOf(numbers.keySet()), of, sizes), false);
  }

  /**
   * Returns the k best documents of each group.
   *
   * @param filter what filter() returned, or null
   * @param groups what groups() returned
   * @return for each group its size, in four bytes; the sum of the scores of all of its documents, also of those that do
   *     not pass the filter, as a double; its value in UTF-8 and the documents as search() returns them, both after the
   *     number of their bytes, in four bytes
   */
  public static byte[] searchGroups(
      AtomicMarkableReference<DirectoryReader> index,
      String terms,
      String k,
      AtomicMarkableReference<FixedBitSet> filter,
      AtomicMarkableReference<Groups> groups)
      throws IOException {
    DirectoryReader reader = index.getReference();
    Groups all = groups.getReference();
    FixedBitSet passing = filter == null ? null : filter.getReference();
    GroupedBest best =
        (GroupedBest)
            bestOf(reader, query(terms), Integer.parseInt(k), passing, all, 0, reader.maxDoc(), true);
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    DataOutputStream output = new DataOutputStream(bytes);
    for (int group = 0; group < all.sizes.length; group++) {
      BytesRef value = all.values.get(group);
      byte[] hits = best(reader, best.groups[group]);
      output.writeInt(all.sizes[group]);
      output.writeDouble(best.sums[group]);
      output.writeInt(value.length);
      output.write(value.bytes, value.offset, value.length);
      output.writeInt(hits.length);
      output.write(hits);
    }
    return bytes.toByteArray();
  }

  /**
   * Returns stored documents.
   *
   * @param docids (BYTES " " DOCID)*
   * @return for each, the number of bytes, in four bytes, and the document in UTF-8; 0 if the index does not have it
   */
  public static byte[] stored(AtomicMarkableReference<DirectoryReader> index, String docids) throws IOException {
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    DataOutputStream output = new DataOutputStream(bytes);
    ImpactDocuments.Cursor at = new ImpactDocuments.Cursor(docids.getBytes(UTF_8));
    while (!at.isAtEnd()) {
      at.readString();
      byte[] document = new byte[0];
      for (LeafReaderContext leaf : index.getReference().leaves()) {
        Bits live = leaf.reader().getLiveDocs();
        DocIdSetIterator found = documents(leaf, ImpactDocuments.ID, at.word);
        while (found.nextDoc() != DocIdSetIterator.NO_MORE_DOCS) {
          if (live == null || live.get(found.docID())) {
            Document one = leaf.reader().storedFields().document(found.docID(), Set.of(ImpactDocuments.RAW));
            document = one.get(ImpactDocuments.RAW).getBytes(UTF_8);
          }
        }
      }
      output.writeInt(document.length);
      output.write(document);
    }
    return bytes.toByteArray();
  }

  /**
   * Returns the impacts of terms in a document.
   *
   * @param docid BYTES " " DOCID
   * @param terms (BYTES " " TERM)*
   * @return 1, and the impact of each term, 0 if the document does not have it, in four bytes each; nothing if the index
   *     has no such document
   */
  public static byte[] impacts(AtomicMarkableReference<DirectoryReader> index, String docid, String terms)
      throws IOException {
    ImpactDocuments.Cursor name = new ImpactDocuments.Cursor(docid.getBytes(UTF_8));
    name.readString();
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    for (LeafReaderContext leaf : index.getReference().leaves()) {
      Bits live = leaf.reader().getLiveDocs();
      DocIdSetIterator found = documents(leaf, ImpactDocuments.ID, name.word);
      while (found.nextDoc() != DocIdSetIterator.NO_MORE_DOCS) {
        if (live == null || live.get(found.docID())) {
          DataOutputStream output = new DataOutputStream(bytes);
          output.writeInt(1);
          ImpactDocuments.Cursor at = new ImpactDocuments.Cursor(terms.getBytes(UTF_8));
          while (!at.isAtEnd()) {
            at.readString();
            var term = new org.apache.lucene.index.Term(ImpactDocuments.CONTENTS, at.word);
            PostingsEnum postings = leaf.reader().postings(term, PostingsEnum.FREQS);
            boolean has = postings != null && postings.advance(found.docID()) == found.docID();
            output.writeInt(has ? postings.freq() : 0);
          }
          return bytes.toByteArray();
        }
      }
    }
    return bytes.toByteArray();
  }

  private static DocIdSetIterator documents(LeafReaderContext leaf, String field, BytesRef term) throws IOException {
    PostingsEnum found = leaf.reader().postings(new org.apache.lucene.index.Term(field, term), PostingsEnum.NONE);
    return found == null ? DocIdSetIterator.empty() : found;
  }

  private static byte[] search(DirectoryReader reader, String terms, int k, int threads, FixedBitSet filter)
      throws IOException {
    List<QueryTerm> query = query(terms);
    int documents = reader.maxDoc();
    int parts = Math.max(1, Math.min(threads, documents / LEAST_SHARE));
    Best best;
    if (parts == 1) {
      best = bestOf(reader, query, k, filter, null, 0, documents, true);
    } else {
      try {
        best =
            IntStream.range(0, parts)
                .parallel()
                .mapToObj(
                    part -> {
                      int start = (int) ((long) documents * part / parts);
                      int end = (int) ((long) documents * (part + 1) / parts);
                      try {
                        return bestOf(reader, query, k, filter, null, start, end, true);
                      } catch (IOException error) {
                        throw new UncheckedIOException(error);
                      }
                    })
                .reduce(Best::add)
                .get();
      } catch (UncheckedIOException error) {
        throw error.getCause();
      }
    }
    return best(reader, best);
  }

  /** Returns the k best as search() does. */
  private static byte[] best(DirectoryReader reader, Best best) throws IOException {
    List<Hit> hits = hits(reader, best.kept());
    hits.sort(null);
    return written(hits.subList(0, Math.min(best.k, hits.size())), best.total);
  }

  /**
   * Returns the k best of the documents from first to end.
   *
   * @param groups for the k best of each group, a GroupedBest; or null
   * @param exact add in int, which takes less time; in float and double, as Lucene does, if that turns out too small
   */
  private static Best bestOf(
      DirectoryReader reader,
      List<QueryTerm> query,
      int k,
      FixedBitSet filter,
      Groups groups,
      int first,
      int end,
      boolean exact)
      throws IOException {
    Best best = groups == null ? new Best(k, exact) : new GroupedBest(k, exact, groups);
    int[] keys = new int[Math.min(WINDOW, end - first)];
    double[] sums = new double[exact ? 0 : keys.length];
    for (LeafReaderContext leaf : reader.leaves()) {
      int leafEnd = Math.min(leaf.reader().maxDoc(), end - leaf.docBase);
      int start = Math.max(0, first - leaf.docBase);
      if (start >= leafEnd) {
        continue;
      }
      List<Term> found = find(leaf, query, start);
      // Those that were not deleted since their segment was written; null for all.
      Bits live = leaf.reader().getLiveDocs();
      for (; start < leafEnd; start += keys.length) {
        int window = Math.min(keys.length, leafEnd - start);
        if (exact) {
          if (Term.addAll(found, keys, start, start + window) > EXACT) {
            return bestOf(reader, query, k, filter, groups, first, end, false);
          }
        } else {
          for (Term term : found) {
            term.add(sums, start, start + window);
          }
          for (int place = 0; place < window; place++) {
            keys[place] = Float.floatToIntBits((float) sums[place]);
            sums[place] = 0;
          }
        }
        if (live != null) {
          dropOthers(keys, live, start, window);
        }
        best.sum(keys, leaf.docBase + start, window);
        if (filter != null) {
          dropOthers(keys, filter, leaf.docBase + start, window);
        }
        best.take(keys, leaf.docBase + start, window);
      }
    }
    return best;
  }

  /** Sets the scores of all but some documents to zero. */
  private static void dropOthers(int[] keys, Bits documents, int base, int window) {
    for (int place = 0; place < window; place++) {
      if (keys[place] != 0 && !documents.get(base + place)) {
        keys[place] = 0;
      }
    }
  }

  /** Returns the terms of a query in the order of Lucene's dictionary, in which they are found fastest. */
  private static List<QueryTerm> query(String terms) {
    List<QueryTerm> query = new ArrayList<>();
    for (int at = 0, end; at < terms.length(); at = end + 1) {
      int delimiter = terms.indexOf(DELIMITER, at);
      end = terms.indexOf(' ', delimiter);
      BytesRef term = new BytesRef(terms.substring(at, delimiter));
      query.add(new QueryTerm(term, Integer.parseInt(terms, delimiter + 1, end, 10)));
    }
    query.sort(Comparator.comparing(QueryTerm::term));
    return query;
  }

  /** Returns the postings of the terms that a segment has, from a document on. */
  private static List<Term> find(LeafReaderContext leaf, List<QueryTerm> query, int start) throws IOException {
    List<Term> found = new ArrayList<>();
    Terms contents = leaf.reader().terms("contents");
    TermsEnum dictionary = contents == null ? TermsEnum.EMPTY : contents.iterator();
    for (QueryTerm one : query) {
      if (dictionary.seekExact(one.term)) {
        PostingsEnum postings = dictionary.postings(null, PostingsEnum.FREQS);
        // advance() prepares skip lists, which the first document does not need.
        if (start == 0) {
          postings.nextDoc();
        } else {
          postings.advance(start);
        }
        found.add(new Term(postings, one.impact));
      }
    }
    return found;
  }

  private record QueryTerm(BytesRef term, int impact) {}

  private record Term(PostingsEnum postings, int impact) {
    /** Adds the contributions of all terms to a window; returns a bound of the largest score. */
    static long addAll(List<Term> terms, int[] scores, int start, int end) throws IOException {
      long bound = 0;
      int at = 0;
      for (; at + 1 < terms.size(); at += 2) {
        bound += addTwo(terms.get(at), terms.get(at + 1), scores, start, end);
      }
      return at < terms.size() ? bound + terms.get(at).add(scores, start, end) : bound;
    }

    /**
     * Adds the contributions of two terms in turn: every step along a postings list waits for the one before, but a
     * processor takes steps along two lists at once. With four lists Java's code is slower again.
     */
    private static long addTwo(Term one, Term other, int[] scores, int start, int end) throws IOException {
      // Local variables, for which Java makes the fastest code.
      PostingsEnum a = one.postings;
      PostingsEnum b = other.postings;
      int impactA = one.impact;
      int impactB = other.impact;
      int bitsA = 0;
      int bitsB = 0;
      int documentA = a.docID();
      int documentB = b.docID();
      while (documentA < end && documentB < end) {
        int frequencyA = a.freq();
        bitsA |= frequencyA;
        scores[documentA - start] += impactA * frequencyA;
        documentA = a.nextDoc();
        int frequencyB = b.freq();
        bitsB |= frequencyB;
        scores[documentB - start] += impactB * frequencyB;
        documentB = b.nextDoc();
      }
      long bound = (long) impactA * bitsA + (long) impactB * bitsB;
      return bound + one.add(scores, start, end) + other.add(scores, start, end);
    }

    /** Adds the contributions of the term to a window; returns a bound of the largest one. */
    long add(int[] scores, int start, int end) throws IOException {
      PostingsEnum list = postings;
      int factor = impact;
      // The bits of all frequencies.
      int bits = 0;
      int document = list.docID();
      while (document < end) {
        int frequency = list.freq();
        bits |= frequency;
        scores[document - start] += factor * frequency;
        document = list.nextDoc();
      }
      return (long) factor * bits;
    }

    /** Adds the contributions of the term to a window, as Lucene does: products in float, sums in double. */
    void add(double[] scores, int start, int end) throws IOException {
      for (int document = postings.docID(); document < end; document = postings.nextDoc()) {
        scores[document - start] += (float) impact * postings.freq();
      }
    }
  }

  /** The k best scores so far and all ties of the last; score bits in the high, document in the low half. */
  private static class Best {
    final int k;

    /** Whether the keys of a window are its scores, or the bits of its float scores, whose order is the same. */
    final boolean exact;

    /** Number of documents with a score. */
    int total = 0;

    private long[] kept;
    private int size = 0;
    private int least = 1;

    Best(int k, boolean exact) {
      this.k = k;
      this.exact = exact;
      kept = new long[2 * k + SPARE];
    }

    /** Adds up scores, before documents that do not pass the filter are dropped: for GroupedBest. */
    void sum(int[] keys, int base, int window) {}

    /** Takes the keys of a window and resets them to zero. */
    void take(int[] keys, int base, int window) {
      for (int start = 0; start < window; start += GROUP) {
        int end = Math.min(window, start + GROUP);
        // Loops without branches, which Java vectorizes.
        int largest = 0;
        int matching = 0;
        for (int place = start; place < end; place++) {
          largest = Math.max(largest, keys[place]);
          matching += -keys[place] >>> 31;
        }
        total += matching;
        for (int place = start; place < end && largest >= least; place++) {
          if (keys[place] >= least) {
            keep(keys[place], base + place);
          }
        }
      }
      Arrays.fill(keys, 0, window, 0);
    }

    /** Takes the key of one document. */
    void take(int key, int document) {
      total++;
      if (key >= least) {
        keep(key, document);
      }
    }

    private void keep(int key, int document) {
      int bits = exact ? Float.floatToIntBits(key) : key;
      keep((long) bits << 32 | document);
    }

    /** Adds what was kept of later documents. */
    Best add(Best later) {
      total += later.total;
      for (long one : later.kept()) {
        keep(one);
      }
      return this;
    }

    private void keep(long one) {
      if (size == kept.length) {
        shrink();
      }
      kept[size++] = one;
    }

    /** Returns the kept scores in the order of documents. */
    long[] kept() {
      shrink();
      return Arrays.copyOf(kept, size);
    }

    /** Drops all but the k best and their ties, and grows the array if that does not free enough of it. */
    private void shrink() {
      if (size > k) {
        int bits = (int) (smallestOfBest() >> 32);
        least = exact ? (int) Float.intBitsToFloat(bits) : bits;
        int left = 0;
        for (int place = 0; place < size; place++) {
          if ((int) (kept[place] >> 32) >= bits) {
            kept[left++] = kept[place];
          }
        }
        size = left;
      }
      if (size > kept.length / 2) {
        kept = Arrays.copyOf(kept, 2 * kept.length);
      }
    }

    /** Returns the k-th largest of what is kept. */
    private long smallestOfBest() {
      long[] some = Arrays.copyOf(kept, size);
      new IntroSelector() {
        long pivot;

        @Override
        protected void swap(int one, int other) {
          long moved = some[one];
          some[one] = some[other];
          some[other] = moved;
        }

        @Override
        protected void setPivot(int place) {
          pivot = some[place];
        }

        @Override
        protected int comparePivot(int place) {
          return Long.compare(pivot, some[place]);
        }
      }.select(0, size, size - k);
      return some[size - k];
    }
  }

  /** Documents by the value of a field: all values, the number of each document's, and the size of each group. */
  private record Groups(List<BytesRef> values, int[] of, int[] sizes) {}

  /** The k best scores of each group of documents, and the sum of all of its scores. */
  private static final class GroupedBest extends Best {
    final Best[] groups;
    final double[] sums;
    private final int[] of;

    GroupedBest(int k, boolean exact, Groups all) {
      super(0, exact);
      groups = new Best[all.sizes.length];
      Arrays.setAll(groups, group -> new Best(Math.min(k, all.sizes[group]), exact));
      sums = new double[all.sizes.length];
      of = all.of;
    }

    @Override
    void sum(int[] keys, int base, int window) {
      for (int place = 0; place < window; place++) {
        sums[of[base + place]] += exact ? keys[place] : Float.intBitsToFloat(keys[place]);
      }
    }

    @Override
    void take(int[] keys, int base, int window) {
      for (int place = 0; place < window; place++) {
        if (keys[place] != 0) {
          groups[of[base + place]].take(keys[place], base + place);
        }
      }
      Arrays.fill(keys, 0, window, 0);
    }
  }

  private record Hit(float score, BytesRef docid) implements Comparable<Hit> {
    @Override
    public int compareTo(Hit other) {
      return score == other.score ? docid.compareTo(other.docid) : Float.compare(other.score, score);
    }
  }

  /** Reads the docids of kept scores, which are in the order of documents, as docids must be read. */
  private static List<Hit> hits(DirectoryReader reader, long[] kept) throws IOException {
    List<Hit> hits = new ArrayList<>(kept.length);
    LeafReaderContext leaf = null;
    BinaryDocValues docids = null;
    for (long one : kept) {
      int document = (int) one;
      if (leaf == null || document >= leaf.docBase + leaf.reader().maxDoc()) {
        leaf = reader.leaves().get(ReaderUtil.subIndex(document, reader.leaves()));
        docids = leaf.reader().getBinaryDocValues("id");
      }
      docids.advanceExact(document - leaf.docBase);
      hits.add(new Hit(Float.intBitsToFloat((int) (one >> 32)), BytesRef.deepCopyOf(docids.binaryValue())));
    }
    return hits;
  }

  private static byte[] written(List<Hit> hits, int total) {
    int size = 8 + 5 * hits.size();
    for (Hit hit : hits) {
      size += hit.docid.length;
    }
    ByteBuffer bytes = ByteBuffer.allocate(size).putInt(hits.size()).putInt(total);
    for (Hit hit : hits) {
      bytes.putFloat(hit.score);
    }
    for (Hit hit : hits) {
      bytes.put(hit.docid.bytes, hit.docid.offset, hit.docid.length).put((byte) 0xff);
    }
    return bytes.array();
  }
}
