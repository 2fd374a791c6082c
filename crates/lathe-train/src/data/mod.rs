//! What a model is trained on: text files, tokenizers, token files, batches.
