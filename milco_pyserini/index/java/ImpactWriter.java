import static java.nio.charset.StandardCharsets.UTF_8;

import io.anserini.search.similarity.ImpactSimilarity;
import java.io.IOException;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.atomic.AtomicMarkableReference;
import org.apache.lucene.analysis.core.KeywordAnalyzer;
import org.apache.lucene.document.BinaryDocValuesField;
import org.apache.lucene.document.Document;
import org.apache.lucene.document.Field;
import org.apache.lucene.document.FieldType;
import org.apache.lucene.document.StoredField;
import org.apache.lucene.document.StringField;
import org.apache.lucene.index.CodecReader;
import org.apache.lucene.index.ConcurrentMergeScheduler;
import org.apache.lucene.index.DirectoryReader;
import org.apache.lucene.index.IndexOptions;
import org.apache.lucene.index.IndexWriter;
import org.apache.lucene.index.IndexWriterConfig;
import org.apache.lucene.index.Term;
import org.apache.lucene.store.ByteBuffersDirectory;
import org.apache.lucene.store.Directory;
import org.apache.lucene.store.FSDirectory;
import org.apache.lucene.util.BytesRef;

/** Writes the impact index that Anserini's IndexCollection writes, from sparse vectors: see lucene.py. */
public final class ImpactWriter {
  /** Upper bound for a posting: a document or term and a frequency, twice. */
  private static final int POSTING_BYTES = 24;

  private final IndexWriter writer;
  private final CodecReader model;
  private final ImpactDocuments[] buffers;

  /** Names of the filter fields; null if documents are not stored. */
  private final String[] fields;

  /** Number of postings that a buffer may hold, and bytes of stored documents. */
  private final int limit;

  private final int storedLimit;

  private ImpactWriter(String path, int threads, double megabytes, String[] fields) throws IOException {
    this.fields = fields;
    ConcurrentMergeScheduler scheduler =
        new ConcurrentMergeScheduler() {
          @Override
          protected void handleMergeException(Throwable exception) {
            // addIndexes and close rethrow it; by default its stack trace is printed, too.
          }
        };
    // The threads that merge also write the segments that are added.
    scheduler.setMaxMergesAndThreads(threads + 5, threads);
    writer = new IndexWriter(FSDirectory.open(Paths.get(path)), configuration().setMergeScheduler(scheduler));
    model = model(fields);
    buffers = new ImpactDocuments[threads];
    Arrays.setAll(buffers, thread -> new ImpactDocuments(model, fields));
    double bytes = Math.min(megabytes * (1 << 20), Runtime.getRuntime().maxMemory() / 4.0);
    limit = (int) (bytes / POSTING_BYTES / threads);
    storedLimit = (int) (bytes / 2 / threads);
  }

  /**
   * Opens an empty directory, or an index, for threads with numbers from 0, and buffers of so many megabytes in total.
   *
   * @param fields "" if documents are not stored; or else raw and the names of the filter fields, one per line
   */
  public static AtomicMarkableReference<ImpactWriter> open(
      String path, String threads, String megabytes, String fields) throws IOException {
    String[] names = fields.isEmpty() ? null : fields.lines().skip(1).toArray(String[]::new);
    ImpactWriter writer = new ImpactWriter(path, Integer.parseInt(threads), Double.parseDouble(megabytes), names);
    return new AtomicMarkableReference<>(writer, false);
  }

  /** Deletes documents of the index, if it has them: (BYTES " " ID)*. Buffers are not searched for them. */
  public static void delete(AtomicMarkableReference<ImpactWriter> index, String ids) throws IOException {
    ImpactDocuments.Cursor at = new ImpactDocuments.Cursor(ids.getBytes(UTF_8));
    List<Term> terms = new ArrayList<>();
    while (!at.isAtEnd()) {
      at.readString();
      terms.add(new Term(ImpactDocuments.ID, at.word));
    }
    index.getReference().writer.deleteDocuments(terms.toArray(Term[]::new));
  }

  /** Adds the documents of a text to the buffer of a thread, and flushes it when it is full. */
  public static void add(AtomicMarkableReference<ImpactWriter> index, String thread, String text) throws IOException {
    ImpactWriter one = index.getReference();
    int number = Integer.parseInt(thread);
    one.buffers[number].add(text);
    if (one.buffers[number].postings() > one.limit || one.buffers[number].storedBytes() > one.storedLimit) {
      flush(index, thread);
    }
  }

  /** Adds the buffer of a thread to the index as one segment, and empties it. */
  public static void flush(AtomicMarkableReference<ImpactWriter> index, String thread) throws IOException {
    ImpactWriter one = index.getReference();
    int number = Integer.parseInt(thread);
    if (one.buffers[number].maxDoc() > 0) {
      one.buffers[number].invert();
      // Deletions so far are for documents of the same id that are replaced. Otherwise they would be applied later, to
      // the segment that is added here, too.
      one.writer.flush();
      one.writer.addIndexes(one.buffers[number]);
      one.buffers[number] = new ImpactDocuments(one.model, one.fields);
    }
  }

  /** Completes the index, or discards it. */
  public static void close(AtomicMarkableReference<ImpactWriter> index, String whole) throws IOException {
    if (Boolean.parseBoolean(whole)) {
      index.getReference().writer.close();
    } else {
      index.getReference().writer.rollback();
    }
  }

  /** Returns the number of documents in an index. */
  public static String count(String path) throws IOException {
    try (DirectoryReader reader = DirectoryReader.open(FSDirectory.open(Paths.get(path)))) {
      return Integer.toString(reader.numDocs());
    }
  }

  private static IndexWriterConfig configuration() {
    // The analyzer is never used.
    IndexWriterConfig configuration = new IndexWriterConfig(new KeywordAnalyzer());
    configuration.setSimilarity(new ImpactSimilarity());
    configuration.setUseCompoundFile(false);
    configuration.getMergePolicy().setNoCFSRatio(0);
    return configuration;
  }

  /**
   * Returns a segment of one document with Anserini's fields: id is stored, indexed, and breaks ties by doc values;
   * contents has terms and frequencies; raw is stored. Filter fields are indexed like the id.
   */
  private static CodecReader model(String[] fields) throws IOException {
    FieldType frequencies = new FieldType();
    frequencies.setTokenized(true);
    frequencies.setIndexOptions(IndexOptions.DOCS_AND_FREQS);
    Document document = new Document();
    document.add(new StringField(ImpactDocuments.ID, "", Field.Store.YES));
    document.add(new BinaryDocValuesField(ImpactDocuments.ID, new BytesRef()));
    document.add(new Field(ImpactDocuments.CONTENTS, "a", frequencies));
    if (fields != null) {
      document.add(new StoredField(ImpactDocuments.RAW, ""));
      for (String field : fields) {
        document.add(new StringField(field, "", Field.Store.NO));
      }
    }
    Directory memory = new ByteBuffersDirectory();
    try (IndexWriter writer = new IndexWriter(memory, configuration())) {
      writer.addDocument(document);
    }
    return (CodecReader) DirectoryReader.open(memory).leaves().get(0).reader();
  }
}
