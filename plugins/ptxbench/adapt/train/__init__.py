"""Training an adapter on a dataset of repairs (PROTOCOL 7). Heavy packages are imported where they are used."""
