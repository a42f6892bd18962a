"""The model card that a saved checkpoint carries where nobody has written one."""

from milco_pyserini.model import MilcoConfig

_CARD = """---
library_name: milco_pyserini
pipeline_tag: feature-extraction
tags: [sparse-retrieval, multilingual, cross-lingual, milco]
---

# MILCO checkpoint

Text in many languages to weighted English word pieces (pivot view){source}, for an inverted index.

- encoder: {layers} layers of {hidden}, {pieces:,} pieces; English vocabulary of {english:,} word pieces
- queries up to {query} tokens, passages up to {passage}
{echo}
```python
from milco_pyserini import MilcoEncoder

encoder = MilcoEncoder.from_pretrained("PATH")
encoder.decode(encoder.encode_query("Wer erfand das Telefon?"), top_k=10)
```
"""


def model_card(config: MilcoConfig) -> str:
    """Markdown with what the configuration alone can tell: sizes, lengths, views. Data and figures it cannot."""
    echo = f"- source view: {config.echo_variant} LexEcho head, repeated tokens by {config.source_pool}\n"
    return _CARD.format(
        source=" and the text's own pieces (source view)" if config.echo else "",
        layers=config.encoder.num_hidden_layers,
        hidden=config.encoder.hidden_size,
        pieces=config.encoder.vocab_size,
        english=config.english_vocab_size,
        query=config.query_max_length,
        passage=config.passage_max_length,
        echo=echo if config.echo else "",
    )
