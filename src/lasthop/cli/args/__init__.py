"""What people type: targets, objects, addresses."""
