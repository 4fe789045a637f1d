"""The HBase index: the places of keys in a table of HBase, as real Hudi keeps them there."""
