"""hoodie.properties: a table configuration read, checked and written."""
