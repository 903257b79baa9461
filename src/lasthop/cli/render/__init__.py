"""What commands print, for terminals and for programs."""
