import static java.nio.charset.StandardCharsets.UTF_8;

import io.anserini.search.similarity.ImpactSimilarity;
import java.io.IOException;
import java.util.Iterator;
import java.util.List;
import org.apache.lucene.codecs.DocValuesProducer;
import org.apache.lucene.codecs.FieldsProducer;
import org.apache.lucene.codecs.NormsProducer;
import org.apache.lucene.codecs.StoredFieldsReader;
import org.apache.lucene.index.BinaryDocValues;
import org.apache.lucene.index.CodecReader;
import org.apache.lucene.index.EmptyDocValuesProducer;
import org.apache.lucene.index.FieldInfo;
import org.apache.lucene.index.FieldInvertState;
import org.apache.lucene.index.FilterCodecReader;
import org.apache.lucene.index.IndexOptions;
import org.apache.lucene.index.NumericDocValues;
import org.apache.lucene.index.StoredFieldVisitor;
import org.apache.lucene.index.Terms;
import org.apache.lucene.search.similarities.Similarity;
import org.apache.lucene.util.ArrayUtil;
import org.apache.lucene.util.Bits;
import org.apache.lucene.util.BytesRef;
import org.apache.lucene.util.Version;

/**
 * Documents in memory as a segment that Lucene can add to an index.
 *
 * <p>Fields, versions and all other properties of the segment are copied from a model: a segment that Lucene wrote for
 * one such document.
 */
final class ImpactDocuments extends FilterCodecReader {
  static final String ID = "id";
  static final String CONTENTS = "contents";

  /** U+E000 in UTF-8. */
  private static final byte[] DELIMITER = {(byte) 0xee, (byte) 0x80, (byte) 0x80};

  private static final Similarity SIMILARITY = new ImpactSimilarity();

  private final InvertedField ids = new InvertedField(false);
  private final InvertedField contents = new InvertedField(true);

  /** For each document, the position of its id among the terms of ids, and its norm. */
  private int[] names = new int[1 << 10];

  private long[] norms = new long[1 << 10];
  private int documents = 0;

  ImpactDocuments(CodecReader model) {
    super(model);
  }

  /** Adds all documents of a text: (BYTES-OF-ID " " ID (TERM U+E000 IMPACT " ")* "\n")*. */
  void add(String text) {
    Cursor at = new Cursor(text.getBytes(UTF_8));
    while (at.place < at.bytes.length) {
      names = ArrayUtil.grow(names, documents + 1);
      norms = ArrayUtil.grow(norms, documents + 1);
      at.readId();
      names[documents] = ids.add(at.word, 1);
      ids.endDocument();
      int length = 0;
      int most = 0;
      int first = contents.postings();
      while (at.readTerm()) {
        contents.add(at.word, at.number);
        length = Math.addExact(length, at.number);
        most = Math.max(most, at.number);
      }
      contents.endDocument();
      int unique = contents.postings() - first;
      norms[documents++] =
          SIMILARITY.computeNorm(
              new FieldInvertState(
                  Version.LATEST.major, CONTENTS, IndexOptions.DOCS_AND_FREQS, unique, length, 0, 0, most, unique));
    }
  }

  int postings() {
    return contents.postings();
  }

  void invert() {
    ids.invert();
    contents.invert();
  }

  private static final class Cursor {
    final byte[] bytes;
    final BytesRef word;
    int place = 0;
    int number;

    Cursor(byte[] bytes) {
      this.bytes = bytes;
      this.word = new BytesRef(bytes, 0, 0);
    }

    void readId() {
      readNumber();
      word.offset = place;
      word.length = number;
      place += number;
    }

    /** Reads a term and its impact; returns false at the end of the document. */
    boolean readTerm() {
      if (bytes[place] == '\n') {
        place++;
        return false;
      }
      word.offset = place;
      while (bytes[place] != DELIMITER[0] || bytes[place + 1] != DELIMITER[1] || bytes[place + 2] != DELIMITER[2]) {
        place++;
      }
      word.length = place - word.offset;
      place += DELIMITER.length;
      readNumber();
      return true;
    }

    private void readNumber() {
      number = 0;
      for (; bytes[place] != ' '; place++) {
        number = 10 * number + bytes[place] - '0';
      }
      place++;
    }
  }

  @Override
  public int numDocs() {
    return documents;
  }

  @Override
  public int maxDoc() {
    return documents;
  }

  @Override
  public Bits getLiveDocs() {
    return null;
  }

  @Override
  public CacheHelper getCoreCacheHelper() {
    return null;
  }

  @Override
  public CacheHelper getReaderCacheHelper() {
    return null;
  }

  @Override
  public FieldsProducer getPostingsReader() {
    return new FieldsProducer() {
      @Override
      public Iterator<String> iterator() {
        return List.of(CONTENTS, ID).iterator();
      }

      @Override
      public Terms terms(String field) {
        return field.equals(ID) ? ids : contents;
      }

      @Override
      public int size() {
        return 2;
      }

      @Override
      public void checkIntegrity() {}

      @Override
      public void close() {}
    };
  }

  @Override
  public StoredFieldsReader getFieldsReader() {
    return new StoredIds();
  }

  @Override
  public NormsProducer getNormsReader() {
    return new NormsProducer() {
      @Override
      public NumericDocValues getNorms(FieldInfo field) {
        return new Norms();
      }

      @Override
      public void checkIntegrity() {}

      @Override
      public void close() {}
    };
  }

  @Override
  public DocValuesProducer getDocValuesReader() {
    // Not a plain DocValuesProducer: the methods that it leaves open differ between versions of Lucene.
    return new EmptyDocValuesProducer() {
      @Override
      public BinaryDocValues getBinary(FieldInfo field) {
        return new Ids();
      }

      @Override
      public void checkIntegrity() {}

      @Override
      public void close() {}
    };
  }

  private final class StoredIds extends StoredFieldsReader {
    private final FieldInfo field = getFieldInfos().fieldInfo(ID);

    @Override
    public void document(int document, StoredFieldVisitor visitor) throws IOException {
      if (visitor.needsField(field) == StoredFieldVisitor.Status.YES) {
        visitor.stringField(field, ids.term(names[document], new BytesRef()).utf8ToString());
      }
    }

    @Override
    public StoredFieldsReader clone() {
      return this;
    }

    @Override
    public void checkIntegrity() {}

    @Override
    public void close() {}
  }

  /** The norm of every document. */
  private final class Norms extends NumericDocValues {
    private int document = -1;

    @Override
    public long longValue() {
      return norms[document];
    }

    @Override
    public boolean advanceExact(int target) {
      document = target;
      return true;
    }

    @Override
    public int docID() {
      return document;
    }

    @Override
    public int nextDoc() {
      return advance(document + 1);
    }

    @Override
    public int advance(int target) {
      return document = target < documents ? target : NO_MORE_DOCS;
    }

    @Override
    public long cost() {
      return documents;
    }
  }

  /** The id of every document. */
  private final class Ids extends BinaryDocValues {
    private final BytesRef id = new BytesRef();
    private int document = -1;

    @Override
    public BytesRef binaryValue() {
      return ids.term(names[document], id);
    }

    @Override
    public boolean advanceExact(int target) {
      document = target;
      return true;
    }

    @Override
    public int docID() {
      return document;
    }

    @Override
    public int nextDoc() {
      return advance(document + 1);
    }

    @Override
    public int advance(int target) {
      return document = target < documents ? target : NO_MORE_DOCS;
    }

    @Override
    public long cost() {
      return documents;
    }
  }
}
