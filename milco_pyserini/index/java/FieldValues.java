import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.atomic.AtomicMarkableReference;
import org.apache.lucene.index.DirectoryReader;
import org.apache.lucene.index.LeafReaderContext;
import org.apache.lucene.index.PostingsEnum;
import org.apache.lucene.index.Terms;
import org.apache.lucene.index.TermsEnum;
import org.apache.lucene.search.DocIdSetIterator;
import org.apache.lucene.util.Bits;
import org.apache.lucene.util.BytesRef;

/** Counts the documents that have each value of a field. */
public final class FieldValues {
  private FieldValues() {}

  /**
   * Returns the values of a field that documents have which are not deleted.
   *
   * @param limit values from which on no further ones are read
   * @return for each value the number of documents and that of its bytes, four bytes each, and its bytes
   */
  public static byte[] count(AtomicMarkableReference<DirectoryReader> index, String field, String limit)
      throws IOException {
    int most = Integer.parseInt(limit);
    Map<BytesRef, Integer> counts = new TreeMap<>();
    for (LeafReaderContext leaf : index.getReference().leaves()) {
      Terms terms = leaf.reader().terms(field);
      if (terms == null) {
        continue;
      }
      Bits live = leaf.reader().getLiveDocs();
      TermsEnum values = terms.iterator();
      PostingsEnum found = null;
      for (BytesRef value = values.next(); value != null && counts.size() < most; value = values.next()) {
        int documents = 0;
        if (live == null) {
          documents = values.docFreq();
        } else {
          found = values.postings(found, PostingsEnum.NONE);
          while (found.nextDoc() != DocIdSetIterator.NO_MORE_DOCS) {
            documents += live.get(found.docID()) ? 1 : 0;
          }
        }
        if (documents > 0) {
          counts.merge(BytesRef.deepCopyOf(value), documents, Integer::sum);
        }
      }
    }
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    DataOutputStream output = new DataOutputStream(bytes);
    for (Map.Entry<BytesRef, Integer> entry : counts.entrySet()) {
      output.writeInt(entry.getValue());
      output.writeInt(entry.getKey().length);
      output.write(entry.getKey().bytes, entry.getKey().offset, entry.getKey().length);
    }
    return bytes.toByteArray();
  }
}
