#
# Pyserini: Reproducible IR research with sparse and dense representations
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
# http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.
#

import os
import unittest

from pyserini.encode import MilcoDocumentEncoder, MilcoQueryEncoder

# The directory milco_pyserini/resources/milco-mini of the package milco-pyserini.
MODEL = os.environ["MILCO_MODEL"]


class TestEncodeMilco(unittest.TestCase):
    def test_milco_query_encoder(self):
        weights = MilcoQueryEncoder(MODEL).encode("information retrieval")

        self.assertEqual(weights["information"], 109)
        self.assertEqual(weights["data"], 54)
        self.assertEqual(weights["retrieval"], 49)
        self.assertEqual(weights["m_trie"], 41)
        self.assertEqual(weights["m_▁information"], 33)

    def test_milco_document_encoder(self):
        encoder = MilcoDocumentEncoder(MODEL, device="cpu")
        first, second = encoder.encode(["Penicillin ist ein Antibiotikum.", ""], titles=["Medizin", ""])

        self.assertIn("m_▁Medizin", first)
        self.assertEqual(second, {})


if __name__ == "__main__":
    unittest.main()
