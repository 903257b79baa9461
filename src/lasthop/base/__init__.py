"""Values and parsing: API objects, X.509, text. Imports no other room."""
