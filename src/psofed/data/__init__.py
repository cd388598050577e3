"""Tables as data: reading, checking and standardising the rows that clients learn from."""
