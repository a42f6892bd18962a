import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import org.apache.lucene.document.Document;
import org.apache.lucene.document.FeatureField;
import org.apache.lucene.index.DirectoryReader;
import org.apache.lucene.index.IndexWriter;
import org.apache.lucene.index.IndexWriterConfig;
import org.apache.lucene.search.BooleanClause;
import org.apache.lucene.search.BooleanQuery;
import org.apache.lucene.search.BoostQuery;
import org.apache.lucene.search.IndexSearcher;
import org.apache.lucene.search.Query;
import org.apache.lucene.search.ScoreDoc;
import org.apache.lucene.store.ByteBuffersDirectory;

/**
 * Lucene's FeatureField, in which Elasticsearch and OpenSearch store weighted terms.
 *
 * Standard input: documents, an empty line, queries; each a line of terms and weights, separated by tabs. Output: a line
 * with the row and score of the best documents for each query. Arguments: the number of documents, and "boost" for
 * queries whose weights are boosts (Elasticsearch) or "linear" for those of linear queries (OpenSearch).
 */
public class FeatureSearch {
    public static void main(String[] arguments) throws Exception {
        int hits = Integer.parseInt(arguments[0]);
        boolean boosted = arguments[1].equals("boost");
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        ByteBuffersDirectory directory = new ByteBuffersDirectory();
        try (IndexWriter writer = new IndexWriter(directory, new IndexWriterConfig())) {
            for (String line = input.readLine(); !line.isEmpty(); line = input.readLine()) {
                String[] parts = line.split("\t");
                Document document = new Document();
                for (int i = 0; i < parts.length; i += 2) {
                    document.add(new FeatureField("v", parts[i], Float.parseFloat(parts[i + 1])));
                }
                writer.addDocument(document);
            }
            // One segment, so that Lucene's numbers are the rows.
            writer.forceMerge(1);
        }
        PrintStream output = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        try (DirectoryReader reader = DirectoryReader.open(directory)) {
            IndexSearcher searcher = new IndexSearcher(reader);
            for (String line = input.readLine(); line != null; line = input.readLine()) {
                String[] parts = line.split("\t");
                BooleanQuery.Builder query = new BooleanQuery.Builder();
                for (int i = 0; i < parts.length; i += 2) {
                    float weight = Float.parseFloat(parts[i + 1]);
                    Query clause = FeatureField.newLinearQuery("v", parts[i], boosted ? 1f : weight);
                    query.add(boosted ? new BoostQuery(clause, weight) : clause, BooleanClause.Occur.SHOULD);
                }
                for (ScoreDoc hit : searcher.search(query.build(), hits).scoreDocs) {
                    output.print(hit.doc + "\t" + hit.score + "\t");
                }
                output.println();
            }
        }
        output.flush();
    }
}
