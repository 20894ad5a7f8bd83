"""The tiny language model that is shipped: its text, questions, tokenizer, net, training and export."""
