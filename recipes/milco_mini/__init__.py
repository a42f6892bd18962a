"""milco-mini: a compact MILCO made from open data on a small machine.

The road, one module each: pieces (tokenizers), alignment (word translations counted from sentence pairs and
dictionaries), table (what every source piece means in English word pieces), codes (that table as low-dimensional
embeddings), echo (how much a piece of the text itself weighs), network (the MILCO architecture that starts as the
table), training and teacher (SAP and SCT from there), export (the checkpoint). words is the table that the trained
model has to reach; packed takes what training needs to another machine.
"""
