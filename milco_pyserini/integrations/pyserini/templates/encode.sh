milco encode --corpus {{ vectors.corpus }} --encoder {{ vectors.encoder }} --max-length {{ vectors.max_length }}
{%- if vectors.pruning %} --prune {{ vectors.pruning }}{% endif %}
{%- if vectors.scale != 100 %} --scale {{ vectors.scale }}{% endif %}
{%- if vectors.views | length < 2 %} --views {{ vectors.views | join }}{% endif %}
{%- if vectors.english_prefix %} --english-prefix {{ vectors.english_prefix }}{% endif %}
{%- if vectors.lowercase %} --lowercase{% endif %}
{%- if vectors.split_passages %} --split-passages{% endif %}
 --output vectors/{{ run.names.index }}
