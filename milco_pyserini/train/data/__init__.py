"""Training data: bitext for alignment (SAP), and queries with passages for contrastive training (SCT)."""

# The ISO 639 code of texts whose language is mixed or unknown.
UNDETERMINED = "und"
