"""milco-mini: a compact MILCO checkpoint made from open data on a small machine.

Modules in the order of the recipe: pieces (tokenizers), alignment (word translations from sentence pairs and
dictionaries), table (English weights of every source token), codes (that table as low-dimensional embeddings), echo
(weights of the source view), network (a MILCO model that starts as the table), training and teacher (SAP and SCT from
there), export (the quantized checkpoint). words is the translation table as a model, which the network has to match;
packed moves what training needs to another machine.
"""
