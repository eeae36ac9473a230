"""From failures to training data to a better model (PROTOCOL 7). docs/adaptation.md describes it."""
