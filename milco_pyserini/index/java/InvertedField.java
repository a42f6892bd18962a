import java.io.IOException;
import java.util.Arrays;
import org.apache.lucene.index.BaseTermsEnum;
import org.apache.lucene.index.ImpactsEnum;
import org.apache.lucene.index.PostingsEnum;
import org.apache.lucene.index.SlowImpactsEnum;
import org.apache.lucene.index.Terms;
import org.apache.lucene.index.TermsEnum;
import org.apache.lucene.util.ArrayUtil;
import org.apache.lucene.util.BytesRef;
import org.apache.lucene.util.BytesRefHash;

/**
 * One field of many documents: added document by document, read term by term.
 *
 * <p>Postings are inverted by one counting sort. Lucene itself appends each posting to the list of its term, a wait
 * for main memory at every step.
 */
final class InvertedField extends Terms {
  private final boolean frequencies;
  private final BytesRefHash terms = new BytesRefHash();

  /** Term and frequency of every posting by document, with the ends of documents; after invert(), document by term. */
  private int[] firsts = new int[1 << 16];

  private int[] counts = new int[1 << 16];
  private int[] ends = new int[1 << 10];
  private int postings = 0;
  private int documents = 0;
  private int documentsWithTerms = 0;
  private long total = 0;

  /** Numbers of the sorted terms, and the start of the postings of each term, by number. */
  private int[] order;

  private int[] starts;

  InvertedField(boolean frequencies) {
    this.frequencies = frequencies;
  }

  /** Adds a posting to the current document; returns the number of the term. */
  int add(BytesRef term, int frequency) {
    if (postings == firsts.length) {
      firsts = ArrayUtil.grow(firsts, postings + 1);
      counts = ArrayUtil.growExact(counts, firsts.length);
    }
    int number = terms.add(term);
    number = number < 0 ? -number - 1 : number;
    firsts[postings] = number;
    counts[postings++] = frequency;
    total += frequency;
    return number;
  }

  void endDocument() {
    ends = ArrayUtil.grow(ends, documents + 1);
    if (postings > (documents == 0 ? 0 : ends[documents - 1])) {
      documentsWithTerms++;
    }
    ends[documents++] = postings;
  }

  int postings() {
    return postings;
  }

  BytesRef term(int number, BytesRef into) {
    return terms.get(number, into);
  }

  /** Inverts what was added. From here on the field is only read. */
  void invert() {
    starts = new int[terms.size() + 1];
    for (int posting = 0; posting < postings; posting++) {
      starts[firsts[posting] + 1]++;
    }
    Arrays.parallelPrefix(starts, Integer::sum);
    int[] next = Arrays.copyOf(starts, starts.length);
    int[] rows = new int[postings];
    int[] sorted = new int[postings];
    for (int document = 0, posting = 0; document < documents; document++) {
      for (; posting < ends[document]; posting++) {
        int place = next[firsts[posting]]++;
        rows[place] = document;
        sorted[place] = counts[posting];
      }
    }
    firsts = rows;
    counts = sorted;
    order = terms.sort();
  }

  @Override
  public TermsEnum iterator() {
    return new InOrder();
  }

  @Override
  public long size() {
    return terms.size();
  }

  @Override
  public long getSumTotalTermFreq() {
    return total;
  }

  @Override
  public long getSumDocFreq() {
    return postings;
  }

  @Override
  public int getDocCount() {
    return documentsWithTerms;
  }

  @Override
  public boolean hasFreqs() {
    return frequencies;
  }

  @Override
  public boolean hasOffsets() {
    return false;
  }

  @Override
  public boolean hasPositions() {
    return false;
  }

  @Override
  public boolean hasPayloads() {
    return false;
  }

  private final class InOrder extends BaseTermsEnum {
    private final BytesRef term = new BytesRef();
    private int rank = -1;

    @Override
    public BytesRef next() {
      return ++rank < size() ? terms.get(order[rank], term) : null;
    }

    @Override
    public BytesRef term() {
      return term;
    }

    @Override
    public long ord() {
      return rank;
    }

    @Override
    public int docFreq() {
      return starts[order[rank] + 1] - starts[order[rank]];
    }

    @Override
    public long totalTermFreq() {
      long sum = 0;
      for (int posting = starts[order[rank]]; posting < starts[order[rank] + 1]; posting++) {
        sum += counts[posting];
      }
      return sum;
    }

    @Override
    public PostingsEnum postings(PostingsEnum reuse, int flags) {
      return new Postings(starts[order[rank]], starts[order[rank] + 1]);
    }

    @Override
    public ImpactsEnum impacts(int flags) {
      return new SlowImpactsEnum(postings(null, flags));
    }

    @Override
    public SeekStatus seekCeil(BytesRef text) {
      throw new UnsupportedOperationException();
    }

    @Override
    public void seekExact(long ord) {
      throw new UnsupportedOperationException();
    }
  }

  private final class Postings extends PostingsEnum {
    private int posting;
    private final int start;
    private final int end;

    Postings(int start, int end) {
      this.posting = start - 1;
      this.start = start;
      this.end = end;
    }

    @Override
    public int docID() {
      return posting < start ? -1 : posting < end ? firsts[posting] : NO_MORE_DOCS;
    }

    @Override
    public int nextDoc() {
      return ++posting < end ? firsts[posting] : NO_MORE_DOCS;
    }

    @Override
    public int advance(int target) throws IOException {
      return slowAdvance(target);
    }

    @Override
    public long cost() {
      return end - start;
    }

    @Override
    public int freq() {
      return counts[posting];
    }

    @Override
    public int nextPosition() {
      return -1;
    }

    @Override
    public int startOffset() {
      return -1;
    }

    @Override
    public int endOffset() {
      return -1;
    }

    @Override
    public BytesRef getPayload() {
      return null;
    }
  }
}
