import static java.nio.charset.StandardCharsets.UTF_8;

import io.anserini.search.similarity.ImpactSimilarity;
import java.io.IOException;
import java.util.Arrays;
import java.util.Iterator;
import java.util.SortedMap;
import java.util.TreeMap;
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
  static final String RAW = "raw";

  /** U+E000 in UTF-8. */
  private static final byte[] DELIMITER = {(byte) 0xee, (byte) 0x80, (byte) 0x80};

  private static final Similarity SIMILARITY = new ImpactSimilarity();

  /** Names of the filter fields, by which documents refer to them; null if documents are not stored. */
  private final String[] fields;

  private final InvertedField[] values;
  private final InvertedField ids = new InvertedField(false);
  private final InvertedField contents = new InvertedField(true);

  /** For each document, the position of its id among the terms of ids, and its norm. */
  private int[] names = new int[1 << 10];

  private long[] norms = new long[1 << 10];
  private int documents = 0;

  /** Stored documents one after the other, in UTF-8, and the end of each. */
  private byte[] raw = new byte[1 << 10];

  private int[] rawEnds = new int[1 << 10];

  /**
   * @param model a segment with all fields that documents may have
   * @param fields names of the filter fields; null if documents are not stored
   */
  ImpactDocuments(CodecReader model, String[] fields) {
    super(model);
    this.fields = fields;
    values = new InvertedField[fields == null ? 0 : fields.length];
    Arrays.setAll(values, field -> new InvertedField(false));
  }

  /**
   * Adds all documents of a text: (BYTES-OF-ID " " ID (TERM U+E000 IMPACT " ")* "\n" STORED)*.
   *
   * <p>STORED is "" if documents are not stored, or else BYTES " " DOCUMENT (NUMBER-OF-FIELD " " BYTES " " VALUE)* "\n".
   */
  void add(String text) {
    Cursor at = new Cursor(text.getBytes(UTF_8));
    while (!at.isAtEnd()) {
      names = ArrayUtil.grow(names, documents + 1);
      norms = ArrayUtil.grow(norms, documents + 1);
      at.readString();
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
      if (fields != null) {
        addStored(at);
      }
      int unique = contents.postings() - first;
      norms[documents++] =
          SIMILARITY.computeNorm(
              new FieldInvertState(
                  Version.LATEST.major, CONTENTS, IndexOptions.DOCS_AND_FREQS, unique, length, 0, 0, most, unique));
    }
  }

  private void addStored(Cursor at) {
    at.readString();
    int start = documents == 0 ? 0 : rawEnds[documents - 1];
    int end = Math.addExact(start, at.word.length);
    raw = ArrayUtil.grow(raw, end);
    System.arraycopy(at.bytes, at.word.offset, raw, start, at.word.length);
    rawEnds = ArrayUtil.grow(rawEnds, documents + 1);
    rawEnds[documents] = end;
    while (at.bytes[at.place] != '\n') {
      InvertedField field = values[at.readNumber()];
      at.readString();
      field.add(at.word, 1);
    }
    at.place++;
    for (InvertedField field : values) {
      field.endDocument();
    }
  }

  int postings() {
    return contents.postings();
  }

  int storedBytes() {
    return fields == null || documents == 0 ? 0 : rawEnds[documents - 1];
  }

  void invert() {
    ids.invert();
    contents.invert();
    for (InvertedField field : values) {
      field.invert();
    }
  }

  /** Reads numbers and strings from UTF-8. */
  static final class Cursor {
    final byte[] bytes;
    final BytesRef word;
    int place = 0;
    int number;

    Cursor(byte[] bytes) {
      this.bytes = bytes;
      this.word = new BytesRef(bytes, 0, 0);
    }

    boolean isAtEnd() {
      return place == bytes.length;
    }

    /** Reads (BYTES " " STRING). */
    void readString() {
      word.length = readNumber();
      word.offset = place;
      place += word.length;
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

    int readNumber() {
      number = 0;
      for (; bytes[place] != ' '; place++) {
        number = 10 * number + bytes[place] - '0';
      }
      place++;
      return number;
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
    SortedMap<String, Terms> inverted = new TreeMap<>();
    inverted.put(CONTENTS, contents);
    inverted.put(ID, ids);
    for (int field = 0; field < values.length; field++) {
      if (values[field].postings() > 0) {
        inverted.put(fields[field], values[field]);
      }
    }
    return new FieldsProducer() {
      @Override
      public Iterator<String> iterator() {
        return inverted.keySet().iterator();
      }

      @Override
      public Terms terms(String field) {
        return inverted.get(field);
      }

      @Override
      public int size() {
        return inverted.size();
      }

      @Override
      public void checkIntegrity() {}

      @Override
      public void close() {}
    };
  }

  @Override
  public StoredFieldsReader getFieldsReader() {
    return new StoredDocuments();
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

  private final class StoredDocuments extends StoredFieldsReader {
    private final FieldInfo idField = getFieldInfos().fieldInfo(ID);
    private final FieldInfo rawField = getFieldInfos().fieldInfo(RAW);

    @Override
    public void document(int document, StoredFieldVisitor visitor) throws IOException {
      if (visitor.needsField(idField) == StoredFieldVisitor.Status.YES) {
        visitor.stringField(idField, ids.term(names[document], new BytesRef()).utf8ToString());
      }
      if (fields != null && visitor.needsField(rawField) == StoredFieldVisitor.Status.YES) {
        int start = document == 0 ? 0 : rawEnds[document - 1];
        visitor.stringField(rawField, new String(raw, start, rawEnds[document] - start, UTF_8));
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
