"""What happened on the wire: evidence of each proxy in, what is known of each hop out."""
