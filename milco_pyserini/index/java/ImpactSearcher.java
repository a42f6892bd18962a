import static java.nio.charset.StandardCharsets.UTF_8;

import io.anserini.search.similarity.ImpactSimilarity;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Paths;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.atomic.AtomicMarkableReference;
import org.apache.lucene.codecs.Codec;
import org.apache.lucene.index.BinaryDocValues;
import org.apache.lucene.index.DirectoryReader;
import org.apache.lucene.index.LeafReaderContext;
import org.apache.lucene.index.ReaderUtil;
import org.apache.lucene.index.Term;
import org.apache.lucene.search.BooleanClause;
import org.apache.lucene.search.BooleanQuery;
import org.apache.lucene.search.BoostQuery;
import org.apache.lucene.search.IndexSearcher;
import org.apache.lucene.search.Query;
import org.apache.lucene.search.ScoreDoc;
import org.apache.lucene.search.TermQuery;
import org.apache.lucene.store.FSDirectory;
import org.apache.lucene.util.BytesRef;

/** LuceneImpactSearcher's docids and scores, in one call for each query: see lucene_search.py. */
public final class ImpactSearcher {
  private static final char DELIMITER = '\ue000';

  /** How many hits are asked for beyond k, so that a tie at the cut is mostly seen whole. */
  private static final int SPARE = 8;

  private ImpactSearcher() {}

  /** An open index, in a wrapping that pyjnius knows everything about at little cost. */
  public static AtomicMarkableReference<IndexSearcher> open(String path) throws IOException {
    // A third of the time that the first index takes to open goes into the codecs of all of Lucene's versions, another
    // into what IndexSearcher loads.
    Thread codecs = new Thread(Codec::availableCodecs);
    codecs.setDaemon(true);
    codecs.start();
    // A query has as many clauses as terms; the default limit of 1,024 is against careless wildcards.
    IndexSearcher.setMaxClauseCount(Integer.MAX_VALUE);
    IndexSearcher searcher = new IndexSearcher(DirectoryReader.open(FSDirectory.open(Paths.get(path))));
    searcher.setSimilarity(new ImpactSimilarity());
    return new AtomicMarkableReference<>(searcher, false);
  }

  /**
   * The k best documents, ties in ascending order of docid, also where k cuts through them.
   *
   * @param terms (TERM U+E000 IMPACT " ")*
   * @return their number and scores, four bytes each, and docids in UTF-8, each ended by 0xff
   */
  public static byte[] search(AtomicMarkableReference<IndexSearcher> index, String terms, String k)
      throws IOException {
    IndexSearcher searcher = index.getReference();
    ScoreDoc[] hits = best(searcher, query(terms), Integer.parseInt(k));
    BytesRef[] docids = docids(searcher.getIndexReader().leaves(), hits);
    for (int start = 0, end; start < hits.length; start = end) {
      end = start + 1;
      while (end < hits.length && hits[end].score == hits[start].score) {
        end++;
      }
      Arrays.sort(docids, start, end);
    }
    return written(hits, docids, Math.min(Integer.parseInt(k), hits.length));
  }

  private static Query query(String terms) {
    BooleanQuery.Builder query = new BooleanQuery.Builder();
    for (int start = 0, end; start < terms.length(); start = end + 1) {
      int delimiter = terms.indexOf(DELIMITER, start);
      end = terms.indexOf(' ', delimiter);
      Term term = new Term("contents", terms.substring(start, delimiter));
      int impact = Integer.parseInt(terms, delimiter + 1, end, 10);
      query.add(new BoostQuery(new TermQuery(term), impact), BooleanClause.Occur.SHOULD);
    }
    return query.build();
  }

  /** The k best and all that tie with the last of them. Lucene breaks ties by another number, so none may lack. */
  private static ScoreDoc[] best(IndexSearcher searcher, Query query, int k) throws IOException {
    int documents = searcher.getIndexReader().maxDoc();
    for (long depth = (long) k + SPARE; ; depth *= 2) {
      ScoreDoc[] hits = searcher.search(query, (int) Math.min(depth, documents)).scoreDocs;
      if (hits.length <= k) {
        return hits;
      }
      int kept = hits.length;
      while (hits[kept - 1].score < hits[k - 1].score) {
        kept--;
      }
      if (kept < hits.length || hits.length == documents || hits.length < depth) {
        return Arrays.copyOf(hits, kept);
      }
    }
  }

  /** The docid of each hit, read in the order of documents, as doc values must be. */
  private static BytesRef[] docids(List<LeafReaderContext> leaves, ScoreDoc[] hits) throws IOException {
    long[] order = new long[hits.length];
    for (int rank = 0; rank < hits.length; rank++) {
      order[rank] = (long) hits[rank].doc << 32 | rank;
    }
    Arrays.sort(order);
    BytesRef[] docids = new BytesRef[hits.length];
    LeafReaderContext leaf = null;
    BinaryDocValues values = null;
    for (long one : order) {
      int document = (int) (one >> 32);
      if (leaf == null || document >= leaf.docBase + leaf.reader().maxDoc()) {
        leaf = leaves.get(ReaderUtil.subIndex(document, leaves));
        values = leaf.reader().getBinaryDocValues("id");
      }
      values.advanceExact(document - leaf.docBase);
      docids[(int) one] = BytesRef.deepCopyOf(values.binaryValue());
    }
    return docids;
  }

  private static byte[] written(ScoreDoc[] hits, BytesRef[] docids, int k) {
    int size = 4 + 5 * k;
    for (int rank = 0; rank < k; rank++) {
      size += docids[rank].length;
    }
    ByteBuffer bytes = ByteBuffer.allocate(size).putInt(k);
    for (int rank = 0; rank < k; rank++) {
      bytes.putFloat(hits[rank].score);
    }
    for (int rank = 0; rank < k; rank++) {
      bytes.put(docids[rank].bytes, docids[rank].offset, docids[rank].length).put((byte) 0xff);
    }
    return bytes.array();
  }
}
