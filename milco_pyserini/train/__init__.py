"""Training: Sparse Alignment Pretraining (SAP) and Sparse Contrastive Training (SCT)."""
