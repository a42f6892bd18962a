/*
 * Anserini: A Lucene toolkit for reproducible information retrieval research
 *
 * Licensed under the Apache License, Version 2.0 (the "License");
 * you may not use this file except in compliance with the License.
 * You may obtain a copy of the License at
 *
 * http://www.apache.org/licenses/LICENSE-2.0
 *
 * Unless required by applicable law or agreed to in writing, software
 * distributed under the License is distributed on an "AS IS" BASIS,
 * WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
 * See the License for the specific language governing permissions and
 * limitations under the License.
 */

package io.anserini.encoder.sparse;

import ai.onnxruntime.OnnxTensor;
import ai.onnxruntime.OrtException;
import ai.onnxruntime.OrtSession;
import io.anserini.util.CacheDirectoryResolver;
import org.apache.commons.io.FileUtils;
import org.jetbrains.annotations.NotNull;

import java.io.File;
import java.io.IOException;
import java.net.URI;
import java.net.URISyntaxException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.Map;

/** MILCO: queries in any language to English word pieces, and to pieces of their own with the prefix m_. */
public class MilcoEncoder extends SparseEncoder {
  // The directory that `milco export onnx` writes.
  static private final String URL = "https://huggingface.co/castorini/milco-650m-onnx/resolve/main/";
  static private final String MODEL_NAME = "milco-650m.onnx";
  static private final String TOKENIZER_NAME = "milco-650m-tokenizer.json";
  static private final String TERMS_NAME = "milco-650m-terms.txt";

  static private final int QUANT_RANGE = 100;
  static private final int MAX_SEQ_LEN = 64;

  private final String[] terms;

  public MilcoEncoder() throws IOException, OrtException, URISyntaxException {
    super(1, QUANT_RANGE, MODEL_NAME, URL + "model.onnx", TOKENIZER_NAME, URL + "tokenizer.json", URL + "config.json");
    File file = CacheDirectoryResolver.getEncodersCachePath().resolve(TERMS_NAME).toFile();
    if (!file.exists()) {
      FileUtils.copyURLToFile(new URI(URL + "terms.txt").toURL(), file);
    }
    // Terms may contain other characters that end lines.
    this.terms = FileUtils.readFileToString(file, StandardCharsets.UTF_8).split("\n", -1);
  }

  @Override
  public long[] tokenizeToIds(String query) {
    long[] ids = jsonTokenizer.encode(query).getIds();
    if (ids.length <= MAX_SEQ_LEN) {
      return ids;
    }
    long[] first = Arrays.copyOf(ids, MAX_SEQ_LEN);
    first[MAX_SEQ_LEN - 1] = ids[ids.length - 1];
    return first;
  }

  @Override
  protected Map<String, Float> computeFloatWeights(@NotNull String query) throws OrtException {
    Map<String, Float> weights = new LinkedHashMap<>();
    long[][] ids = {tokenizeToIds(query)};
    if (query.isBlank() || ids[0].length < 3) {
      return weights;
    }
    long[][] mask = new long[1][ids[0].length];
    Arrays.fill(mask[0], 1);

    try (OnnxTensor idsTensor = OnnxTensor.createTensor(environment, ids);
         OnnxTensor maskTensor = OnnxTensor.createTensor(environment, mask);
         OrtSession.Result results = session.run(Map.of("input_ids", idsTensor, "attention_mask", maskTensor))) {
      long[] columns = (long[]) results.get("output_idx").orElseThrow().getValue();
      float[] values = (float[]) results.get("output_weights").orElseThrow().getValue();
      for (int i = 0; i < columns.length; i++) {
        // Others round to an impact of 0.
        if (Math.round(values[i] * QUANT_RANGE) > 0) {
          weights.put(terms[(int) columns[i]], values[i]);
        }
      }
    }
    return weights;
  }
}
