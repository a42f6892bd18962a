"""milco adapt: train a model on one's own documents, and measure whether it has become better for them."""
